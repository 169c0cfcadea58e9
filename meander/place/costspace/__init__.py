"""Coordinates for nodes, such that distances estimate latencies."""
