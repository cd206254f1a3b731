"""The events of a chart for entities that are in a state for too long: `then` of `expect`."""

from __future__ import annotations

from dataclasses import dataclass

from interlock.model.charts.chart import Chart
from interlock.model.duration import parse_duration
from interlock.model.limits import EXPECT_EVERY_MS_MAX, EXPECT_EVERY_MS_MIN


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedEvent:
    """The event of one state of a kind, and after how long it is sent."""

    kind: str
    state: str
    event: str
    within_ms: int

    @property
    def overdue_ms(self) -> int:
        """After how long in the state an entity is overdue."""
        return self.within_ms + 1

    @property
    def every_ms(self) -> int:
        """How often the state is looked at: far more often than entities come due, so that none is found late."""
        return min(max(self.within_ms // 10, EXPECT_EVERY_MS_MIN), EXPECT_EVERY_MS_MAX)


def events_of_chart(chart: Chart) -> tuple[ExpectedEvent, ...]:
    """Return the events that a chart has for overdue states."""
    found = []
    for state in chart.states:
        expect = state.expect
        within_ms = None if expect is None or expect.then == "alert" else parse_duration(expect.within)
        if expect is not None and within_ms is not None:
            found.append(ExpectedEvent(kind=chart.kind, state=state.id, event=expect.then, within_ms=within_ms))
    return tuple(found)
