"""Improvement of finished placements: replicas move, push others aside, and leave links that carry too much."""
