"""Logs of drafted blocks, streamed into flat arrays."""
