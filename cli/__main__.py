"""Run the command from a checkout: ``python -m cli``."""

from .main import main

main()
