"""Backups: one archive of all that a coordinator needs to start again, and its restoration into an empty directory."""
