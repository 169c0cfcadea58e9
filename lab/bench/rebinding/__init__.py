"""The parts of `meander bench rebinding`."""
