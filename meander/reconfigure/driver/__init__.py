"""The coordinator's side of reconfigurations: changes driven through the agents of all their hosts."""
