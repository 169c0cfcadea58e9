"""Where each operator should run, and keeping that valid at the price of the change."""
