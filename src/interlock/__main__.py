"""`python -m interlock` is the command `interlock`."""

import sys

from interlock.cli.entry_point import start

if __name__ == "__main__":
    sys.exit(start())
