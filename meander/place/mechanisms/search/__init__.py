"""Finding nodes for one operator after the other: candidates, their latencies, ideal points in the cost space."""
