"""The definition of a reconciler: a function that is called regularly for entities that stay in a state for too long.

Rule 1: it is level-based: it sees the current state, not what changed, and may see the same state again.
Rule 2: it changes nothing itself. It returns an event, which the chart accepts or refuses like any other.
Rule 3: with `desired` and `drift` it only returns what it observes; the difference is computed, and sent, for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import iscoroutinefunction
from typing import Any

from msgspec import Struct

from interlock.errors import UsageError
from interlock.model.charts.chart import Chart
from interlock.model.diagnostics import suggestion
from interlock.model.duration import parse_duration
from interlock.model.event import check_sendable
from interlock.model.limits import (
    KEY_BYTES_MAX,
    RECONCILE_RATE,
    RECONCILE_RUNNING_MAX,
    RECONCILE_TIMEOUT_MS,
    RUNNING_MAX,
)

NAME_BYTES_MAX = KEY_BYTES_MAX // 2
"""Bytes of a reconciler's name: it is part of the keys of its events."""


class ReconcileRequest(Struct, frozen=True):
    """An entity as a reconciler sees it.

    `entered_ms` is when it entered its configuration. `desired` is the value of the context field that the reconciler
    names as its desired state.
    """

    entity: str
    version: int
    configuration: tuple[str, ...]
    context: dict[str, Any]
    entered_ms: int
    now_ms: int
    desired: Any = None


class ReconcileResult(Struct, frozen=True):
    """The event that a reconciler sends to an entity."""

    event: str
    payload: Any = None


Reconcile = Callable[[ReconcileRequest], Awaitable[Any]]
"""A reconciler's function: returns a `ReconcileResult` or None; with `desired`, what it observes."""


class Reconciler(Struct, frozen=True, kw_only=True):
    """A function, and the entities it is called for: of a kind, in a state, for longer than a time."""

    name: str
    kind: str
    state: str
    function: Reconcile
    older_ms: int = 0
    every_ms: int = 60_000
    rate: float = RECONCILE_RATE
    running_max: int = RECONCILE_RUNNING_MAX
    timeout_ms: int = RECONCILE_TIMEOUT_MS
    desired: tuple[str, ...] | None = None
    drift: str = ""


class ReconcilerOptions(Struct, frozen=True, kw_only=True):
    """A reconciler as its author writes it, before it is checked."""

    name: Any
    state: Any
    older: Any
    every: Any
    rate: Any = RECONCILE_RATE
    running: Any = RECONCILE_RUNNING_MAX
    timeout: Any = "30s"
    desired: Any = None
    drift: Any = None


def build_reconciler(chart: Chart, options: ReconcilerOptions, function: Any) -> Reconciler:
    """Return the reconciler of a chart. Raises UsageError for invalid options."""
    if not isinstance(options.name, str) or not 0 < len(options.name.encode(errors="replace")) <= NAME_BYTES_MAX:
        raise _invalid("the name of a reconciler must be a short text", 'write @chart.reconciler("stuck", ...)')
    states = [each.id for each in chart.states if each.id and each.type != "history"]
    if options.state not in states:
        hint = suggestion(str(options.state), states) or f"its states are {', '.join(states[:10])}"
        raise _invalid(f"the reconciler `{options.name}` names a state that `{chart.kind}` does not have", hint)
    if not iscoroutinefunction(function):
        hint = "write `async def`, and `await asyncio.to_thread(...)` where it has to wait"
        raise _invalid(f"the reconciler `{options.name}` must be a coroutine function", hint)
    rate, running = options.rate, options.running
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate <= 1_000_000:
        raise _invalid(f"`rate` of `{options.name}` must be a number of calls per second", "write rate=50")
    if isinstance(running, bool) or not isinstance(running, int) or not 0 < running <= RUNNING_MAX:
        raise _invalid(f"`running` of `{options.name}` must be an integer up to {RUNNING_MAX}", "write running=16")
    return Reconciler(
        name=options.name,
        kind=chart.kind,
        state=options.state,
        function=function,
        older_ms=_duration_ms(options, "older", least=0),
        every_ms=_duration_ms(options, "every"),
        rate=float(rate),
        running_max=running,
        timeout_ms=_duration_ms(options, "timeout"),
        desired=_desired(chart, options),
        drift=options.drift or "",
    )


def _duration_ms(options: ReconcilerOptions, what: str, *, least: int = 1) -> int:
    given = getattr(options, what)
    found = parse_duration(given) if isinstance(given, str) else None
    if found is None or found < least:
        raise _invalid(f"`{what}` of `{options.name}` is not a duration: {given!r:.60}", f'write {what}="5m"')
    return found


def _desired(chart: Chart, options: ReconcilerOptions) -> tuple[str, ...] | None:
    if (options.desired is None) != (options.drift is None):
        hint = 'write desired="replicas", drift="replicas.drifted"'
        raise _invalid(f"`{options.name}` has only one of `desired` and `drift`; it needs both", hint)
    if options.desired is None:
        return None
    path = tuple(str(options.desired).split("."))
    fields = sorted({field.name for state in chart.states for field in state.context})
    if not isinstance(options.drift, str) or not options.drift or path[0] not in fields:
        hint = suggestion(path[0], fields) or f"its fields are {', '.join(fields[:10])}"
        raise _invalid(f"`desired` of `{options.name}` must be a field of the context, and `drift` an event", hint)
    check_sendable(options.drift)
    return path


def _invalid(message: str, hint: str) -> UsageError:
    return UsageError(message, code="reconciler.malformed", hint=hint)
