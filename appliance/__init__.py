"""The product without a browser: who may ask, what is asked, and the engine that answers."""
