"""The page people chat on: the only package that imports gradio. Talks to the chat service, never to the engine."""
