"""Who gets a place, how long the wait is, what gives way when too many ask. Who comes first: engine/scheduler.py."""
