"""The entry point of the command `interlock`: Ctrl-C ends it without a traceback, also during imports.

Rule: this module imports almost nothing, because an interrupt during its own imports cannot be caught.
"""

from __future__ import annotations

import sys


def start() -> int:
    """Run the command line of this process and return its exit code."""
    try:
        from interlock.cli.main import main

        return main()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return 130  # `exit_codes.INTERRUPTED`, which may not be imported yet
