"""SQL: scripts, and one reader for each clause."""
