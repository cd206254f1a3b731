"""One compilation under review: what every check reads, and how a finding gets its severity.

Rule 1: what breaks our vocabulary is an error in dialect `interlock`, and a warning where a dialect lets it load.
Rule 2: a lint is silenced by an `allow` with a reason, on the state it is about or on an ancestor of it.
Rule 3: everything about which lints exist and how bad each is lives in `LINTS`.
"""

from __future__ import annotations

from collections.abc import Iterable

from interlock.compiler.resolve import Names
from interlock.errors import NOWHERE, Place, Severity
from interlock.model.chart import Chart, Descriptor, State, Transition
from interlock.model.diagnostics import Findings, suggestion
from interlock.model.document.document import Document, EventType

LINTS: dict[str, Severity] = {
    "always.loop": "error",
    "chart.too_many_states": "warning",
    "descriptor.hides_timer": "warning",
    "done.nested_parallel": "warning",
    "effect.outside_entry": "info",
    "error.unhandled": "info",
    "event.no_roles": "warning",
    "event.undeclared": "warning",
    "event.unused": "warning",
    "events.swallowed": "warning",
    "expect.unsent": "warning",
    "expression.unknown_field": "warning",
    "guard.constant": "warning",
    "guard.unmarked": "warning",
    "invoke.event_input": "warning",
    "invoke.no_error": "warning",
    "invoke.no_timeout": "warning",
    "parallel.conflict": "warning",
    "parallel.one_region": "warning",
    "saga.input": "warning",
    "saga.left_midway": "warning",
    "saga.no_compensation": "warning",
    "sensitive.name": "warning",
    "sensitive.no_roles": "warning",
    "sensitive.roles": "warning",
    "state.catch_all_failure": "warning",
    "state.no_timeout": "warning",
    "state.too_many_children": "warning",
    "state.trap": "warning",
    "state.unreachable": "warning",
    "state.verb_name": "warning",
    "transition.overlap": "info",
    "transition.shadowed": "error",
}
"""Every finding that an `allow` can silence, and how bad it is in a chart of our own vocabulary."""

HABITS = frozenset(
    {
        "chart.too_many_states",
        "invoke.no_error",
        "invoke.no_timeout",
        "state.no_timeout",
        "state.too_many_children",
        "state.trap",
        "state.verb_name",
    }
)
"""Lints about habits of durable charts: worth knowing, and no more, in a definition imported from another tool."""


SLIPS_MAX = 25
"""Misspelt names of one chart for which a near word is looked up."""


class EventIndex:
    """Declared events under every prefix of their names, so that those a descriptor takes are found at once."""

    def __init__(self, events: Iterable[EventType]) -> None:
        self.prefixes: dict[tuple[str, ...], list[EventType]] = {}
        self.names: dict[tuple[str, ...], list[EventType]] = {}
        for each in events:
            tokens = tuple(each.name.split("."))
            self.names.setdefault(tokens, []).append(each)
            for length in range(len(tokens) + 1):
                self.prefixes.setdefault(tokens[:length], []).append(each)

    def taken(self, descriptor: Descriptor) -> list[EventType]:
        """The declared events that a descriptor takes."""
        return (self.names if descriptor.exact else self.prefixes).get(descriptor.tokens, [])


class Review:
    """A chart, the document it was written as, the tree it was built from, and the findings so far.

    `chart`, `tree` and their numbers are those after sagas became states; `document` is what the author wrote.
    """

    def __init__(self, chart: Chart, document: Document, names: Names, findings: Findings) -> None:
        self.chart = chart
        self.document = document
        self.names = names
        self.tree = names.tree
        self.findings = findings
        self.own = document.dialect == "interlock"
        self.slips = 0
        self.events = EventIndex(chart.events or ())

    def error(self, code: str, message: str, place: Place = NOWHERE, hint: str | None = None) -> None:
        """A finding that makes the chart unusable in every dialect."""
        self.findings.error(code, message, place, hint)

    def rule(self, code: str, message: str, place: Place = NOWHERE, hint: str | None = None) -> None:
        """A finding against our vocabulary: an error, but a warning where the dialect lets it load."""
        if self.own:
            self.findings.error(code, message, place, hint)
        else:
            self.findings.warning(code, message, place, hint)

    def lint(self, code: str, message: str, state: int, place: Place | None = None, hint: str | None = None) -> None:
        """A lint about a state, unless it or an ancestor allows it."""
        if self.allows(code, state):
            return
        severity = LINTS[code]
        if not self.own:
            severity = "info" if code in HABITS or severity == "info" else "warning"
        report = {"error": self.findings.error, "warning": self.findings.warning, "info": self.findings.info}[severity]
        report(code, message, self.tree.states[state].place if place is None else place, hint)

    def suggestion(self, word: str, known: Iterable[str]) -> str | None:
        """`did you mean ...?`, for as many slips as anybody reads: looking for near words is slow."""
        self.slips += 1
        return suggestion(word, known) if self.slips <= SLIPS_MAX else None

    def allows(self, code: str, state: int) -> bool:
        """Whether the state or an ancestor says that this lint is meant."""
        around = (state, *self.tree.ancestors(state))
        return any(code == allowed for each in around for allowed, _ in self.tree.states[each].allow)

    def is_generated(self, state: int) -> bool:
        """Whether the state was made from a saga."""
        return any(self.tree.states[each].saga is not None for each in self.tree.ancestors(state))

    def name(self, state: int | State) -> str:
        """The state as a message names it: its id in quotes, or `the root`."""
        index = state if isinstance(state, int) else state.index
        return "the root" if index == 0 else f'"{self.tree.ids[index]}"'


def trigger(transition: Transition) -> str:
    """What makes a transition be tried, as a message names it."""
    return "always" if not transition.descriptors else f'"{transition.label}"'
