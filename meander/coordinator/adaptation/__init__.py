"""Adaptation on running queries: measures, transitions, and their costs."""
