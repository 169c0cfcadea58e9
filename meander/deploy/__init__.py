"""From placements to running fragments: what has to change on which node, and the records that carry it there."""
