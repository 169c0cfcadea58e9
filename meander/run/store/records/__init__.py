"""What a store remembers besides tuples and state: a closed set of record types in one table.

docs/concepts/store.md says what each is for.
"""
