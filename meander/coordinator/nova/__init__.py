"""Joins that Nova places, kept placed while they run."""
