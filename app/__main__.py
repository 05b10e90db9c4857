"""Run `python -m app`."""

import sys

from app.startup.command_line import main

if __name__ == "__main__":
    sys.exit(main())
