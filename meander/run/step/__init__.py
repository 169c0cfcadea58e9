"""The step: one batch of one slot, from reading channels to the commit."""
