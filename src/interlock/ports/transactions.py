"""What a store needs of a connection of the caller, to write in its transaction.

Rule: an error of the driver is raised as it is: the store translates those that it knows, and the others belong to the
caller, as the connection does.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Literal, Protocol, TypeVar

T = TypeVar("T")


class SqliteTransaction(Protocol):
    """A caller's connection to a SQLite file."""

    @property
    def dialect(self) -> Literal["sqlite"]:
        """The language of its statements."""

    async def run(self, call: Callable[[sqlite3.Connection], T]) -> T:
        """Call a function with the connection of the module `sqlite3`, in the thread that may use it."""


class PostgresTransaction(Protocol):
    """A caller's connection to a PostgreSQL server, inside a transaction."""

    @property
    def dialect(self) -> Literal["postgres"]:
        """The language of its statements."""

    async def fetch(self, statement: str, values: Sequence[Any]) -> list[Any]:
        """Run a statement with parameters `$1`, `$2`; return its rows, each a sequence."""


CallerTransaction = SqliteTransaction | PostgresTransaction


class TransactionEnd(Enum):
    """The state of a transaction of the caller, as another connection sees it."""

    OPEN = "open"
    COMMITTED = "committed"
    UNDONE = "undone"
