"""Replicas of other sites: kept up to date here, run here under their names, given back."""
