"""Records, the memory of a store besides tuples and state: a closed set of types in one table.

docs/concepts/store.md says what each is for.
"""
