"""How a browser gets here: addresses and names, port, HTTP server, firewall, checks of Host and Origin."""
