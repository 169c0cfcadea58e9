"""The read model: all that users can see, kept up to date for requests and watchers."""
