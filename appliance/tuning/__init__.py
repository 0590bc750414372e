"""Which form of a model and how many threads are fastest here, for how much quality; which kernels failed."""
