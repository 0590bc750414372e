"""What was said: conversations, and the life of one question."""
