"""Joins that are placed: their columns, and changes whose cost grows with the rows they touch."""
