"""The parts of `meander bench tcep`."""
