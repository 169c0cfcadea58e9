"""Replicas of sites: who keeps them, and what becomes of a site that is gone."""
