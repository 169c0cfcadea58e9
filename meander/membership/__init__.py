"""Both ends of membership: the records of the protocol, and how a site joins and is heard of."""
