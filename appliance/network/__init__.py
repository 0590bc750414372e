"""How one gets here: addresses, names, the port, and what stands in the way."""
