"""Users: their tokens, and the links that open the page."""
