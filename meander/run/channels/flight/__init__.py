"""Channels between sites over Arrow Flight: readers pull, and show proofs."""
