"""The demo: trains on a ring line and the queries that follow them."""
