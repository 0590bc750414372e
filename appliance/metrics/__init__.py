"""How it is doing: counters, their history, memory and load of this PC, how many people it serves."""
