"""The test bed: a coordinator and sites as real processes on one machine, on a network that can be shaped and cut."""
