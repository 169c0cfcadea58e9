"""Users and devices: their tokens, the links that open the page, and the rows that devices send."""
