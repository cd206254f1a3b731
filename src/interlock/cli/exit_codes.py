"""Exit codes of commands, by error class.

Rule: the classes say what the caller should do next, so a script can branch on the code.
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

CORRUPTION_HINT = 'change nothing, and read "A journal is damaged" in docs/guide/operate.md'
"""What to do about corrupt data, on every store."""

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
WITH_CARE = 10
BREAKING = 11
NO_VERDICT = 12
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

# Errors that another command line avoids; every other error of the file system may be temporary.
_USAGE_ERRNOS = frozenset(
    {errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR, errno.EROFS, errno.ENAMETOOLONG, errno.EINVAL}
)


def exit_code(error: Exception) -> int:
    """Return the exit code for an error; 70 for an unexpected one."""
    if isinstance(error, FileNotFoundError):
        return NOT_FOUND
    if isinstance(error, OSError):
        return USAGE if error.errno in _USAGE_ERRNOS else UNAVAILABLE
    return next((code for cls, code in _BY_CLASS if isinstance(error, cls)), INTERNAL)
