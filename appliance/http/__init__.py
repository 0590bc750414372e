"""The routes of programs and of the page, and what stands before all routes: rights, sizes, shares."""
