"""The decision core: the one thread that decides, its commands, and the batches that they become."""
