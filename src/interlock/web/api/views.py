"""What the interface answers with: every value that leaves it as JSON, and how it is made from ours.

Rule 1: times are milliseconds since 1970, as everywhere; pages make words of them.
Rule 2: what a chart calls sensitive is masked here, and only here, for whoever has no right to see it: the fields by
name, and with them everything that may carry their values: payloads, effects, what guards read, and names that the
chart computes: of timers, sends, targets and sources. A name that the chart writes as text is shown.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from interlock.compiler.checks.sites import written_names
from interlock.model.chart import Chart
from interlock.model.driver_events import TIMER_SOURCE
from interlock.model.event import SCXML_PROCESSOR, Event
from interlock.model.journal.entry import CREATE, Entry
from interlock.model.journal.work import BUS_WORK, CHILD_WORK
from interlock.model.snapshot import Snapshot
from interlock.observe.acceptance import Acceptance, Refused
from interlock.observe.sagas import SagaView
from interlock.observe.work_status import work_status
from interlock.ports.store import EntityRow
from interlock.ports.work import WorkRow
from interlock.web.auth import User

MASK = "•••"


class Passed(Struct, frozen=True):
    """A transition as the diagram knows it: the id of its source, and its number among that state's."""

    source: str
    ordinal: int


class EntryView(Struct, frozen=True):
    """One entry of a journal. `own`: what else its event holds, when the driver or another entity brought it."""

    version: int
    time_ms: int
    event: str
    outcome: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    key: str
    revision: str
    reason: str | None = None
    principal: str | None = None
    said: str | None = None
    trace: str | None = None
    data: Any = None
    effects: tuple[dict[str, Any], ...] = ()
    source: str | None = None
    own: dict[str, Any] = {}


class WorkView(Struct, frozen=True):
    """One piece of work: what, whose, how often it was tried, when it is next."""

    entity: str
    lane: str
    version: int
    ordinal: int
    name: str
    status: str
    attempts: int
    failures: int
    retries: int | None = None
    next_ms: int | None = None
    due_ms: int | None = None
    owner: str | None = None
    error: Any = None
    dead_ms: int | None = None
    cancelled: bool = False


class TimerView(Struct, frozen=True):
    """A pending timer."""

    name: str
    event: str
    due_ms: int
    state: str | None = None


class ChildView(Struct, frozen=True):
    """An entity that an invoke began."""

    entity: str
    invoke: str
    configuration: tuple[str, ...]
    ended: str | None = None


class EntityView(Struct, frozen=True):
    """An entity at a version: `latest` is the one it has now. `damage`: why its journal cannot be read. `far`: how many
    entries would have to be replayed to tell what its last step changed. `work_more`: there is more than is listed.
    """

    entity: str
    kind: str
    id: str
    version: int
    latest: int
    revision: str
    label: str | None
    configuration: tuple[str, ...]
    active: tuple[str, ...]
    context: dict[str, Any]
    context_before: dict[str, Any] | None
    since_ms: int | None
    time_ms: int
    now_ms: int
    entry: EntryView | None
    took: tuple[Passed, ...] = ()
    timers: tuple[TimerView, ...] = ()
    invokes: tuple[dict[str, Any], ...] = ()
    children: tuple[ChildView, ...] = ()
    work: tuple[WorkView, ...] = ()
    work_more: bool = False
    saga: tuple[SagaView, ...] = ()
    accepted: tuple[Acceptance, ...] = ()
    ended: str | None = None
    output: Any = None
    parent: str | None = None
    p95_ms: int | None = None
    masked: bool = False
    damage: str | None = None
    far: int | None = None


class RowView(Struct, frozen=True):
    """One entity in a list. `entered_ms`: since when it is in the state that was asked for, else where it is."""

    entity: str
    version: int
    revision: str
    configuration: tuple[str, ...]
    created_ms: int
    entered_ms: int
    changed_ms: int
    ended: str | None = None


class RowsView(Struct, frozen=True):
    """A page of a list. `partial`: the walk ended at its bound, there may be more behind the cursor."""

    rows: tuple[RowView, ...]
    now_ms: int
    after: str | None = None
    partial: bool = False


def row_view(row: EntityRow) -> RowView:
    """A row of a list."""
    return RowView(
        row.entity,
        row.version,
        row.revision,
        row.configuration,
        row.created_ms,
        row.entered_ms,
        row.changed_ms,
        row.ended,
    )


class Hidden:
    """What of a chart is hidden from a person: fields of the context, and every name that the chart computes."""

    def __init__(self, chart: Chart) -> None:
        self._chart = chart
        found = (each.sensitive for each in chart.states if each.sensitive is not None)
        self.fields = frozenset(name for each in found for name in each.fields)

    @cached_property
    def _written(self) -> frozenset[str]:
        return written_names(self._chart)

    def name(self, text: str) -> str:
        """A name as it may be shown: itself when the chart writes it or the kernel made it up, else the mask."""
        plain = _REPEATED.sub("", text)
        return text if plain in self._written or _MADE_UP.fullmatch(plain) else MASK

    def address(self, text: str) -> str:
        """Where a send goes, as it may be shown: the entity is a name, a child is found by its place."""
        word, slash, target = text.partition("/")
        return f"{word}/{self.name(target)}" if word == "entity" and slash else text

    def source(self, text: str) -> str:
        """The source of an event: `timer/<name>/<version>` has the name of a timer in it."""
        if not text.startswith(TIMER_SOURCE):
            return text
        name, _, version = text.removeprefix(TIMER_SOURCE).rpartition("/")
        return f"{TIMER_SOURCE}{self.name(name)}/{version}"


_MADE_UP = re.compile(r"send\.[0-9]+\.[0-9]+")
"""The name that the kernel gives a timer whose author gave none."""

_REPEATED = re.compile(r"(~[0-9]+\.[0-9]+)+$")
"""What the kernel adds to the name of a timer when another timer has that name."""


def masks(chart: Chart, person: User) -> Hidden | None:
    """What is hidden from a person; None when nothing is."""
    if "read:sensitive" in person.rights or all(each.sensitive is None for each in chart.states):
        return None
    return Hidden(chart)


def masked_context(context: dict[str, Any], hidden: Hidden | None) -> dict[str, Any]:
    """The context with hidden fields masked."""
    if hidden is None:
        return context
    return {key: MASK if key in hidden.fields else value for key, value in context.items()}


def masked_acceptances(found: tuple[Acceptance, ...], hidden: Hidden | None) -> tuple[Acceptance, ...]:
    """Acceptances without what guards read."""
    if hidden is None:
        return found
    blind = (tuple(Refused(one.state, one.guard, {}) for one in each.guards) for each in found)
    return tuple(replace(each, guards=guards) for each, guards in zip(found, blind, strict=True))


def entry_view(entry: Entry, hidden: Hidden | None, sees: Callable[[str], bool]) -> EntryView:
    """An entry; who sent it by id, and the reason they gave. `sees`: whether its reader may see the kind of an entity;
    a sender or parent that they may not see is not named.
    """
    view = _entry_view(entry, hidden)
    sender = _sender(entry)
    if sender is None or sees(sender):
        return view
    data = {**view.data, "parent": MASK} if isinstance(view.data, dict) and entry.event.name == CREATE else view.data
    return replace(
        view,
        key=MASK if sender in view.key else view.key,
        principal=MASK if view.principal == sender else view.principal,
        data=data,
        source=MASK if sender in (view.source or "") else view.source,
        own={key: MASK if isinstance(value, str) and sender in value else value for key, value in view.own.items()},
    )


def _sender(entry: Entry) -> str | None:
    """The entity that sent an event, or invoked the one that it created; None for anybody else."""
    event = entry.event
    if event.origin is not None and event.origintype == SCXML_PROCESSOR:
        return event.origin.removeprefix("#_scxml_")
    parent = event.data.get("parent") if event.name == CREATE and isinstance(event.data, dict) else None
    if isinstance(parent, dict):
        return str(parent.get("entity"))
    if entry.key.startswith("_sent/"):
        return entry.key.removeprefix("_sent/").rsplit("/", 2)[0]
    return None


def _entry_view(entry: Entry, hidden: Hidden | None) -> EntryView:
    event = entry.event
    principal = event.principal if isinstance(event.principal, dict) else {}
    data, effects = event.data, tuple(_effect(each) for each in entry.effects)
    name, key, source, fields = event.name, entry.key, event.source, own_fields(event)
    if hidden is not None:
        data = None if data is None else MASK
        effects = tuple({**each, "payload": MASK} for each in effects)
        source = None if source is None else hidden.source(source)
        fields |= {"source": source} if source is not None else {}
        if event.origin is not None or event.sendid is not None:  # an entity sent it, and may have computed its name
            name = hidden.name(name)
            fields |= {"sendid": hidden.name(event.sendid)} if event.sendid is not None else {}
        if key.startswith(f"_{event.name}:"):  # the chart's `dedupe` made it of the payload
            key = MASK
    return EntryView(
        entry.version,
        event.time_ms,
        "create" if event.name == CREATE else name,
        entry.outcome,
        entry.before,
        entry.after,
        key,
        entry.revision,
        entry.reason,
        None if principal.get("id") is None else str(principal["id"]),
        None if principal.get("reason") is None else str(principal["reason"]),
        entry.trace,
        data,
        effects,
        source,
        fields,
    )


def own_fields(event: Event) -> dict[str, Any]:
    """The fields of an event beside its name, payload, time and sender, as far as they are set."""
    plain = Event(event.name)
    names = ("type", "sendid", "origin", "origintype", "invokeid", "source", "last", "forwarded")
    return {each: getattr(event, each) for each in names if getattr(event, each) != getattr(plain, each)}


def _effect(effect: Any) -> dict[str, Any]:
    return {"type": effect.type, "ordinal": effect.ordinal, "key": effect.key, "payload": effect.payload}


def work_view(row: WorkRow, now_ms: int) -> WorkView:
    """A piece of work with its status."""
    body = row.work.body if isinstance(row.work.body, dict) else {}
    retry = body.get("retry")
    tries = retry.get("max") if isinstance(retry, dict) else None
    return WorkView(
        row.entity,
        row.work.place.lane,
        row.work.place.version,
        row.work.place.ordinal,
        row.work.name,
        work_status(row, now_ms=now_ms).word,
        row.attempts,
        row.failures,
        tries if isinstance(tries, int) else None,
        row.next_ms,
        row.work.due_ms,
        row.owner,
        row.error,
        row.dead_ms,
        row.cancelled,
    )


def masked_work(view: WorkView, hidden: Hidden | None) -> WorkView:
    """A piece of work without its error, and without names that the chart computes.

    Errors of handlers may quote what they were given.
    """
    if hidden is None:
        return view
    name = view.name
    if view.lane == "outbox":
        name = hidden.address(name)
    elif name not in (BUS_WORK, CHILD_WORK):
        name = hidden.name(name)
    return replace(view, name=name, error=None if view.error is None else MASK)


def timers_view(snapshot: Snapshot, hidden: Hidden | None) -> tuple[TimerView, ...]:
    """The pending timers, soonest first."""

    def shown(text: str) -> str:
        return text if hidden is None else hidden.name(text)

    found = (TimerView(shown(each.name), shown(each.event), each.due_ms, each.state) for each in snapshot.timers)
    return tuple(sorted(found, key=lambda each: each.due_ms))


def passed_view(chart: Chart, transitions: tuple[int, ...]) -> tuple[Passed, ...]:
    """Transitions by their source and number there."""
    sources = [(chart.states[chart.transitions[each].source], each) for each in transitions]
    return tuple(Passed(state.id, state.transitions.index(each)) for state, each in sources)
