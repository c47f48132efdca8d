"""From raw step timings to a profile, and what to doubt in one."""
