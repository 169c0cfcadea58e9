"""Resident state: rows that operators remember, kept so that a step reads those that its new tuples can meet.

The append-only tables of the store stay the truth, for recovery and for moving state; what is here is made from them
and can be given up at any time.
"""
