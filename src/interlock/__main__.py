"""`python -m interlock` is the command `interlock`."""

import sys

from interlock.cli.start import start

if __name__ == "__main__":
    sys.exit(start())
