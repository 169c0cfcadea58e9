"""The index of free room: the nearest node that can still take so much."""
