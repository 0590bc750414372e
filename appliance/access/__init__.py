"""Who may do what: persons, the owner, programs, and how often each may ask."""
