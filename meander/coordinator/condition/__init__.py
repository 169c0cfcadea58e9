"""The condition of queries and of the service, and the doctor, which compares the running fragments with the
catalog."""
