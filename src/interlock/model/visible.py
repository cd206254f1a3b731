"""What of an entity is shown to a reader who may not see everything that its chart calls sensitive.

Rule 1: the values of sensitive fields are masked, and everything that may carry them, such as payloads, effects, the
values that guards read, and names that the chart computes. A name that the chart contains as text is shown.
Rule 2: a snapshot is shown without anything that is made from the version, such as the keys of effects, if the chart
hides states: the versions count the entries that the reader does not see.
Rule 3: what a reader sees has its own type. It cannot be confused with the real state.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any

from msgspec import Struct

from interlock.model.charts.chart import Chart
from interlock.model.charts.sites import written_names
from interlock.model.driver_events import TIMER_SOURCE
from interlock.model.snapshot import Ended, Snapshot

MASK = "•••"

_GENERATED_NAME = re.compile(r"send\.[0-9]+\.[0-9]+")
"""The name that the kernel gives to a timer without one."""

_REPEATED_NAME = re.compile(r"(~[0-9]+\.[0-9]+)+$")
"""The suffix that the kernel adds to the name of a timer if another timer has that name."""


def is_sensitive(chart: Chart) -> bool:
    """Whether a chart declares anything sensitive."""
    return any(each.sensitive is not None for each in chart.states)


class ChartMask:
    """Masks the sensitive data of one chart."""

    def __init__(self, chart: Chart) -> None:
        self._chart = chart
        sensitive = (each.sensitive for each in chart.states if each.sensitive is not None)
        self._fields = frozenset(name for each in sensitive for name in each.fields)
        self._numbers_names = chart.hidden is None

    @property
    def fields(self) -> frozenset[str]:
        """The names of the masked fields; of a nested field the name of the outermost one."""
        return frozenset(name.partition(".")[0] for name in self._fields)

    @cached_property
    def _written(self) -> frozenset[str]:
        return written_names(self._chart)

    def context(self, context: dict[str, Any]) -> dict[str, Any]:
        """Return a context with its sensitive fields masked."""
        return {key: MASK if key in self._fields else value for key, value in context.items()}

    def name(self, text: str) -> str:
        """Return a name if the chart contains it as text or the kernel generated it, else the mask.

        A generated name contains a version, which is masked where the chart hides states.
        """
        plain = _REPEATED_NAME.sub("", text)
        if plain in self._written:
            return text if self._numbers_names else plain
        return text if self._numbers_names and _GENERATED_NAME.fullmatch(plain) else MASK

    def address(self, text: str) -> str:
        """Return the target of a send with its entity masked unless the chart names it; a child is shown."""
        word, slash, target = text.partition("/")
        return f"{word}/{self.name(target)}" if word == "entity" and slash else text

    def source(self, text: str) -> str:
        """Return the source of an event with the name of its timer masked: `timer/<name>/<version>`."""
        if not text.startswith(TIMER_SOURCE):
            return text
        name, _, version = text.removeprefix(TIMER_SOURCE).rpartition("/")
        if not self._numbers_names:
            return f"{TIMER_SOURCE}{self.name(name)}"
        return f"{TIMER_SOURCE}{self.name(name)}/{version}"


class VisibleTimer(Struct, frozen=True, gc=False, omit_defaults=True):
    """A pending timer, without what its version would show."""

    name: str
    event: str
    due_ms: int
    state: str | None = None


class VisibleInvoke(Struct, frozen=True, gc=False, omit_defaults=True):
    """An active invoke, without its key."""

    id: str
    state: str


class VisibleSnapshot(Struct, frozen=True, omit_defaults=True):
    """An entity as a reader sees it. `version` counts the entries that the reader sees.

    `masked`: something of it may be masked or left out. `time_ms` is the time of the last entry that the reader sees.
    """

    kind: str
    entity: str
    version: int
    revision: str
    configuration: tuple[str, ...]
    context: dict[str, Any]
    timers: tuple[VisibleTimer, ...] = ()
    invokes: tuple[VisibleInvoke, ...] = ()
    ended: Ended | None = None
    output: Any = None
    masked: bool = False
    time_ms: int | None = None


def project(chart: Chart, mask: ChartMask, snapshot: Snapshot) -> VisibleSnapshot:
    """Return a snapshot as a reader without rights sees it, by its own version: the caller knows the visible one."""
    timers = (
        VisibleTimer(mask.name(each.name), mask.name(each.event), each.due_ms, each.state) for each in snapshot.timers
    )
    return VisibleSnapshot(
        snapshot.kind,
        snapshot.entity,
        snapshot.version,
        snapshot.revision,
        snapshot.configuration,
        mask.context(chart.visible_context(snapshot.context)),
        tuple(sorted(timers, key=lambda each: (each.due_ms, each.name, each.event))),
        tuple(VisibleInvoke(each.id, each.state) for each in snapshot.invokes),
        snapshot.ended,
        masked=True,
    )
