"""The parts of `meander bench latency`."""
