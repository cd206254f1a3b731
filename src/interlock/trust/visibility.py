"""What of an entity a reader may see: one lens for states, journals, receipts, lists, messages and charts (ADR 0138).

A reader is a mapping like a principal, `{"id": "ada", "roles": ["clerk"]}`, with the rights of the console in `rights`
if they have any. The program itself uses no lens and sees the truth.

Rule 1: secret is which entity is or was in a hidden state, not that the chart has one.
Rule 2: a reader is entitled by the right `read:sensitive`, or by a role that `sensitive.roles` names at every hidden
        state of the chart. All others see the cover, masked fields, and versions that count what they see.
Rule 3: where a chart covers its hidden states badly, or an entity has no cover, others see no entity at all: the answer
        is that of an unknown one.
Rule 4: an answer to others is made only from what they see. So it is the same, byte for byte, whether there was a
        hidden state or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from interlock.model.charts.chart import Chart
from interlock.model.journal.entry import CREATE, SYSTEM, UPDATED, Entry, Receipt, visible_version
from interlock.model.keys import OWN
from interlock.model.snapshot import Snapshot
from interlock.model.step import Outcome
from interlock.model.visible import MASK, ChartMask, VisibleInvoke, VisibleSnapshot, VisibleTimer, is_sensitive, project
from interlock.ports.store import ENDED_STATES, EntityQuery, EntityRow, listed_states

READ_SENSITIVE = "read:sensitive"
"""The right to see everything sensitive."""

ACCEPTED = "accepted"
"""The outcome that others get for every event of a chart with hidden states, unless it is refused in every state."""


class VisibleEntry(Struct, frozen=True, omit_defaults=True):
    """An entry as a reader sees it. `version` counts the entries that the reader sees; `data` may be the mask."""

    version: int
    time_ms: int
    event: str
    outcome: Outcome
    before: tuple[str, ...]
    after: tuple[str, ...]
    revision: str
    key: str | None = None
    reason: str | None = None
    principal: str | None = None
    reason_given: str | None = None
    data: Any = None


class VisibleReceipt(Struct, frozen=True, omit_defaults=True):
    """The result of `send` as a reader sees it.

    For a chart with hidden states the outcome is `accepted` unless the event is refused in every state, and there is
    nothing else: the event may be applied, deferred or without effect.
    """

    entity: str
    outcome: str
    key: str | None = None
    version: int | None = None
    reason: str | None = None
    explanation: str | None = None
    snapshot: VisibleSnapshot | None = None


class VisibleRow(Struct, frozen=True):
    """An entity in a list as a reader sees it, and its search keys."""

    row: EntityRow
    states: tuple[str, ...]
    tags: frozenset[str]

    @property
    def context(self) -> Mapping[str, Any]:
        """The context that the reader sees."""
        return self.row.context or {}

    def matches(self, query: EntityQuery) -> bool:
        """Whether the entity belongs to the answer to a query, apart from its conditions on fields."""
        if query.state is not None and query.state not in self.states:
            return False
        if query.tag is not None and (self.row.ended in ENDED_STATES or query.tag not in self.tags):
            return False
        if query.revision is not None and self.row.revision != query.revision:
            return False
        return query.entered_before_ms is None or self.row.entered_ms < query.entered_before_ms


def is_entitled(chart: Chart, reader: Mapping[str, Any]) -> bool:
    """Whether a reader sees everything of a chart."""
    if READ_SENSITIVE in _texts(reader.get("rights")):
        return True
    return chart.hidden is not None and not chart.hidden.readers.isdisjoint(_texts(reader.get("roles")))


def _texts(given: Any) -> frozenset[str]:
    names = given if isinstance(given, list | tuple) else ()
    return frozenset(each for each in names if isinstance(each, str))


class Lens:
    """What readers see of the entities of one chart, with the right to see everything or without."""

    def __init__(self, chart: Chart, *, entitled: bool) -> None:
        hidden = None if entitled else chart.hidden
        self.is_entitled = entitled
        self._chart = chart
        self.mask = ChartMask(chart) if not entitled and is_sensitive(chart) else None
        self._states = frozenset[str]() if hidden is None else hidden.states
        self.hides = hidden is not None
        self.is_closed = hidden is not None and not hidden.is_covered

    # States

    def shown(self, snapshot: Snapshot) -> Snapshot | None:
        """Return what a reader sees instead of a snapshot, for further questions: the cover, under its visible version.

        None if the reader sees no such entity. The version is that of the reader. Never show this value itself.
        """
        if not self.hides:
            return snapshot
        if self.is_closed:
            return None
        sight = snapshot.sight
        version = self.version_of(snapshot)
        if not self.is_covered(snapshot):
            return replace(snapshot, version=version, deferred=(), moved=0, sight=None)
        if sight is None or sight.cover is None or self.is_covered(sight.cover):
            return None
        return replace(sight.cover, version=version, deferred=(), moved=0)

    def snapshot(self, snapshot: Snapshot, *, shown: Snapshot | None = None) -> VisibleSnapshot | None:
        """Return an entity as the reader sees it; None if the reader sees no such entity.

        `shown` is what `shown` returns, with personal data opened.
        """
        shown = shown or self.shown(snapshot)
        if shown is None:
            return None
        if self.mask is not None:
            time_ms = snapshot.sight.time_ms if self.hides and snapshot.sight is not None else None
            return replace(project(self._chart, self.mask, shown), time_ms=time_ms)
        timers = (VisibleTimer(each.name, each.event, each.due_ms, each.state) for each in shown.timers)
        return VisibleSnapshot(
            shown.kind,
            shown.entity,
            shown.version,
            shown.revision,
            shown.configuration,
            self._chart.visible_context(shown.context),
            tuple(sorted(timers, key=lambda each: each.due_ms)),
            tuple(VisibleInvoke(each.id, each.state) for each in shown.invokes),
            shown.ended,
            shown.output,
        )

    def version_of(self, snapshot: Snapshot) -> int:
        """Return the version of an entity for the reader."""
        return snapshot.version - (snapshot.sight.unseen if self.hides and snapshot.sight is not None else 0)

    def is_covered(self, snapshot: Snapshot) -> bool:
        """Whether the reader sees a cover instead of an entity."""
        return not self._states.isdisjoint(snapshot.configuration)

    def first(self, latest: Snapshot) -> int:
        """Return the first version of a journal that may be shown, in the numbers of the journal."""
        if not self.hides:
            return 1
        return latest.version + 1 if self.is_closed or latest.sight is None else latest.sight.since

    def names(self, states: Iterable[str]) -> tuple[str, ...]:
        """Return the states that the reader may know."""
        return tuple(each for each in states if each not in self._states)

    def hides_transition(self, transition: int) -> bool:
        """Whether a transition enters or leaves a hidden state, so that the reader does not see it."""
        hidden = self._chart.hidden
        if not self.hides or hidden is None:
            return False
        source = self._chart.states[self._chart.transitions[transition].source].id
        return transition in hidden.entering or source in self._states

    # Lists

    def row(self, snapshot: Snapshot, stored: EntityRow, visible: VisibleSnapshot | None) -> VisibleRow | None:
        """Return an entity in a list as the reader sees it, with its context; None if the reader sees no such entity.

        Since when it is in its states, and when it changed, are times of entries that the reader sees.
        """
        sight = snapshot.sight
        if visible is None:
            return None
        entered_ms, changed_ms = stored.entered_ms, stored.changed_ms
        if self.hides:
            entered_ms = stored.created_ms if sight is None else sight.entered_ms
            changed_ms = stored.created_ms if sight is None else sight.time_ms
        by_id = {each.id: each.index for each in self._chart.states}
        around = {index for name in visible.configuration if name in by_id for index in self._chart.path(by_id[name])}
        states = tuple(self._chart.states[each] for each in sorted(around) if each > 0)
        row = EntityRow(
            visible.entity,
            visible.version,
            visible.revision,
            visible.configuration,
            stored.created_ms,
            entered_ms,
            changed_ms,
            visible.ended,
            visible.context,
        )
        names = listed_states(visible.ended, tuple(each.id for each in states))
        return VisibleRow(row, names, frozenset(tag for each in states for tag in each.tags))

    # Journals

    def sees(self, entry: Entry) -> bool:
        """Whether the reader sees an entry."""
        return not self.hides or (not self.is_closed and entry.shown != "nothing")

    def version(self, entry: Entry) -> int:
        """Return the number of an entry for the reader."""
        return visible_version(entry) if self.hides else entry.version

    def entry(self, entry: Entry, before: tuple[str, ...]) -> VisibleEntry | None:
        """Return an entry as the reader sees it; None if they do not.

        `before` is where the entry that they saw before it led; it is used where the entry starts in a hidden state.
        """
        if not self.sees(entry):
            return None
        version, time_ms, outcome = self.version(entry), entry.event.time_ms, entry.outcome
        if self.hides and entry.shown == "change":
            return VisibleEntry(
                version, time_ms, UPDATED, "applied", before, entry.after, entry.revision, principal=SYSTEM
            )
        event, mask = entry.event, self.mask
        principal = event.principal if isinstance(event.principal, dict) else {}
        name, data, key = event.name, event.data, entry.key
        if mask is not None:
            data = None if data is None else MASK
            if event.origin is not None or event.sendid is not None:  # an entity sent it and may have computed its name
                name = mask.name(name)
        return VisibleEntry(
            version,
            time_ms,
            "create" if event.name == CREATE else name,
            outcome,
            entry.before,
            entry.after,
            entry.revision,
            None if key.startswith(OWN) else key,
            entry.reason,
            None if principal.get("id") is None else str(principal["id"]),
            entry.reason_given,
            data,
        )

    def entries(self, entries: Iterable[Entry], before: tuple[str, ...] = ()) -> tuple[VisibleEntry, ...]:
        """Return consecutive entries as the reader sees them; `before` as for `entry`."""
        found = []
        for each in entries:
            visible = self.entry(each, before)
            if visible is not None:
                found.append(visible)
                before = visible.after
        return tuple(found)

    # Receipts

    def receipt(self, receipt: Receipt, key: str | None) -> VisibleReceipt:
        """Return a receipt as the reader sees it. `key` is the key that the caller gave."""
        if self.hides:
            return VisibleReceipt(receipt.entity, ACCEPTED, key)
        snapshot = None if receipt.snapshot is None else self.snapshot(receipt.snapshot)
        return VisibleReceipt(
            receipt.entity, receipt.outcome, key, receipt.version, receipt.reason, receipt.explanation, snapshot
        )

    def refusal(self, entity: str, *, outcome: str, reason: str, key: str | None) -> VisibleReceipt:
        """Return the receipt of an event that is refused in every state, without a word about this one."""
        return VisibleReceipt(entity, outcome, key, reason=reason)


def lens_for(chart: Chart, reader: Mapping[str, Any]) -> Lens:
    """Return the lens of a reader on a chart."""
    return Lens(chart, entitled=is_entitled(chart, reader))
