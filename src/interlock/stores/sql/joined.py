"""What the SQL stores share on a connection of the caller."""

from __future__ import annotations

from typing import NoReturn

from interlock.errors import InternalError
from interlock.ports.refusals import Refusal, RefusalLog
from interlock.ports.store import EntityPage, EntityQuery, Itself, Store


class JoinedSqlStore(Store):
    """The part of a joined store that asks no database: it keeps refusals, and lists nothing."""

    refusal_log = Itself[RefusalLog]()
    mark: object | None = None

    def __init__(self) -> None:
        self.refusals: list[Refusal] = []

    async def record_refusals(self, refusals: tuple[Refusal, ...]) -> None:
        """Keep refusals until the call has ended."""
        self.refusals += refusals

    async def find(self, query: EntityQuery) -> EntityPage:
        """Not asked by a send."""
        _refuse("find", query)

    async def kinds(self) -> tuple[str, ...]:
        """Not asked by a send."""
        _refuse("kinds")

    async def close(self) -> None:
        """Do nothing: the connection belongs to the caller."""


def _refuse(name: str, *_: object) -> NoReturn:
    raise InternalError(f"a send in a transaction of the caller asked for `{name}`", code="join.asked")
