"""Typed expressions, the functions they may use, and their normal form."""
