"""What a migration found: counts, and groups of entities with the same answer."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from interlock.model.limits import MIGRATION_GROUPS_MAX, MIGRATION_SAMPLES_MAX
from interlock.model.snapshot import Snapshot
from interlock.ports.store import EntityRow


class MigrationSample(Struct, frozen=True, omit_defaults=True):
    """An entity before and after its move, without the values of its context: states, fields, timers and invokes."""

    entity: str
    before: dict[str, Any]
    after: dict[str, Any] | None = None


class MigrationGroup(Struct, frozen=True, omit_defaults=True):
    """Entities of one revision and configuration with the same answer. Without `reasons` they can move, or did."""

    revision: str
    configuration: tuple[str, ...]
    entities: int
    samples: tuple[str, ...]
    reasons: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    examples: tuple[MigrationSample, ...] = ()


class MigrationReport(Struct, frozen=True):
    """The living entities of a kind: how many are on the newest chart, can move or did, and stay; and the groups.

    `ungrouped` entities are counted and in no group, because there were too many. `unreadable` could not be listed.
    `overdue` timers would have fired before the move. `new` entities were created on an older revision during the
    migration and moved by its last pass: a process with an older chart still creates such entities.
    """

    kind: str
    revision: str
    newest: int
    moved: int
    stays: int
    groups: tuple[MigrationGroup, ...]
    ungrouped: int = 0
    unreadable: tuple[str, ...] = ()
    overdue: int = 0
    migration: str | None = None
    new: int = 0


GroupName = tuple[str, tuple[str, ...], tuple[str, ...], tuple[str, ...]]
"""Revision, configuration, reasons, and what the move ends."""


class Tally:
    """What one pass found."""

    def __init__(self) -> None:
        self.newest = self.moved = self.new = self.stays = self.ungrouped = self.overdue = 0
        self.unreadable: list[str] = []
        self.found: dict[GroupName, tuple[int, list[str]]] = {}
        self.examples: dict[GroupName, list[MigrationSample]] = {}

    def add(
        self,
        row: EntityRow,
        reasons: tuple[str, ...],
        dropped: tuple[str, ...] = (),
        example: MigrationSample | None = None,
    ) -> None:
        """Count an entity that moved, if there is no reason why not, or that stays."""
        if reasons:
            self.stays += 1
        else:
            self.moved += 1
        name = (row.revision, row.configuration, reasons, dropped)
        if name not in self.found and len(self.found) >= MIGRATION_GROUPS_MAX:
            self.ungrouped += 1
            return
        count, samples = self.found.get(name, (0, []))
        if len(samples) < MIGRATION_SAMPLES_MAX:
            samples.append(row.entity)
            if example is not None:
                self.examples.setdefault(name, []).append(example)
        self.found[name] = (count + 1, samples)

    def groups(self) -> tuple[MigrationGroup, ...]:
        """The groups, those that stay first, then by size."""
        found = [
            MigrationGroup(
                revision,
                configuration,
                count,
                tuple(samples),
                reasons,
                dropped,
                tuple(self.examples.get((revision, configuration, reasons, dropped), ())),
            )
            for (revision, configuration, reasons, dropped), (count, samples) in self.found.items()
        ]
        return tuple(sorted(found, key=lambda each: (not each.reasons, -each.entities, each.samples)))

    def joined(self, last: Tally) -> Tally:
        """Return the last pass with the moves of those before it."""
        joined = Tally()
        joined.newest, joined.stays, joined.new = max(0, last.newest - self.moved), last.stays, last.new
        joined.moved, joined.overdue = self.moved + last.moved, self.overdue + last.overdue
        joined.ungrouped, joined.unreadable = last.ungrouped + self.ungrouped, last.unreadable
        joined.found = {name: each for name, each in self.found.items() if not name[2]}
        for name, (count, samples) in last.found.items():
            known, first = joined.found.get(name, (0, []))
            joined.found[name] = (known + count, (first + samples)[:MIGRATION_SAMPLES_MAX])
        joined.examples = {**self.examples, **last.examples}
        return joined


def outline(snapshot: Snapshot) -> dict[str, Any]:
    """Return what a report shows of a snapshot: no values, which may be personal."""
    return {
        "configuration": list(snapshot.configuration),
        "fields": sorted(snapshot.context),
        "timers": {each.name: each.due_ms for each in snapshot.timers},
        "invokes": [each.id for each in snapshot.invokes],
    }
