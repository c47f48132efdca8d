"""Checks against the paper's published numbers: ``python -m examples.validation --write``."""
