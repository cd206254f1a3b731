"""The rule for open files that were moved, replaced or deleted, shared by the stores on a disk.

A process keeps writing to the file that it has open, whatever file has its name by now, and what it writes there is
lost when it ends. So a store checks before each acknowledgement that the path still leads to the file it has open.
"""

from __future__ import annotations

from interlock.errors import UnavailableError

REPLACED = "store.replaced"

_HINT = "restart this process; stop every process of a store before its files are moved, restored or deleted"


def replaced_error(what: str) -> UnavailableError:
    """The error for a file that is no longer at its path; `what` names the file and what happened to it."""
    return UnavailableError(f"{what} while the store was open: nothing was acknowledged", code=REPLACED, hint=_HINT)
