"""The routes, and what stands before all of them."""
