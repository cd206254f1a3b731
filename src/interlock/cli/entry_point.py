"""Where the command `interlock` begins: Ctrl-C is a quiet end, also while the command is still being imported.

Rule 1: nothing heavy is imported at the top: what is imported there, nobody can guard.
"""

from __future__ import annotations

import sys


def start() -> int:
    """Run the command line of this process, and give its exit code."""
    try:
        from interlock.cli.main import main

        return main()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return 130  # `exits.INTERRUPTED`, which may not be there yet
