"""Placement of operators on nodes: catalog, sharing, change log, deltas, amenders, mechanisms. Knows the model,
never Spark."""
