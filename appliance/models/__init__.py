"""Which model answers: files that are here, what is in them, downloads and uploads."""
