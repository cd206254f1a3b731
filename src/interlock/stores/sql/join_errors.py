"""Why a transaction of the caller cannot be joined, or has lost: the same errors for every database."""

from __future__ import annotations

from interlock.errors import ConflictError, UsageError


def other_database_error(place: str) -> UsageError:
    """Return the error for a connection to another database than that of the store."""
    hint = "open the runtime on the database of this connection, or join a connection to the store's own database"
    return UsageError(f"the connection does not lead to the store ({place})", code="join.other_database", hint=hint)


def autocommit_error(fix: str) -> UsageError:
    """Return the error for a connection without a transaction: each statement would be committed alone."""
    return UsageError("the connection is not in a transaction", code="join.autocommit", hint=fix)


def read_only_error() -> UsageError:
    """Return the error for a transaction that cannot write."""
    hint = "use a connection to the primary, in a transaction that may write"
    return UsageError("the joined transaction is read-only", code="join.read_only", hint=hint)


def joined_conflict_error(message: str, hint: str) -> ConflictError:
    """Return the error when another transaction was first."""
    return ConflictError(message, code="conflict.joined", hint=hint)
