"""The executors' path: executors fetch their parts of a large batch themselves, and bring the results."""
