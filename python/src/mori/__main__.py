"""`python -m mori` is the command-line tool; see mori/cli.py."""

import sys

from mori.cli import main

if __name__ == "__main__":
    sys.exit(main())
