"""Ingest: tuples of streams into the channels of the fragments that read them."""
