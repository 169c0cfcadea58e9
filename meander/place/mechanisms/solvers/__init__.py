"""Placing all operators at once: the question as arrays, and those who answer it exactly or by packing."""
