"""`python -m interlock` is the command `interlock`."""

import sys

from interlock.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
