"""From placements to running fragments: the changes on each node, and the records that carry them there."""
