"""What the writer of a compiled step knows at one point of the source."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from interlock.kernel.plan import Configuration
from interlock.model.charts.chart import Chart, State
from interlock.model.document.field import UNSET, Field

Variant = Literal["step", "named", "plain", "counted"]
"""The function to write: three variants of the straight form, and the counted form."""

Cause = Literal["sender", "timer", "invoke"]
"""Where the event comes from: a sender, the timer of an `after`, or an invoke that has ended."""


class NotCompiled(Exception):
    """The step stays on the general path. The text says why."""


class NeverTaken(NotCompiled):
    """No transition takes the event, whatever the context is."""


class NotStraight(Exception):
    """The step has no straight form."""


@dataclass(frozen=True, slots=True)
class Known:
    """A timer or an invocation of the straight form: its source, its state, and its event or id.

    `position` is that of an invoke in its state. `new`: this step has made it.
    """

    source: str
    state: str
    name: str
    position: int = 0
    new: bool = False


@dataclass(frozen=True, slots=True)
class Queued:
    """An internal event: its name, the source of its payload, and its other fields."""

    name: str
    data: str
    type: Literal["internal", "platform"]
    sendid: str | None = None


@dataclass(slots=True)
class Branch:
    """Facts at one point of the source. Every branch has its own."""

    configuration: Configuration
    timers: list[Known]
    invokes: list[Known]
    event: Queued | None = None
    """The event that expressions read; None: the event of the step."""
    event_is_made: bool = False
    entity_is_made: bool = False
    owns_context: bool = False
    owned: dict[tuple[str, ...], str] = field(default_factory=dict)
    """The mappings in the context that this step has made and that nothing else refers to: their local names."""
    active: frozenset[str] = frozenset()
    active_in_source: frozenset[str] | None = None
    effects: list[str] = field(default_factory=list)
    changes_timers: bool = False
    changes_invokes: bool = False
    to_invoke: dict[int, State] = field(default_factory=dict)
    queue: list[Queued] = field(default_factory=list)
    chosen: tuple[int, ...] = ()
    records: dict[str, tuple[str, ...]] = field(default_factory=dict)
    handled: bool = False
    writes: int = 0
    references: int = 0
    measured: list[str] = field(default_factory=list)
    microsteps: int = 0
    is_eventless: bool = False
    ended: bool = False
    output: str = "None"

    def copy(self) -> Branch:
        """Return a copy for a branch."""
        return replace(
            self,
            timers=self.timers.copy(),
            invokes=self.invokes.copy(),
            owned=self.owned.copy(),
            effects=self.effects.copy(),
            to_invoke=self.to_invoke.copy(),
            queue=self.queue.copy(),
            records=self.records.copy(),
            measured=self.measured.copy(),
        )


def known_timers(chart: Chart, configuration: Configuration) -> list[Known]:
    """Return the timers that a snapshot has if each active state was entered and none of its timers has fired."""
    afters = [
        (chart.states[index].id, after.event)
        for index in sorted(configuration.active)
        for after in chart.states[index].after
    ]
    return [Known(f"t{number}", state, event) for number, (state, event) in enumerate(afters)]


def known_invokes(configuration: Configuration) -> list[Known]:
    """Return the invocations that a snapshot has if none of the active states' invokes has ended."""
    found = [
        (state.id, invoke.id or "", position)
        for state in configuration.invoking
        for position, invoke in enumerate(state.invokes)
    ]
    return [Known(f"i{number}", *each) for number, each in enumerate(found)]


def invokeid_of(name: str) -> str:
    """Return the id of the invoke that an event name is the result of."""
    return name.split(".", 2)[2]


def has_defaults(payload: tuple[Field, ...]) -> bool:
    """Return whether a declared payload has defaults, with which an event must be completed."""
    return any(each.default is not UNSET for each in payload)
