"""Which drafts to verify: the allocators, and the policies an engine's loop or a replay runs."""
