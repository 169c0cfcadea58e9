"""Fragments on a host: templates, how they are bound, and the routing table."""
