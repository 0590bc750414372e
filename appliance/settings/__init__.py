"""What the owner has chosen, in which file, and what of it is in force; how the owner's files are read."""
