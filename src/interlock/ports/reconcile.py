"""What a reconciler is: a function that is asked, over and over, about entities that rest in a state for too long.

Rule 1: it goes by levels, not by events: what it is told is how things stand, and it may be told the same again.
Rule 2: it changes nothing by itself; it answers with an event, which the chart takes or refuses as any other.
Rule 3: with `desired` and `drift` it only observes: the difference is found, and told, for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import iscoroutinefunction
from typing import Any

from msgspec import Struct

from interlock.errors import UsageError
from interlock.model.chart import Chart
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
"""Bytes of a reconciler's name: it is part of the keys of its answers."""


class ReconcileRequest(Struct, frozen=True):
    """An entity as a reconciler finds it.

    `entered_ms` is since when it is in its configuration. `desired` is what the context asks for, where the reconciler
    names a field of it.
    """

    entity: str
    version: int
    configuration: tuple[str, ...]
    context: dict[str, Any]
    entered_ms: int
    now_ms: int
    desired: Any = None


class ReconcileResult(Struct, frozen=True):
    """The event that a reconciler wants an entity to have."""

    event: str
    payload: Any = None


Reconcile = Callable[[ReconcileRequest], Awaitable[Any]]
"""A reconciler's function: gives an `ReconcileResult` or None; with `desired`, what it observes."""


class Reconciler(Struct, frozen=True, kw_only=True):
    """A function, and which entities it is asked about: of a kind, in a state, and that longer than a time."""

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
    """A reconciler as its author writes it, before anything is checked."""

    name: Any
    state: Any
    older: Any
    every: Any
    rate: Any = RECONCILE_RATE
    running: Any = RECONCILE_RUNNING_MAX
    timeout: Any = "30s"
    desired: Any = None
    drift: Any = None


def reconciler_of(chart: Chart, wish: ReconcilerOptions, function: Any) -> Reconciler:
    """The reconciler of a chart that its author wishes for. Raises UsageError when it cannot be."""
    if not isinstance(wish.name, str) or not 0 < len(wish.name.encode(errors="replace")) <= NAME_BYTES_MAX:
        raise _refused("the name of a reconciler is a short text", 'write @chart.reconciler("stuck", ...)')
    states = [each.id for each in chart.states if each.id and each.type != "history"]
    if wish.state not in states:
        hint = suggestion(str(wish.state), states) or f"its states are {', '.join(states[:10])}"
        raise _refused(f"the reconciler `{wish.name}` looks at a state that `{chart.kind}` does not have", hint)
    if not iscoroutinefunction(function):
        hint = "write `async def`, and `await asyncio.to_thread(...)` where it has to wait"
        raise _refused(f"the reconciler `{wish.name}` is no coroutine function", hint)
    rate, running = wish.rate, wish.running
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate <= 1_000_000:
        raise _refused(f"the rate of `{wish.name}` is no number of calls per second", "write rate=50")
    if isinstance(running, bool) or not isinstance(running, int) or not 0 < running <= RUNNING_MAX:
        raise _refused(f"`running` of `{wish.name}` is no number up to {RUNNING_MAX}", "write running=16")
    return Reconciler(
        name=wish.name,
        kind=chart.kind,
        state=wish.state,
        function=function,
        older_ms=_duration_ms(wish, "older", least=0),
        every_ms=_duration_ms(wish, "every"),
        rate=float(rate),
        running_max=running,
        timeout_ms=_duration_ms(wish, "timeout"),
        desired=_desired(chart, wish),
        drift=wish.drift or "",
    )


def _duration_ms(wish: ReconcilerOptions, what: str, *, least: int = 1) -> int:
    given = getattr(wish, what)
    found = parse_duration(given) if isinstance(given, str) else None
    if found is None or found < least:
        raise _refused(f"`{what}` of `{wish.name}` is no duration: {given!r:.60}", f'write {what}="5m"')
    return found


def _desired(chart: Chart, wish: ReconcilerOptions) -> tuple[str, ...] | None:
    if (wish.desired is None) != (wish.drift is None):
        hint = 'write desired="replicas", drift="replicas.drifted"'
        raise _refused(f"`{wish.name}` has one of `desired` and `drift`, and needs both", hint)
    if wish.desired is None:
        return None
    path = tuple(str(wish.desired).split("."))
    fields = sorted({field.name for state in chart.states for field in state.context})
    if not isinstance(wish.drift, str) or not wish.drift or path[0] not in fields:
        hint = suggestion(path[0], fields) or f"its fields are {', '.join(fields[:10])}"
        raise _refused(f"`desired` of `{wish.name}` is no field of the context, or `drift` is no event", hint)
    check_sendable(wish.drift)
    return path


def _refused(message: str, hint: str) -> UsageError:
    return UsageError(message, code="reconciler.malformed", hint=hint)
