"""The suite itself: each fault that a store could have is found by at least one of its cases."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from interlock.ports.store import (
    Append,
    Appended,
    Conflict,
    Duplicate,
    EntityPage,
    EntityQuery,
    KeyExpired,
    Loaded,
    StaleAttempt,
)
from interlock.stores.memory import MemoryStore
from interlock.testing.store_suite.suite import StoreSubject, store_cases

Answer = Appended | Duplicate | Conflict | StaleAttempt


class SaysNothingOfLeases(MemoryStore):
    """Lacks an attribute of the port."""

    def __getattribute__(self, name: str) -> Any:
        if name == "leases":
            raise AttributeError(name)
        return super().__getattribute__(name)


class HasHalfAQueue(MemoryStore):
    """Has work that nobody can retry."""

    def __getattribute__(self, name: str) -> Any:
        if name == "revive":
            raise AttributeError(name)
        return super().__getattribute__(name)


class ForgetsKeys(MemoryStore):
    """Appends whatever has the right version, under any key."""

    async def append(self, append: Append) -> Answer:
        life = self._lives.get(append.entity)
        if life is not None:
            life.keys.clear()
        return await super().append(append)


class SwapsWithoutComparing(MemoryStore):
    """Takes a step computed on another version: the lost update."""

    async def append(self, append: Append) -> Answer:
        life = self._lives.get(append.entity)
        return await super().append(replace(append, expected=0 if life is None else life.snapshot.version))


class ComparesThenYields(SwapsWithoutComparing):
    """Lets others in between the comparison and the swap."""

    async def append(self, append: Append) -> Answer:
        life = self._lives.get(append.entity)
        now = 0 if life is None else life.snapshot.version
        await asyncio.sleep(0)
        if now != append.expected:
            return Conflict(now)
        return await super().append(append)


class PrefersConflicts(MemoryStore):
    """Answers a repeated key with a conflict once the entity has moved on."""

    async def append(self, append: Append) -> Answer:
        life = self._lives.get(append.entity)
        if life is not None and life.snapshot.version != append.expected:
            return Conflict(life.snapshot.version)
        return await super().append(append)


class UsesUpKeys(MemoryStore):
    """Remembers the key of a step that was refused."""

    async def append(self, append: Append) -> Answer:
        answer = await super().append(append)
        if isinstance(answer, Conflict) and append.entity in self._lives:
            self._lives[append.entity].keys[append.entry.key] = answer.version
        return answer


class DoubtsTheLate(MemoryStore):
    """Takes every event that is long under way for one whose key is forgotten."""

    async def append(self, append: Append) -> Answer | KeyExpired:  # type: ignore[override]  # memory forgets none
        if append.sent_ms is not None and append.sent_ms < append.entry.event.time_ms:
            return KeyExpired(append.expected, append.entry.event.time_ms)
        return await super().append(append)


class FoldsCase(MemoryStore):
    """Takes two ids for one, as some file systems do."""

    async def append(self, append: Append) -> Answer:
        return await super().append(replace(append, entity=append.entity.lower()))


class KeepsOldSnapshots(MemoryStore):
    """Loads the version before, without the record that is missing."""

    async def load(self, entity: str, *, key: str | None = None) -> Loaded | Duplicate | None:
        found = await super().load(entity, key=key)
        if isinstance(found, Loaded) and found.snapshot is not None and found.version > 1:
            return replace(found, snapshot=replace(found.snapshot, version=found.version - 1))
        return found


class BreaksTheChain(MemoryStore):
    """Gives records whose bytes were touched."""

    async def read(self, entity: str, *, after: int = 0, limit: int = 1_000) -> tuple[Any, ...]:
        records = await super().read(entity, after=after, limit=limit)
        return tuple(replace(each, line=each.line.replace(b"applied", b"Applied")) for each in records)


class RepeatsTheLastRow(MemoryStore):
    """Begins each page with the row that ended the one before."""

    async def find(self, query: EntityQuery) -> EntityPage:
        page = await super().find(query)
        if query.after is not None and page.rows:
            return replace(page, rows=(page.rows[0], *page.rows)[: query.limit])
        return page


class ListsByName(MemoryStore):
    """Forgets since when."""

    async def find(self, query: EntityQuery) -> EntityPage:
        page = await super().find(query)
        return replace(page, rows=tuple(sorted(page.rows, key=lambda each: each.entity)))


class TakesPrefixesForPatterns(MemoryStore):
    """Reads `_` in a prefix as any character."""

    async def find(self, query: EntityQuery) -> EntityPage:
        prefix = None if query.prefix is None else query.prefix.replace("_", "")
        return await super().find(replace(query, prefix=prefix))


class StaysOpen(MemoryStore):
    """Goes on after its end."""

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
async def test_a_faulty_store_is_found_out(mutant: type[MemoryStore]) -> None:
    """At least one case fails, by its own word and not by an accident of the fault."""
    found = []
    for case in store_cases(durable=False, shared=False):
        try:
            await case(StoreSubject(open=mutant))
        except AssertionError:
            found.append(case)

    assert found
