"""The parts of `meander bench machines`."""
