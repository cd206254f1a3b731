"""`python -m tests.chaos` prints the report. (Workers need not import a main module of this name again.)"""

import sys

from tests.chaos.report import main

if __name__ == "__main__":
    sys.exit(main())
