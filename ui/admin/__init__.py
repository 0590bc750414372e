"""The owner's pages, one module a section."""
