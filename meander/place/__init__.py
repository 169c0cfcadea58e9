"""Where operators run: catalog, sharing, change log, deltas, amenders, mechanisms. Knows the model, never Spark."""
