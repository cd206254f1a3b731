"""Tables of work to hold against each other: in memory, and in SQLite."""

from __future__ import annotations

import sqlite3
from importlib.resources import files
from typing import Protocol

from interlock.model.work import Lane, Left, Place
from interlock.ports.work import Claim, Settled, WorkPage, WorkQuery
from interlock.stores import sqlite_work
from interlock.stores.work_table import WorkTable


class Table(Protocol):
    """What both can do."""

    def keep(self, entity: str, left: Left) -> None:
        """What an entry leaves."""

    def fence(self, entity: str, place: Place) -> int | None:
        """The newest attempt."""

    def claim(
        self, lane: Lane, names: tuple[str, ...] | None, *, owner: str, now_ms: int, until_ms: int, limit: int
    ) -> tuple[Claim, ...]:
        """Take up."""

    def renew(self, claims: tuple[Claim, ...], *, until_ms: int) -> tuple[Claim | None, ...]:
        """Hold."""

    def settle(self, settled: tuple[Settled, ...], *, now_ms: int) -> tuple[bool, ...]:
        """Let go."""

    def soonest(self, lane: Lane, names: tuple[str, ...] | None) -> int | None:
        """When the next is due."""

    def works(self, query: WorkQuery) -> WorkPage:
        """List."""

    def revive(self, entity: str, place: Place, *, now_ms: int) -> bool:
        """Try dead work again."""

    def drop(self, entity: str, place: Place) -> bool:
        """Forget."""


class SqliteTable:
    """The statements of the SQLite store, on a database in memory."""

    def __init__(self) -> None:
        self.connection = sqlite3.connect(":memory:", isolation_level=None)
        text = files("interlock.stores").joinpath("migrations/sqlite/0003_work.sql").read_text(encoding="utf-8")
        self.connection.executescript(text)

    def keep(self, entity: str, left: Left) -> None:
        """What an entry leaves."""
        kind, _, own = entity.partition("/")
        sqlite_work.keep(self.connection, ("", kind, own), left)

    def fence(self, entity: str, place: Place) -> int | None:
        """The newest attempt."""
        kind, _, own = entity.partition("/")
        return sqlite_work.fence(self.connection, ("", kind, own), place)

    def claim(
        self, lane: Lane, names: tuple[str, ...] | None, *, owner: str, now_ms: int, until_ms: int, limit: int
    ) -> tuple[Claim, ...]:
        """Take up; asked beforehand, the table knows whether there is something."""
        due = sqlite_work.is_due(self.connection, "", lane, names, now_ms)
        found = sqlite_work.claim(
            self.connection, "", lane, names, owner=owner, now_ms=now_ms, until_ms=until_ms, limit=limit
        )

        assert due == bool(found)
        return found

    def renew(self, claims: tuple[Claim, ...], *, until_ms: int) -> tuple[Claim | None, ...]:
        """Hold."""
        return sqlite_work.renew(self.connection, "", claims, until_ms)

    def settle(self, settled: tuple[Settled, ...], *, now_ms: int) -> tuple[bool, ...]:
        """Let go."""
        return sqlite_work.settle(self.connection, "", settled, now_ms)

    def soonest(self, lane: Lane, names: tuple[str, ...] | None) -> int | None:
        """When the next is due."""
        return sqlite_work.soonest(self.connection, "", lane, names)

    def works(self, query: WorkQuery) -> WorkPage:
        """List."""
        return sqlite_work.works(self.connection, "", query)

    def revive(self, entity: str, place: Place, *, now_ms: int) -> bool:
        """Try dead work again."""
        return sqlite_work.revive(self.connection, "", entity, place, now_ms)

    def drop(self, entity: str, place: Place) -> bool:
        """Forget."""
        return sqlite_work.drop(self.connection, "", entity, place)


TABLES: dict[str, type[Table]] = {"memory": WorkTable, "sqlite": SqliteTable}
