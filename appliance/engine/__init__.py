"""Continuous batching over llama.cpp: knows tokens and slots, nothing of people, pages or HTTP."""
