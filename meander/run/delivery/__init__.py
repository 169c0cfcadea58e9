"""Delivery: committed results out of their channels into sinks."""
