"""A job as a value: what it is to do, how far it is, and by which keys it acts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from interlock.ports.store import EntityQuery
from interlock.web.auth import User
from interlock.web.errors import damage_text

SAMPLES_MAX = 20
PROBLEMS_MAX = 50

TOLD_MAX = 200
"""Characters of an error that is told of one entity: fifty of them are kept with the job."""

BULK_ADVICE = (
    "It was interrupted: its server ended, or lost its store. What was sent is in the journals, under keys of this "
    "job. Resume it: whoever has the event already is not given it again, and all others are."
)
VERIFY_ADVICE = "It was interrupted: its server ended, or lost its store. It changes nothing: resumed, it begins anew."

HAD = "it had it already"
"""What is told of an entity that took the event before its job was interrupted."""


class Item(Struct, frozen=True, array_like=True):
    """An entity as a bulk met it. It is asked at this version only."""

    entity: str
    version: int
    revision: str
    configuration: tuple[str, ...]


class JobPage(Struct, frozen=True):
    """Entities that a bulk is about to ask, and the cursor behind them (None: these are the last)."""

    items: tuple[Item, ...]
    after: str | None


class Job(Struct):
    """A job and how far it is. Counted by outcome, and by state and revision before.

    `kept`: it is in the store, as the entity `interlock-job/<id>`, and outlives its server. `status` is running,
    paused, interrupted (`advice` says what to do), done, failed or cancelled. `noted_ms`: what is told was so then.
    `kind`: the kind of its entities; None where it looks at all of them.
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
    kept: bool = False
    noted_ms: int | None = None
    advice: str | None = None
    kind: str | None = None

    def count_item(self, item: Item, outcome: str, why: str | None) -> None:
        """One entity of a bulk was asked."""
        self.seen += 1
        _add(self.outcomes, outcome)
        for state in item.configuration:
            _add(self.states, state)
        _add(self.revisions, item.revision)
        told = None if why is None else why[:TOLD_MAX]
        said = {"entity": item.entity, "configuration": item.configuration, "outcome": outcome, "reason": told}
        if len(self.samples) < SAMPLES_MAX:
            self.samples.append(said)
        elif outcome not in ("applied", "ignored") and len(self.problems) < PROBLEMS_MAX:
            self.problems.append(said)

    def count_proof(self, proof: Any) -> None:
        """One entity was looked at."""
        self.seen += 1
        problem = proof.problem
        _add(self.outcomes, "damaged" if problem is not None and problem.is_corruption else _proven(problem))
        if problem is None:
            if len(self.samples) < SAMPLES_MAX:
                self.samples.append({"entity": proof.entity, "entries": proof.entries, "head": proof.head})
        elif len(self.problems) < PROBLEMS_MAX:
            version = problem.version if problem.version is not None else proof.entries + 1
            message = damage_text(problem.code, problem.message)
            told = {"entity": proof.entity, "code": problem.code, "message": message, "version": version}
            self.problems.append({**told, "proven": proof.entries})


MaySee = Callable[[str], bool]
"""Whether somebody may see a kind."""


def is_open_to(person: User, job: Job, may_see: MaySee) -> bool:
    """Whether a person may see a job: any when nothing is hidden from them, else their own, because its samples name
    states. Not even that once it names a kind that they may not see (any more).
    """
    if "read:sensitive" in person.rights:
        return True
    named = {each["entity"].partition("/")[0] for each in (*job.samples, *job.problems)}
    if job.kind is not None:
        named.add(job.kind)
    return job.who == person.name and all(map(may_see, named))


def _proven(problem: object) -> str:
    return "unproven" if problem else "proven"


def _add(counts: dict[str, int], name: str) -> None:
    counts[name] = counts.get(name, 0) + 1


class Bulk(Struct, frozen=True):
    """One event for every entity of a filter, as which principal, at most so many a second.

    `query` ends where the walk was frozen. `about` is what was asked for: a run is of the same as its dry run.
    """

    query: EntityQuery
    event: str
    payload: Any
    principal: Mapping[str, Any]
    about: bytes
    dry_run: bool = True
    per_second: int = 0
