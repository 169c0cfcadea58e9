"""Workloads, scenarios, baselines, experiments and plots."""
