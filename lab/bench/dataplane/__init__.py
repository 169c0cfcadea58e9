"""The parts of `meander bench dataplane`."""
