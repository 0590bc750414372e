"""The same questions to us and to the programs people would use instead, on the same file and the same machine."""
