"""The error of a store whose files were moved, replaced or deleted while it was open.

A process goes on writing to the file that it has open, whatever has its name by now. What is written there is lost with
the process. So every store looks, before it acknowledges anything, whether the name still leads to the open file.
"""

from __future__ import annotations

from interlock.errors import UnavailableError

REPLACED = "store.replaced"

_HINT = "restart this process; stop every process of a store before its files are moved, restored or deleted"


def replaced(what: str) -> UnavailableError:
    """What a sender is told; `what` names the file and how it was found."""
    return UnavailableError(f"{what} while the store was open: nothing was acknowledged", code=REPLACED, hint=_HINT)
