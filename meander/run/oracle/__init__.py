"""The batch oracle, and comparisons with it."""
