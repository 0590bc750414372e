"""The page people chat on: its components, what happens when something is pressed, how a conversation looks."""
