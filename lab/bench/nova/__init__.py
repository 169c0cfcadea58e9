"""The parts of `meander bench nova`."""
