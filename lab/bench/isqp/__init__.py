"""The parts of `meander bench isqp`."""
