"""The product without a browser: who may ask, what is asked, and the engine that answers."""

__version__ = "0.1.0"
