"""`python -m tests.crash.chaos` prints the report. (Workers need not import a main module of this name again.)"""

import sys

from tests.crash.chaos.report import main

if __name__ == "__main__":
    sys.exit(main())
