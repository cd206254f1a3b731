"""The connections that `join` accepts, by their form, so that a type checker finds the wrong sort of connection."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Protocol


class BlockingConnection(Protocol):
    """A connection of sqlite3, psycopg or Django, or a Session or Connection of SQLAlchemy."""

    def commit(self) -> None:
        """Commit the transaction."""


class AsyncConnection(Protocol):
    """A connection of aiosqlite or psycopg (AsyncConnection), or an AsyncSession or AsyncConnection of SQLAlchemy."""

    def commit(self) -> Awaitable[None]:
        """Commit the transaction."""


class AsyncpgConnection(Protocol):
    """A connection of asyncpg, or one that its pool has lent."""

    def is_in_transaction(self) -> bool:
        """Whether a transaction is open."""

    async def fetchval(self, query: str, /) -> Any:
        """Return the first value of the first row."""
