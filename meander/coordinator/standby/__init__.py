"""The standby: a second process that has everything of the coordinator, and takes over when most sites agree."""
