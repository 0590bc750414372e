"""Who may do what, and how often: persons, the owner, programs, passwords, keys."""
