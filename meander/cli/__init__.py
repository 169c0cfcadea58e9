"""The commands of `meander`, one file a group. Each file has `register`, and `cli.COMMANDS` lists them in order."""
