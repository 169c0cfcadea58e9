"""Exchanges: what carries tuples from one fragment to the next. `base` is the interface, `embedded` the default."""
