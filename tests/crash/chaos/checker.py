"""The verdict on a storm: the journals compared with the operations of the services and the receipts of the client.

| word | meaning |
|---|---|
| stuck | an entity in no resting state, or unfinished work |
| lost | an acknowledged event that is not in the journal; a missing operation; an entry without a message, or out of
order |
| double | a second operation of a kind; an operation that no entry asked for |
| unsettled | an active operation that was compensated according to its entity's state |
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
from interlock.ports.work import WorkQuery
from interlock.runtime.runtime import Runtime
from tests.crash.chaos.ledger import FLEETING

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
"""The resting states of each kind, and the operations that are active there. Those of children belong to their vm."""

Kept = Mapping[tuple[str, str], int]
"""The receipts of the client: entity and key, to version."""


@dataclass
class Verdict:
    """Everything that is wrong."""

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
        """Return all findings, each with its word."""
        words = {"stuck": self.stuck, "lost": self.lost, "double": self.doubles, "unsettled": self.unsettled}
        return [f"{word}: {each}" for word, all_of_them in words.items() for each in all_of_them]

    def line(self) -> str:
        """Return the last line of a report."""
        sagas = f"{len(self.unsettled)} sagas unsettled" if self.unsettled else "all sagas settled"
        counts = f"{len(self.stuck)} stuck, {len(self.lost)} lost, {len(self.doubles)} double effects"
        return f"chaos: {self.entities:,} entities, {counts}, {sagas}"


async def rows_of(runtime: Runtime) -> list[EntityRow]:
    """Return every entity of the kinds of a storm, as lists show it."""
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
    """Read everything once, when no work is left, and return the verdict."""
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
            verdict.lost.append(
                f"{place[0]}: `{place[1]}` was acknowledged at {version}, but is at {versions.get(place)}"
            )
    verdict.doubles += [f"{key}: done, but no entry asks for it" for key in book["operations"] if key not in asked]
    assert runtime.store.work is not None
    rest = (await runtime.store.work.works(WorkQuery(limit=500))).rows
    verdict.stuck += [f"{each.entity}: work `{each.work.name}` is left, {each.error}" for each in rest]
    return verdict


def judge_messages(verdict: Verdict, messages: Iterable[Message]) -> None:
    """Check that each applied entry was published, in order per entity, once repeats are dropped."""
    published: dict[str, list[int]] = {}
    seen: set[str] = set()
    for each in messages:
        if each.id not in seen and each.type.endswith(".changed"):
            published.setdefault(each.subject or "", []).append(each.data["version"])
        seen.add(each.id)
    verdict.messages = len(seen)
    for entity, versions in verdict.applied.items():
        received = published.pop(entity, [])
        missing = sorted(set(versions) - set(received))
        verdict.lost += [f"{entity}: version {each} was not published" for each in missing]
        if received != sorted(received):
            verdict.lost.append(f"{entity}: published in the order {received}")
        verdict.doubles += [
            f"{entity}: version {each} was published, but not applied" for each in {*received} - {*versions}
        ]
    verdict.doubles += [f"{entity}: published, but unknown" for entity in published]


def _judge_rest(verdict: Verdict, snapshot: Snapshot, held: Counter[str]) -> None:
    """Check that an entity is in a resting state, with the operations of that state."""
    entity, state = snapshot.entity, ", ".join(snapshot.configuration)
    wanted = HELD[snapshot.kind].get(state)
    verdict.ends[f"{snapshot.kind} {state}"] += 1
    if wanted is None:
        verdict.stuck.append(f"{entity} is in {state}")
        return
    for operation in sorted({*wanted, *held}):
        expected, actual = wanted.count(operation), held[operation]
        if actual > expected:
            verdict.unsettled.append(f"{entity} is {state} and has {actual} of {operation}, not {expected}")
        elif actual < expected:
            verdict.lost.append(f"{entity} is {state} and has no {operation}")


def _held(book: Mapping[str, Any]) -> dict[str, Counter[str]]:
    held: dict[str, Counter[str]] = {}
    for each in book["operations"].values():
        if not each["undone"] and each["operation"] not in FLEETING:
            held.setdefault(each["entity"], Counter())[each["operation"]] += 1
    return held


async def _journal(runtime: Runtime, entity: str) -> list[Entry]:
    entries: list[Entry] = []
    while page := await runtime.journal(entity, after=len(entries), limit=500):
        entries += page
    return entries
