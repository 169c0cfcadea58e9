"""The coordinator: the loop that is closed. Everything that decides, deploys and runs comes together here."""
