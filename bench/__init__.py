"""Measures the program: every figure as a ratio against something real, from one interleaved run.

`python -m bench` lists the measurements. Nothing of the program imports this package.
"""
