"""The JSON types of the API, and how they are built from values of the model.

Rule 1: times are milliseconds since 1970; the pages format them.
Rule 2: everything sensitive is masked here, and only here, for users without the right `read:sensitive`
(`model.visible`); where a chart covers hidden states, they get what `trust.visibility` makes of an entity.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from interlock.model.charts.chart import Chart
from interlock.model.event import SCXML_PROCESSOR, Event
from interlock.model.held import HOLD, RESUME
from interlock.model.journal.attempts import PastAttempt
from interlock.model.journal.entry import CREATE, Entry
from interlock.model.journal.work import BUS_WORK, CHILD_WORK
from interlock.model.snapshot import Snapshot
from interlock.model.visible import MASK, ChartMask, is_sensitive
from interlock.observe.acceptance import Acceptance, Refused
from interlock.observe.sagas import SagaView
from interlock.observe.work_status import retries_max, work_status
from interlock.ports.store import EntityRow
from interlock.ports.work import WorkRow
from interlock.trust.users import User
from interlock.trust.visibility import VisibleEntry

SINCE_ENTRIES_MAX = 64
"""Entries that are searched for the time of the last state change."""

JOURNAL_BYTES_MAX = 1_048_576
"""Bytes of the entries of one response: an entry may have a quarter of it, and the page requests a hundred."""


class TransitionView(Struct, frozen=True):
    """A transition as the diagram identifies it: its source state and its number among that state's transitions."""

    source: str
    ordinal: int


class AttemptView(Struct, frozen=True):
    """One attempt of an effect: when it started, how long it ran, its error unless it succeeded, and the next try."""

    number: int
    started_ms: int
    duration_ms: int
    code: str | None = None
    message: str = ""
    next_ms: int | None = None


class EntryView(Struct, frozen=True):
    """One entry of a journal. `reason_given`: by its sender. `platform`: fields of its event that the runtime set.

    `originator`: for whom it happened, if it has no principal. `attempts`: of the effect whose result it is.
    """

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
    reason_given: str | None = None
    trace: str | None = None
    data: Any = None
    effects: tuple[dict[str, Any], ...] = ()
    source: str | None = None
    platform: dict[str, Any] = {}
    originator: str | None = None
    attempts: tuple[AttemptView, ...] = ()


class WorkView(Struct, frozen=True):
    """One effect, timer or message: its status, its attempts and its next time."""

    entity: str
    lane: str
    version: int
    ordinal: int
    name: str
    status: str
    attempts: int
    failures: int
    retries: int
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
    """An entity that an invoke created."""

    entity: str
    invoke: str
    configuration: tuple[str, ...]
    ended: str | None = None


class EntityView(Struct, frozen=True):
    """An entity at a version; `latest` is its newest version.

    `damage`: why its journal cannot be read. `replay_distance`: how many entries must be replayed to compute what its
    last step changed; None if that is known. `work_more`: `work` is not complete. `file`: the file from which this
    process loaded the chart of the kind.
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
    transitions: tuple[TransitionView, ...] = ()
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
    replay_distance: int | None = None
    file: str | None = None


class RowsView(Struct, frozen=True):
    """A page of a list. `partial`: the scan limit was reached, and there may be more after the cursor."""

    rows: tuple[EntityRow, ...]
    now_ms: int
    after: str | None = None
    partial: bool = False


class Damage(Struct, frozen=True):
    """The first entry that does not follow from the one before."""

    version: int
    message: str


class JournalView(Struct, frozen=True):
    """Entries in order, fewer than requested if they are long.

    `archived` says where the entries are that were moved to an archive. No entries follow a `damage`.
    """

    entries: tuple[EntryView, ...]
    latest: int
    archived: str | None = None
    damage: Damage | None = None


def mask_for(chart: Chart, user: User) -> ChartMask | None:
    """Return the mask of a chart for a user; None if nothing is hidden from them."""
    return None if user.sees_sensitive or not is_sensitive(chart) else ChartMask(chart)


def masked_context(context: dict[str, Any], mask: ChartMask | None) -> dict[str, Any]:
    """Return the context with its sensitive fields masked."""
    return context if mask is None else mask.context(context)


def masked_acceptances(found: tuple[Acceptance, ...], mask: ChartMask | None) -> tuple[Acceptance, ...]:
    """Return acceptances without the values that guards read."""
    if mask is None:
        return found
    return tuple(
        replace(each, guards=tuple(Refused(one.state, one.guard, {}) for one in each.guards)) for each in found
    )


def may_see_hold_reasons(user: User) -> bool:
    """Whether a user sees why an entity or a kind is held."""
    return "operate" in user.rights


def entry_view(entry: Entry, mask: ChartMask | None, user: User, may_see: Callable[[str], bool]) -> EntryView:
    """Return an entry. `may_see` says whether the reader may see an entity; a hidden sender or parent is masked."""
    view = _entry_view(entry, mask)
    if entry.event.name in (HOLD, RESUME) and entry.event.type == "platform" and not may_see_hold_reasons(user):
        data = {**view.data, "reason": MASK} if isinstance(view.data, dict) and "reason" in view.data else view.data
        view = replace(view, data=data, reason_given=None if view.reason_given is None else MASK)
    sender = _sender(entry)
    if sender is None or may_see(sender):
        return view
    data = {**view.data, "parent": MASK} if isinstance(view.data, dict) and entry.event.name == CREATE else view.data
    return replace(
        view,
        key=MASK if sender in view.key else view.key,
        principal=MASK if view.principal == sender else view.principal,
        data=data,
        source=MASK if sender in (view.source or "") else view.source,
        platform={
            key: MASK if isinstance(value, str) and sender in value else value for key, value in view.platform.items()
        },
    )


def _sender(entry: Entry) -> str | None:
    """The entity that sent the event or invoked the created entity; None if the sender is not an entity."""
    event = entry.event
    if event.origin is not None and event.origintype == SCXML_PROCESSOR:
        return event.origin.removeprefix("#_scxml_")
    parent = event.data.get("parent") if event.name == CREATE and isinstance(event.data, dict) else None
    if isinstance(parent, dict):
        return str(parent.get("entity"))
    if entry.key.startswith("_sent/"):
        return entry.key.removeprefix("_sent/").rsplit("/", 2)[0]
    return None


def _entry_view(entry: Entry, mask: ChartMask | None) -> EntryView:
    event = entry.event
    principal = event.principal if isinstance(event.principal, dict) else {}
    data, effects = event.data, tuple(_effect(each) for each in entry.effects)
    name, key, source, platform = event.name, entry.key, event.source, platform_fields(event)
    if mask is not None:
        data = None if data is None else MASK
        effects = tuple({**each, "payload": MASK} for each in effects)
        source = None if source is None else mask.source(source)
        platform |= {"source": source} if source is not None else {}
        if event.origin is not None or event.sendid is not None:  # an entity sent it and may have computed its name
            name = mask.name(name)
            platform |= {"sendid": mask.name(event.sendid)} if event.sendid is not None else {}
        if key.startswith(f"_{event.name}:"):  # the chart's `dedupe` computed it from the payload
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
        _reason_given(entry, principal),
        entry.trace,
        data,
        effects,
        source,
        platform,
        None if entry.originator is None else entry.originator.id,
        tuple(_attempt_view(each, mask) for each in entry.attempts),
    )


def _attempt_view(attempt: PastAttempt, mask: ChartMask | None) -> AttemptView:
    """Return an attempt; its error may quote the input."""
    code, message = attempt.code, attempt.message
    if mask is not None and code is not None:
        code, message = MASK, ""
    return AttemptView(attempt.number, attempt.started_ms, attempt.duration_ms, code, message, attempt.next_ms)


def _reason_given(entry: Entry, principal: dict[str, Any]) -> str | None:
    """Return what the sender wrote about an event; earlier releases kept it with the principal."""
    reason = entry.reason_given or principal.get("reason")
    return None if reason is None else str(reason)


def visible_entry_view(entry: VisibleEntry) -> EntryView:
    """Return an entry that a reader sees through a lens."""
    return EntryView(
        entry.version,
        entry.time_ms,
        entry.event,
        entry.outcome,
        entry.before,
        entry.after,
        MASK if entry.key is None else entry.key,
        entry.revision,
        entry.reason,
        entry.principal,
        entry.reason_given,
        None,
        entry.data,
    )


_PLATFORM_FIELDS = ("type", "sendid", "origin", "origintype", "invokeid", "source", "last", "forwarded")


def platform_fields(event: Event) -> dict[str, Any]:
    """Return the fields of an event that the runtime sets, if they are not at their defaults."""
    plain = Event(event.name)
    return {each: getattr(event, each) for each in _PLATFORM_FIELDS if getattr(event, each) != getattr(plain, each)}


def _effect(effect: Any) -> dict[str, Any]:
    return {"type": effect.type, "ordinal": effect.ordinal, "key": effect.key, "payload": effect.payload}


def work_view(row: WorkRow, now_ms: int) -> WorkView:
    """Return a piece of work with its status."""
    return WorkView(
        row.entity,
        row.work.id.lane,
        row.work.id.version,
        row.work.id.ordinal,
        row.work.name,
        work_status(row, now_ms=now_ms).word,
        row.attempts,
        row.failures,
        retries_max(row),
        row.next_ms,
        row.work.due_ms,
        row.owner,
        row.error,
        row.dead_ms,
        row.cancelled,
    )


def masked_work(view: WorkView, mask: ChartMask | None) -> WorkView:
    """Return a piece of work without its error, which may quote the input, and without computed names."""
    if mask is None:
        return view
    name = view.name
    if view.lane == "outbox":
        name = mask.address(name)
    elif name not in (BUS_WORK, CHILD_WORK):
        name = mask.name(name)
    return replace(view, name=name, error=None if view.error is None else MASK)


def chart_file(chart: Chart) -> str | None:
    """Return the file of a chart, relative to the folder of the process; None for a chart that came from no file.

    Of a file elsewhere only the name is shown: the path is of no use to a person at another machine.
    """
    path = PurePath(chart.source)
    if chart.source.startswith("<") or not path.suffix:
        return None
    return path.name if path.is_absolute() or ".." in path.parts else path.as_posix()


def timers_view(snapshot: Snapshot, mask: ChartMask | None) -> tuple[TimerView, ...]:
    """Return the pending timers, soonest first."""

    def masked(text: str) -> str:
        return text if mask is None else mask.name(text)

    found = (TimerView(masked(each.name), masked(each.event), each.due_ms, each.state) for each in snapshot.timers)
    return tuple(sorted(found, key=lambda each: each.due_ms))


def transition_views(chart: Chart, transitions: tuple[int, ...]) -> tuple[TransitionView, ...]:
    """Return transitions by their source state and number there."""
    sources = [(chart.states[chart.transitions[each].source], each) for each in transitions]
    return tuple(TransitionView(state.id, state.transitions.index(each)) for state, each in sources)


def limit_bytes(views: list[EntryView], *, is_newest: bool) -> tuple[EntryView, ...]:
    """As many entries as fit into one response, at least one: the last of them, or the first."""
    found: list[EntryView] = []
    room = JOURNAL_BYTES_MAX
    for each in reversed(views) if is_newest else views:
        room -= len(msgspec.json.encode(each))
        if room < 0 and found:
            break
        found.append(each)
    return tuple(reversed(found)) if is_newest else tuple(found)
