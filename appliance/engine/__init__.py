"""Tokens and slots: continuous batching over llama.cpp, in whose order. Knows nothing of pages or HTTP."""
