"""The condition of queries and of the service, and the doctor who compares what runs with the catalog."""
