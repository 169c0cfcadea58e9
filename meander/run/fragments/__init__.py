"""Fragments on a host: templates, bindings, and the routing table."""
