"""Exit codes: everything about which ending of a command gives which number lives here.

Rule 1: codes follow the error classes, which say what the caller should do next; a script can branch on them.
Rule 2: the first class in the table that fits decides.
"""

from __future__ import annotations

import errno

from interlock.errors import (
    ConflictError,
    CorruptionError,
    DefinitionError,
    DeniedError,
    InternalError,
    MissingExtraError,
    NotFoundError,
    RejectedError,
    UnavailableError,
    UsageError,
)

DAMAGED_HINT = 'change nothing, and read "A journal is damaged" in docs/guide/operate.md'
"""What to do once something is damaged; the same on every store."""

OK = 0
FINDINGS = 1
USAGE = 2
CONFLICT = 3
DENIED = 4
REJECTED = 5
NOT_FOUND = 6
UNAVAILABLE = 7
CORRUPTION = 8
MISSING_EXTRA = 9
INTERNAL = 70
INTERRUPTED = 130

_BY_CLASS: tuple[tuple[type[Exception], int], ...] = (
    (DefinitionError, FINDINGS),
    (UsageError, USAGE),
    (ConflictError, CONFLICT),
    (DeniedError, DENIED),
    (RejectedError, REJECTED),
    (NotFoundError, NOT_FOUND),
    (UnavailableError, UNAVAILABLE),
    (CorruptionError, CORRUPTION),
    (MissingExtraError, MISSING_EXTRA),
    (InternalError, INTERNAL),
)

# What a person can put right by calling differently; every other failure of the file system may pass by itself.
_WRONG_CALL = frozenset(
    {errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR, errno.EROFS, errno.ENAMETOOLONG, errno.EINVAL}
)


def exit_code(error: Exception) -> int:
    """The code a command ends with when this error reaches the top; 70 for one that nobody expected."""
    if isinstance(error, FileNotFoundError):
        return NOT_FOUND
    if isinstance(error, OSError):
        return USAGE if error.errno in _WRONG_CALL else UNAVAILABLE
    return next((code for cls, code in _BY_CLASS if isinstance(error, cls)), INTERNAL)
