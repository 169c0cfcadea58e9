"""Reconfigurations: running fragments get from one deployment to the next, by one protocol on every host."""
