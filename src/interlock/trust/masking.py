"""What of a chart is hidden from a reader, and the mask that replaces it.

Rule: what a chart calls sensitive is masked for every reader who may not see it: the fields by name, and everything
that may carry their values, such as payloads, effects, the values that guards read, and names that the chart computes.
A name that the chart contains as text is shown.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any

from interlock.model.chart import Chart
from interlock.model.chart_sites import written_names
from interlock.model.driver_events import TIMER_SOURCE

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
        """Return a name if the chart contains it as text or the kernel generated it, else the mask."""
        plain = _REPEATED_NAME.sub("", text)
        return text if plain in self._written or _GENERATED_NAME.fullmatch(plain) else MASK

    def address(self, text: str) -> str:
        """Return the target of a send with its entity masked unless the chart names it; a child is shown."""
        word, slash, target = text.partition("/")
        return f"{word}/{self.name(target)}" if word == "entity" and slash else text

    def source(self, text: str) -> str:
        """Return the source of an event with the name of its timer masked: `timer/<name>/<version>`."""
        if not text.startswith(TIMER_SOURCE):
            return text
        name, _, version = text.removeprefix(TIMER_SOURCE).rpartition("/")
        return f"{TIMER_SOURCE}{self.name(name)}/{version}"
