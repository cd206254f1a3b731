"""The verdict on a storm: what the journals say, held against what the services did and what the client was told.

| word | meaning |
|---|---|
| stuck | an entity that rests nowhere, or work that nobody does |
| lost | what was acknowledged and is not in the journal; a deed that must have been done and nobody knows of; an entry
of which no message told, or not in its order |
| double | a second deed beside a first one; a deed that no entry asked for |
| unsettled | a deed still held that its entity's state says was made up for |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from interlock.model.journal.entry import Entry
from interlock.model.journal.message import Message
from interlock.model.snapshot import Snapshot
from interlock.ports.store import EntityQuery, EntityRow
from interlock.ports.work import WorkQuery, WorkStore
from interlock.runtime.runtime import Runtime
from tests.chaos.ledger import FLEETING

HELD: dict[str, dict[str, tuple[str, ...]]] = {
    "order": {
        "shipped": ("charge", "parcel", "reservation"),
        "refunded": (),
        "charge_declined": (),
        "cancelled": (),
        "expired": (),
    },
    "vm": {"live": ("address", "power", "volume"), "setup_failed": (), "gone": (), "expired": ()},
    "network": {"ready": (), "refused": ()},
    "storage": {"ready": (), "refused": ()},
}
"""Where an entity of each kind may rest, and what it then has. What children make is their machine's."""

Kept = Mapping[tuple[str, str], int]
"""What the client was told: entity and key, to version."""


@dataclass
class Verdict:
    """All that is wrong; nothing, hopefully."""

    entities: int = 0
    entries: int = 0
    emits: int = 0
    messages: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    applied: dict[str, list[int]] = field(default_factory=dict)
    stuck: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    doubles: list[str] = field(default_factory=list)
    unsettled: list[str] = field(default_factory=list)

    def found(self) -> list[str]:
        """Everything, each with its word."""
        words = {"stuck": self.stuck, "lost": self.lost, "double": self.doubles, "unsettled": self.unsettled}
        return [f"{word}: {each}" for word, all_of_them in words.items() for each in all_of_them]

    def line(self) -> str:
        """The last line of a report."""
        sagas = f"{len(self.unsettled)} sagas unsettled" if self.unsettled else "all sagas settled"
        counts = f"{len(self.stuck)} stuck, {len(self.lost)} lost, {len(self.doubles)} double effects"
        return f"chaos: {self.entities:,} entities, {counts}, {sagas}"


async def rows_of(runtime: Runtime) -> list[EntityRow]:
    """Every entity of the kinds that a storm plays with, as lists show it."""
    found: list[EntityRow] = []
    for kind in HELD:
        after: str | None = None
        while True:
            page = await runtime.list(EntityQuery(kind=kind, after=after, limit=500))
            found += page.rows
            after = page.after
            if after is None:
                break
    return found


async def judged(runtime: Runtime, kept: Kept, book: Mapping[str, Any]) -> Verdict:
    """Reads everything once, when all is at rest, and judges."""
    verdict = Verdict(doubles=list(book["doubles"]))
    asked: set[str] = set()
    versions: dict[tuple[str, str], int] = {}
    held = _held(book)
    for entity in [each.entity for each in await rows_of(runtime)]:
        verdict.entities += 1
        entries = await _journal(runtime, entity)
        verdict.entries += len(entries)
        verdict.emits += sum(effect.type == "message" for each in entries for effect in each.effects)
        verdict.applied[entity] = [each.version for each in entries if each.outcome == "applied"]
        versions |= {(entity, each.key): each.version for each in entries}
        asked |= {str(effect.payload.get("key") or effect.key) for each in entries for effect in each.effects}
        _judge_rest(verdict, await runtime.state(entity), held.get(entity, Counter()))
        proof = await runtime.verify(entity)
        if proof.problem is not None:
            verdict.lost.append(f"{entity}: {proof.problem.code}: {proof.problem.message}")
    for place, version in kept.items():
        if versions.get(place) != version:
            verdict.lost.append(f"{place[0]}: `{place[1]}` was acknowledged at {version}, and is {versions.get(place)}")
    verdict.doubles += [f"{key}: done, and no entry asks for it" for key in book["deeds"] if key not in asked]
    assert isinstance(runtime.store, WorkStore)
    rest = (await runtime.store.works(WorkQuery(limit=500))).rows
    verdict.stuck += [f"{each.entity}: work `{each.work.name}` is left, {each.error}" for each in rest]
    return verdict


def judge_messages(verdict: Verdict, messages: Iterable[Message]) -> None:
    """Whether each applied entry was told, and the entries of an entity in their order, once repeats are dropped."""
    told: dict[str, list[int]] = {}
    seen: set[str] = set()
    for each in messages:
        if each.id not in seen and each.type.endswith(".changed"):
            told.setdefault(each.subject or "", []).append(each.data["version"])
        seen.add(each.id)
    verdict.messages = len(seen)
    for entity, versions in verdict.applied.items():
        heard = told.pop(entity, [])
        missing = sorted(set(versions) - set(heard))
        verdict.lost += [f"{entity}: nobody was told of version {each}" for each in missing]
        if heard != sorted(heard):
            verdict.lost.append(f"{entity}: told in the order {heard}")
        verdict.doubles += [
            f"{entity}: told of version {each}, and did not apply it" for each in {*heard} - {*versions}
        ]
    verdict.doubles += [f"{entity}: told of, and unknown" for entity in told]


def _judge_rest(verdict: Verdict, snapshot: Snapshot, held: Counter[str]) -> None:
    """Whether an entity is where it may rest, with what it then has."""
    entity, state = snapshot.entity, ", ".join(snapshot.configuration)
    wanted = HELD[snapshot.kind].get(state)
    verdict.ends[f"{snapshot.kind} {state}"] += 1
    if wanted is None:
        verdict.stuck.append(f"{entity} is in {state}")
        return
    for deed in sorted({*wanted, *held}):
        expected, actual = wanted.count(deed), held[deed]
        if actual > expected:
            verdict.unsettled.append(f"{entity} is {state} and holds {actual} of {deed}, not {expected}")
        elif actual < expected:
            verdict.lost.append(f"{entity} is {state} and has no {deed}")


def _held(book: Mapping[str, Any]) -> dict[str, Counter[str]]:
    held: dict[str, Counter[str]] = {}
    for each in book["deeds"].values():
        if not each["undone"] and each["deed"] not in FLEETING:
            held.setdefault(each["entity"], Counter())[each["deed"]] += 1
    return held


async def _journal(runtime: Runtime, entity: str) -> list[Entry]:
    entries: list[Entry] = []
    while page := await runtime.journal(entity, after=len(entries), limit=500):
        entries += page
    return entries
