"""The loop of placing, deploying and reconfiguring, and what becomes of failures in it."""
