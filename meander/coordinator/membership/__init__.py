"""Membership: which sites there are, which nodes they have, whether they are heard of, and which coordinator acts."""
