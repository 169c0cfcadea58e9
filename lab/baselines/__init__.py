"""Baselines: what Meander is compared with."""
