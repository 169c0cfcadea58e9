"""Joins that are placed: their columns, and changes at the price of what they touch."""
