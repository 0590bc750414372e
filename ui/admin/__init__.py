"""The owner's pages: the admin page, one module a section, and the first run."""
