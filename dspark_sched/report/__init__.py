"""Records to tables and pictures."""
