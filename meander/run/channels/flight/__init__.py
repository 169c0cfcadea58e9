"""Channels between sites over Arrow Flight: readers pull, proofs say who they are."""
