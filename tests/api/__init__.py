"""A coordinator that runs, and everything that can be asked of it."""
