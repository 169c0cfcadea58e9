"""The executors' path: executors fetch their parts of a large batch themselves, and bring what they made of them."""
