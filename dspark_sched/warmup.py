"""``warm_up``: compile every kernel ahead of time."""
