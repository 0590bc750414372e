"""Who waits, how long, and who is told that it is too much."""
