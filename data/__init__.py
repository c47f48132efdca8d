"""Measured data that ships with dspark-sched; see README.md beside this file."""
