"""A host's side of reconfigurations: the agent, and what it does with each message."""
