"""What the owner has chosen, in which file, and what of it is in force."""
