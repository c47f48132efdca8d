"""The command ``dspark-sched``; installed as ``dspark_sched_cli``."""
