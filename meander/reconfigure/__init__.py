"""Reconfigurations that touch several sites: cut into shares, driven step by step, decided once."""
