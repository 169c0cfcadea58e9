"""Streams that a host takes in and sinks that it delivers to, as the coordinator tells it."""
