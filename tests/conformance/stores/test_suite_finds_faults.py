"""The suite itself: each fault that a store could have is found by at least one of its cases."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from interlock.ports.store import (
    Append,
    AppendResult,
    Conflict,
    Duplicate,
    EntityPage,
    EntityQuery,
    KeyExpired,
    Loaded,
)
from interlock.stores.memory import MemoryStore
from interlock.testing.store_suite.suite import StoreSubject, store_cases

Answer = AppendResult


class SaysNothingOfLeases(MemoryStore):
    """Lacks an attribute of the port."""

    def __getattribute__(self, name: str) -> Any:
        if name == "leases":
            raise AttributeError(name)
        return super().__getattribute__(name)


class HasHalfAQueue(MemoryStore):
    """Has work that cannot be retried."""

    def __getattribute__(self, name: str) -> Any:
        if name == "requeue_dead_letter":
            raise AttributeError(name)
        return super().__getattribute__(name)


class ForgetsKeys(MemoryStore):
    """Ignores keys: appends any entry with the right version."""

    async def append(self, append: Append) -> Answer:
        life = self._entities.get(append.entity)
        if life is not None:
            life.keys.clear()
        return await super().append(append)


class SwapsWithoutComparing(MemoryStore):
    """Accepts a step on another version: a lost update."""

    async def append(self, append: Append) -> Answer:
        life = self._entities.get(append.entity)
        return await super().append(replace(append, expected=0 if life is None else life.snapshot.version))


class ComparesThenYields(SwapsWithoutComparing):
    """Yields between the comparison and the swap."""

    async def append(self, append: Append) -> Answer:
        life = self._entities.get(append.entity)
        now = 0 if life is None else life.snapshot.version
        await asyncio.sleep(0)
        if now != append.expected:
            return Conflict(now)
        return await super().append(append)


class PrefersConflicts(MemoryStore):
    """Answers a repeated key with a conflict after later entries."""

    async def append(self, append: Append) -> Answer:
        life = self._entities.get(append.entity)
        if life is not None and life.snapshot.version != append.expected:
            return Conflict(life.snapshot.version)
        return await super().append(append)


class UsesUpKeys(MemoryStore):
    """Stores the key of a refused step."""

    async def append(self, append: Append) -> Answer:
        answer = await super().append(append)
        if isinstance(answer, Conflict) and append.entity in self._entities:
            self._entities[append.entity].keys[append.entry.key] = answer.version
        return answer


class DoubtsTheLate(MemoryStore):
    """Treats every late event as one whose key has expired."""

    async def append(self, append: Append) -> Answer | KeyExpired:
        if append.sent_ms is not None and append.sent_ms < append.entry.event.time_ms:
            return KeyExpired(append.expected, append.entry.event.time_ms)
        return await super().append(append)


class FoldsCase(MemoryStore):
    """Ignores the case of ids, as some file systems do."""

    async def append(self, append: Append) -> Answer:
        return await super().append(replace(append, entity=append.entity.lower()))


class KeepsOldSnapshots(MemoryStore):
    """Loads the previous version, without the missing record."""

    async def load(self, entity: str, *, key: str | None = None) -> Loaded | Duplicate | None:
        found = await super().load(entity, key=key)
        if isinstance(found, Loaded) and found.snapshot is not None and found.version > 1:
            return replace(found, snapshot=replace(found.snapshot, version=found.version - 1))
        return found


class BreaksTheChain(MemoryStore):
    """Returns records with changed bytes."""

    async def read(self, entity: str, *, after: int = 0, limit: int = 1_000) -> tuple[Any, ...]:
        records = await super().read(entity, after=after, limit=limit)
        return tuple(replace(each, line=each.line.replace(b"applied", b"Applied")) for each in records)


class RepeatsTheLastRow(MemoryStore):
    """Starts each page with the last row of the page before."""

    async def find(self, query: EntityQuery) -> EntityPage:
        page = await super().find(query)
        if query.after is not None and page.rows:
            return replace(page, rows=(page.rows[0], *page.rows)[: query.limit])
        return page


class ListsByName(MemoryStore):
    """Ignores the times of a query."""

    async def find(self, query: EntityQuery) -> EntityPage:
        page = await super().find(query)
        return replace(page, rows=tuple(sorted(page.rows, key=lambda each: each.entity)))


class TakesPrefixesForPatterns(MemoryStore):
    """Reads `_` in a prefix as any character."""

    async def find(self, query: EntityQuery) -> EntityPage:
        prefix = None if query.prefix is None else query.prefix.replace("_", "")
        return await super().find(replace(query, prefix=prefix))


class StaysOpen(MemoryStore):
    """Continues after `close`."""

    async def close(self) -> None:
        return


MUTANTS = (
    SaysNothingOfLeases,
    HasHalfAQueue,
    ForgetsKeys,
    SwapsWithoutComparing,
    ComparesThenYields,
    PrefersConflicts,
    UsesUpKeys,
    DoubtsTheLate,
    FoldsCase,
    KeepsOldSnapshots,
    BreaksTheChain,
    RepeatsTheLastRow,
    ListsByName,
    TakesPrefixesForPatterns,
    StaysOpen,
)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda each: each.__name__)
async def test_a_faulty_store_is_detected(mutant: type[MemoryStore]) -> None:
    """At least one case fails, by its own word and not by an accident of the fault."""
    found = []
    for case in store_cases(durable=False, shared=False):
        try:
            await case(StoreSubject(open=mutant))
        except AssertionError:
            found.append(case)

    assert found
