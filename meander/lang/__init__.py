"""How people write queries: fluent Python and SQL, both turned into a query plan."""
