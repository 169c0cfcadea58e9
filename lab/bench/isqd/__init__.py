"""The parts of `meander bench isqd`."""
