"""The parts of `meander bench handover`."""
