"""Continuous queries on Spark that keep running while the infrastructure under them moves."""
