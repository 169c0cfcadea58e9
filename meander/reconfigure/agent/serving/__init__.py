"""A host as others see it: their requests, their rights, where they are, and the replicas they keep of it."""
