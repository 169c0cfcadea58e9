"""Reports of a host about itself: inventory, backlog, pauses, the status file."""
