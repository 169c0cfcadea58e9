"""Joins over very many nodes: virtual places in the cost space, partitions, and nodes that still have room (Nova)."""
