"""Adaptation on running queries: measures, transitions, and what they cost."""
