"""Rewrites of how a stage runs, one file each."""
