"""Queries and placements on this machine, without a service: run, replay, place."""
