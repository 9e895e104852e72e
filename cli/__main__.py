"""``python -m tdabias_cli``."""

from .main import main

main()
