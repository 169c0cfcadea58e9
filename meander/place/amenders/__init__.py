"""Amenders: a delta placed anew, beside others that are placed at the same time."""
