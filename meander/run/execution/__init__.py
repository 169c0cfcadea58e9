"""Execution: how the plan of a stage runs on Spark."""
