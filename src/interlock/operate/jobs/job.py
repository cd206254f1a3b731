"""A job as a value: its task, its progress, and samples of what it did."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from interlock.ports.store import EntityQuery
from interlock.runtime.history.verify import Verification
from interlock.trust.disclosure import damage_text

SAMPLES_MAX = 20
PROBLEMS_MAX = 50

REASON_CHARACTERS_MAX = 200
"""Characters of the reason of one sample: up to seventy of them are stored with the job."""

BULK_ADVICE = (
    "The job was interrupted: its server stopped or lost the connection to its store. Every event it sent is in a "
    "journal, under a key of this job. Resume the job to send the remaining events; no entity receives the event twice."
)
VERIFY_ADVICE = (
    "The job was interrupted: its server stopped or lost the connection to its store. "
    "Resume the job to verify again from the start."
)

ALREADY_APPLIED = "already applied"
"""The reason given for an entity that applied the event before its job was interrupted."""

MaySee = Callable[[str], bool]
"""Whether a user may see a kind."""


class Item(Struct, frozen=True, array_like=True):
    """An entity as a bulk listed it. The event is sent at this version only."""

    entity: str
    version: int
    revision: str
    configuration: tuple[str, ...]


class JobPage(Struct, frozen=True):
    """The entities that a bulk sends to next, and the cursor after them (None: this is the last page)."""

    items: tuple[Item, ...]
    after: str | None


class Job(Struct):
    """A job and its progress. Entities are counted by outcome, and by their state and revision before.

    `stored`: the job is the entity `interlock-job/<id>` and survives its server. `status` is running, paused,
    interrupted (`advice` says what to do), done, failed or cancelled. `noted_ms`: when the progress was saved last.
    `kind`: the kind of the job's entities; None if it visits all kinds.
    """

    id: str
    what: str
    who: str
    began_ms: int
    status: str = "running"
    reason: str | None = None
    dry_run: bool = False
    seen: int = 0
    total: int | None = None
    outcomes: dict[str, int] = {}
    states: dict[str, int] = {}
    revisions: dict[str, int] = {}
    samples: list[dict[str, Any]] = []
    problems: list[dict[str, Any]] = []
    ended_ms: int | None = None
    error: str | None = None
    stored: bool = False
    noted_ms: int | None = None
    advice: str | None = None
    kind: str | None = None

    def count_item(self, item: Item, outcome: str, reason: str | None) -> None:
        """Count one entity of a bulk."""
        self.seen += 1
        _increment(self.outcomes, outcome)
        for state in item.configuration:
            _increment(self.states, state)
        _increment(self.revisions, item.revision)
        sample = {
            "entity": item.entity,
            "configuration": item.configuration,
            "outcome": outcome,
            "reason": None if reason is None else reason[:REASON_CHARACTERS_MAX],
        }
        if len(self.samples) < SAMPLES_MAX:
            self.samples.append(sample)
        elif outcome not in ("applied", "ignored") and len(self.problems) < PROBLEMS_MAX:
            self.problems.append(sample)

    def count_verification(self, verification: Verification) -> None:
        """Count one verified entity."""
        self.seen += 1
        problem = verification.problem
        if problem is None:
            _increment(self.outcomes, "proven")
            if len(self.samples) < SAMPLES_MAX:
                sample = {"entity": verification.entity, "entries": verification.entries, "head": verification.head}
                self.samples.append(sample)
            return
        _increment(self.outcomes, "damaged" if problem.is_corruption else "unproven")
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(
                {
                    "entity": verification.entity,
                    "code": problem.code,
                    "message": damage_text(problem.code, problem.message),
                    "version": verification.entries + 1 if problem.version is None else problem.version,
                    "proven": verification.entries,
                }
            )

    def kinds(self) -> frozenset[str]:
        """The kinds that the job names: its own, and those of its samples and problems."""
        entities = (each["entity"] for each in (*self.samples, *self.problems))
        named = frozenset(each.partition("/")[0] for each in entities)
        return named if self.kind is None else named | {self.kind}


def _increment(counts: dict[str, int], name: str) -> None:
    counts[name] = counts.get(name, 0) + 1


class Bulk(Struct, frozen=True):
    """One event for every entity that matches a filter, sent as `principal`, at most `per_second`.

    `query` matches only entities that were in their state when the dry run started. `request` is the encoded request:
    a run must repeat the request of its dry run.
    """

    query: EntityQuery
    event: str
    payload: Any
    principal: Mapping[str, Any]
    request: bytes
    dry_run: bool = True
    per_second: int = 0
