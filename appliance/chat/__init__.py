"""What was said: conversations, cleaning of input, the life of one question and what is counted of it."""
