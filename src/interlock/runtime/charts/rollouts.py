"""Which revision a new entity starts on while a definition is rolled out to a part of them.

Rule 1: a rollout is a fact of the store, `rollout/<kind>`. Every process reads it again after `CHECKED_MS`, so all of
them follow one decision within a second.
Rule 2: an entity is in the cohort if a salted hash of its id is below the share. The salt stays while the share grows,
so the cohort of 20 % contains that of 10 %. This is asked at creation only; then the entity has a revision.
Rule 3: while a rollout is active, the cohort starts on the new revision and all others on the base, whichever charts a
process has. An aborted one starts all on the base. A complete one starts all on the new revision, but a process with a
chart that the store got later uses that.
Rule 4: no entity is upgraded to a revision that is being rolled out or was aborted: the share would mean nothing.
Rule 5: choosing an earlier revision again moves it to the end of the order of revisions (`Promotion`), so
that entities still move forward only.
Rule 6: children follow the same rules, except those of inline charts, which belong to the chart around them.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Literal

import msgspec
from msgspec import Struct

from interlock.errors import CorruptionError, UnavailableError
from interlock.model.charts.chart import Chart
from interlock.model.encoding.codec import UNDECODABLE
from interlock.ports.clock import Clock
from interlock.ports.definitions import Edition
from interlock.ports.store import Store
from interlock.ports.store_facts import StoreFacts

FACT_PREFIX = "rollout/"

SHARE_MAX = 10_000
"""All new entities, in hundredths of a percent."""

CHECKED_MS = 1_000
"""How long a process may follow an old decision."""

RolloutState = Literal["active", "complete", "aborted"]


class Promotion(Struct, frozen=True):
    """A revision that was chosen again: its new place is behind the edition with this number, then by `number`."""

    revision: str
    after: int
    number: int


class RolloutChange(Struct, frozen=True):
    """One change of a rollout: to which share, when, who made it and why."""

    share: int
    state: RolloutState
    changed_ms: int
    by: str
    why: str


class Rollout(Struct, frozen=True, kw_only=True):
    """The rollout of a revision of a kind. `share` is in hundredths of a percent; `history` has the newest change last.

    `aborted` are revisions to which no entity is upgraded, and `promoted` those that were chosen again.
    """

    revision: str
    base: str
    share: int
    salt: str
    state: RolloutState
    history: tuple[RolloutChange, ...]
    aborted: tuple[str, ...] = ()
    promoted: tuple[Promotion, ...] = ()

    def has(self, entity: str) -> bool:
        """Whether an entity is in the cohort."""
        number = int.from_bytes(blake2b(f"{self.salt}/{entity}".encode(), digest_size=8).digest(), "big")
        return number % SHARE_MAX < self.share

    def revision_for(self, entity: str) -> str:
        """Return the revision on which a new entity starts."""
        return self.revision if self.state != "aborted" and self.has(entity) else self.base


_decode = msgspec.json.Decoder(Rollout).decode


def fact_name(kind: str) -> str:
    """Return the name of the fact about a kind."""
    return f"{FACT_PREFIX}{kind}"


def decode_rollout(kind: str, text: str) -> Rollout:
    """Return a rollout from its fact. Raises CorruptionError (`store.fact`)."""
    try:
        return _decode(text)
    except UNDECODABLE as error:
        message = f"the rollout of `{kind[:80]}` in the store is invalid: {error}"
        raise CorruptionError(message, code="store.fact") from error


async def read_rollout(store: Store, kind: str) -> Rollout | None:
    """Return the rollout of a kind, as the store has it now; None if there is none."""
    text = None if store.facts is None else (await store.facts.read_facts()).get(fact_name(kind))
    return None if text is None else decode_rollout(kind, text)


class Rollouts:
    """The rollouts of a store, as one process knows them."""

    def __init__(self, facts: StoreFacts | None, clock: Clock, *, known: dict[str, Rollout] | None = None) -> None:
        self._facts = facts
        self._clock = clock
        self._rollouts = {} if known is None else known
        self._read_ms: int | None = None

    @property
    def is_stale(self) -> bool:
        """Whether `refresh` has to be called before an entity is created or upgraded."""
        if self._facts is None:
            return False
        return self._read_ms is None or not 0 <= self._clock.now_ms() - self._read_ms < CHECKED_MS

    def fixed(self) -> Rollouts:
        """Return the rollouts as they are known now, which are never stale: for a call that cannot wait."""
        return Rollouts(None, self._clock, known=self._rollouts)

    async def refresh(self) -> None:
        """Read the facts. Raises UnavailableError when they were never read and cannot be read now."""
        assert self._facts is not None
        try:
            found = await self._facts.read_facts()
        except UnavailableError:
            if self._read_ms is None:
                raise
        else:
            names = [each for each in found if each.startswith(FACT_PREFIX)]
            self._rollouts = {
                kind: decode_rollout(kind, found[fact_name(kind)])
                for kind in (each.removeprefix(FACT_PREFIX) for each in names)
            }
        self._read_ms = self._clock.now_ms()

    def find(self, kind: str) -> Rollout | None:
        """Return the rollout of a kind; None if there is none."""
        return self._rollouts.get(kind)

    def holds_back(self, chart: Chart) -> bool:
        """Whether no entity may be upgraded to a chart."""
        found = self._rollouts.get(chart.kind)
        if found is None:
            return False
        is_active = found.state == "active" and chart.is_revision(found.revision)
        return is_active or any(chart.is_revision(each) for each in found.aborted)

    def promoted(self, kind: str) -> tuple[Promotion, ...]:
        """Return the revisions of a kind that were chosen again."""
        found = self._rollouts.get(kind)
        return () if found is None else found.promoted


Order = tuple[int, int]
"""The place of a revision: the number of its first edition, or of the edition that it was promoted behind."""


def order_of(editions: Iterable[Edition], names: Iterable[str], promoted: Iterable[Promotion] = ()) -> Order | None:
    """Return the place of a revision in the store, given all of its names; None if it is not saved."""
    own = set(names)
    found = [each for each in editions if not own.isdisjoint((each.revision, *each.names))]
    if not found:
        return None
    own.update(each.revision for each in found)
    first = (min(each.sequence for each in found), 0)
    return max([first, *((each.after, each.number) for each in promoted if each.revision in own)])
