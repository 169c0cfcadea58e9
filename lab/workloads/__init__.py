"""Workloads: topologies, queries and changes, generated or read from public files."""
