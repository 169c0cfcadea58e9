"""Topology files: YAML in, YAML out."""
