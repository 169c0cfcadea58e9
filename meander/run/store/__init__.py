"""The store: journal, commits, snapshots, and the views of channels and state over them."""
