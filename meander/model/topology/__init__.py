"""The topology: nodes and links as columns, their names, and cheapest paths."""
