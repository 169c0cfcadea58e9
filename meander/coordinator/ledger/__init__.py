"""The ledger: what the coordinator must not forget, and how the catalog is rebuilt from it."""
