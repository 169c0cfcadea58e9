"""The data plane: operators, channels and state on Spark."""
