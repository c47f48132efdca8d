"""What the scheduler did: a ring of decisions, counters, exports, and an explanation in words."""
