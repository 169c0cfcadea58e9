"""Experiments and models that benches are made of."""
