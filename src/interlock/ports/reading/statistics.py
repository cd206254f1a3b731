"""What pages about many entities need of a store: populations, rates and dwell times, kept as counters.

Rule 1: a query costs the same for ten entities and for ten million: it reads counters, or stops at a limit and says so.
Rule 2: populations are exact, because they are written with each step. Rates and dwell times are written every few
seconds: they may lag, and a process that is killed loses what it had not yet written.
Rule 3: a store may lack these (`Store.statistics` is None); its callers do without.
Rule 4: what was seen is kept by day for `SEEN_DAYS`, then the last day only. A state counts when an entity comes to
rest in it: one that is entered and left in the same step is not seen. Names beyond `SEEN_NAMES_MAX` are counted
together.
Rule 5: a kind with hidden states is counted twice: as it is, and as readers see it who may not see those states
(`Append.others`). Rates are counted once only, with the steps that these readers do not see.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal, Protocol

from msgspec import Struct

from interlock.model.journal.work import Lane
from interlock.ports.reading.visible_names import VISIBLE, is_for_others, state_for_others

COUNT_MAX = 10_000
"""Where counting along an index stops, after some milliseconds. One more than this means "and more"."""

DWELL_FACTOR = 4
"""By how much neighbouring bounds differ."""

DWELL_BOUNDS_MS: tuple[int, ...] = tuple(100 * DWELL_FACTOR**number for number in range(14))
"""Upper bounds of the buckets of dwell times, from a tenth of a second to 78 days, each four times the one before. The
last bucket has none. Stores keep the numbers of buckets, so the bounds change only with a migration (ADR 0162)."""

DWELL_DAYS = 14
"""Days that dwell times are kept."""

RATE_MINUTES = 1_440
"""Minutes that rates are kept: a day."""

SeenKind = Literal["state", "event", "refused", "timer"]
"""What was seen: a state entered, an event in an entry, an event that changed nothing, an event that a timer sent."""

OTHER_NAMES = ""
"""The name that counts all names beyond `SEEN_NAMES_MAX`."""

DAY_MS = 86_400_000
MINUTE_MS = 60_000


class StateCount(Struct, frozen=True):
    """How many entities of a revision are in a state; compounds count too. Entities that ended without a final state
    are counted once, under one of `ports.store.ENDED_STATES`.
    """

    revision: str
    state: str
    entities: int


class DwellTimes(Struct, frozen=True):
    """How long entities stayed in a state before they left it or ended: the number of stays in each bucket."""

    state: str
    stays: tuple[int, ...]

    def quantile_ms(self, part: float) -> int | None:
        """Return about how long this part of the stays took at most; None without stays, or beyond the last bound.

        Stays are taken to be spread evenly inside a bucket, on a logarithmic scale.
        """
        wanted, seen = part * sum(self.stays), 0
        for bound, count in zip(DWELL_BOUNDS_MS, self.stays, strict=False):
            if count and seen + count >= wanted:
                return round(bound * math.pow(DWELL_FACTOR, (wanted - seen) / count - 1))
            seen += count
        return None


class ProcessStays(Struct, frozen=True):
    """The stays in a state that ended by steps of this process, by bucket, and their length together."""

    kind: str
    state: str
    stays: tuple[int, ...]
    total_ms: int


class MinuteRates(Struct, frozen=True):
    """The counts of one minute: steps written, swaps lost, attempts refused."""

    minute_ms: int
    steps: int
    conflicts: int
    refusals: int


class LastSeen(Struct, frozen=True):
    """How often something was seen since the first day that is known of it, and when last."""

    what: SeenKind
    name: str
    first_day_ms: int
    count: int
    last_ms: int


def seen_kind(source: str | None) -> SeenKind:
    """Return what an entry shows of its event, by the event's source: it was received, or a timer has fired."""
    return "timer" if source is not None and source.startswith("timer/") else "event"


class VisibleCounts(Struct, frozen=True):
    """The counts of a kind at one moment: `states` as they are, `visible` as others see them.

    In `visible`, the state '' counts the entities that others see. It is empty for a kind without hidden states.
    """

    states: tuple[StateCount, ...]
    visible: tuple[StateCount, ...]


def counts_of_all(counts: Iterable[StateCount]) -> tuple[StateCount, ...]:
    """Return the true counts of all that a store keeps for a kind."""
    return tuple(each for each in counts if not is_for_others(each.state))


def visible_counts(counts: tuple[StateCount, ...]) -> VisibleCounts:
    """Return all counts that a store keeps for a kind, divided."""
    named = ((each, "" if each.state == VISIBLE else state_for_others(each.state)) for each in counts)
    visible = (StateCount(each.revision, state, each.entities) for each, state in named if state is not None)
    return VisibleCounts(counts_of_all(counts), tuple(visible))


def dwell_of_all(found: Iterable[DwellTimes]) -> tuple[DwellTimes, ...]:
    """Return the true dwell times of all that a store keeps for a kind."""
    return tuple(each for each in found if not is_for_others(each.state))


def dwell_for_others(found: Iterable[DwellTimes]) -> tuple[DwellTimes, ...]:
    """Return the dwell times for others of all that a store keeps for a kind."""
    named = ((state_for_others(each.state), each.stays) for each in found)
    return tuple(DwellTimes(state, stays) for state, stays in named if state is not None)


class Statistics(Protocol):
    """The statistics of a store."""

    async def count_states(self, kind: str) -> tuple[StateCount, ...]:
        """Return the population of every state, by revision."""

    async def visible_counts(self, kind: str) -> VisibleCounts:
        """Return the population of every state by revision, as it is and as others see it."""

    async def visible_dwell_times(self, kind: str, *, since_ms: int) -> tuple[DwellTimes, ...]:
        """Return dwell times as others see them, by state. Empty for a kind without hidden states."""

    async def dwell_times(self, kind: str, *, since_ms: int) -> tuple[DwellTimes, ...]:
        """Return the dwell times of stays that ended since a day, by state."""

    async def process_stays(self) -> tuple[ProcessStays, ...]:
        """Return the stays that ended by steps of this process since the store was opened; they only grow.

        A step may be missing for as long as its statistics wait to be written. Steps in transactions of callers may be
        missing.
        """

    async def minute_rates(self, kind: str, *, since_ms: int) -> tuple[MinuteRates, ...]:
        """Return the counts of each minute since a time, in order; minutes without any are left out."""

    async def count_overdue(self, kind: str, state: str, *, before_ms: int) -> int:
        """Return how many entities have been in a state since before a time; `COUNT_MAX` + 1 means more."""

    async def count_work(self, lane: Lane) -> int:
        """Return how much work of a lane waits for its time, for a worker or for the end of a lease, dead letters and
        what is queued behind other messages left out; `COUNT_MAX` + 1 means more.
        """

    async def last_seen(self, kind: str) -> tuple[LastSeen, ...]:
        """Return what was seen of a kind, sorted by type and name."""
