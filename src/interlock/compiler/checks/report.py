"""The report of all checks, and the table of the compiler's codes with their severities.

Rule 1: a code and its severity are in `CODES` and nowhere else; the reference page is tested against that table.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from interlock.compiler.resolve import NameResolver
from interlock.errors import Severity, SourceLocation
from interlock.model.charts.chart import Chart, Descriptor, State, Transition
from interlock.model.diagnostics import Diagnostics, suggestion
from interlock.model.document.document import Document, EventType
from interlock.model.event import RESERVED_HINT
from interlock.model.limits import SUGGESTIONS_MAX


class Code(NamedTuple):
    """The severity of a diagnostic in our own dialect and in charts imported from SCXML or XState.

    `can_allow`: an `allow` with a reason, on the state in question or an ancestor, silences it.
    """

    native: Severity
    imported: Severity
    can_allow: bool = False


ERROR = Code("error", "error")
"""The chart cannot run."""
RULE = Code("error", "warning")
"""A rule of our vocabulary; other dialects let such a chart load."""
STRICT_LINT = Code("error", "warning", can_allow=True)
LINT = Code("warning", "warning", can_allow=True)
DURABILITY_LINT = Code("warning", "info", can_allow=True)
"""Good practice for durable charts; not a mistake in a definition imported from another tool."""
HINT = Code("info", "info", can_allow=True)

CODES: dict[str, Code] = {
    "access.empty": ERROR,
    "actors.unknown": ERROR,
    "allow.reason": ERROR,
    "allow.unknown": ERROR,
    "always.loop": STRICT_LINT,
    "approvals.count": ERROR,
    "approvals.event": ERROR,
    "approvals.since": ERROR,
    "assign.refused": RULE,
    "assign.unknown_field": RULE,
    "chart.depth": ERROR,
    "chart.no_states": ERROR,
    "chart.root": ERROR,
    "chart.states": ERROR,
    "chart.too_many_states": DURABILITY_LINT,
    "chart.transitions": ERROR,
    "compatible.syntax": ERROR,
    "content.depth": ERROR,
    "context.default": RULE,
    "context.duplicate": RULE,
    "context.no_value": RULE,
    "context.required": RULE,
    "descriptor.hides_timer": LINT,
    "done.nested_parallel": LINT,
    "done.never": RULE,
    "duration.range": ERROR,
    "duration.syntax": ERROR,
    "effect.outside_entry": HINT,
    "error.unhandled": HINT,
    "event.dedupe": ERROR,
    "event.direction": RULE,
    "event.duplicate": ERROR,
    "event.name_length": ERROR,
    "event.no_roles": LINT,
    "event.undeclared": LINT,
    "event.unused": LINT,
    "events.swallowed": LINT,
    "expect.unhandled": LINT,
    "expect.unsent": LINT,
    "expression.unknown_field": LINT,
    "field.bounds": RULE,
    "field.enum": RULE,
    "field.format": RULE,
    "field.index": ERROR,
    "final.content": RULE,
    "final.region": ERROR,
    "guard.constant": LINT,
    "guard.unmarked": LINT,
    "history.content": RULE,
    "history.cycle": ERROR,
    "history.no_default": ERROR,
    "history.outside": ERROR,
    "index.count": ERROR,
    "initial.misplaced": RULE,
    "initial.outside": ERROR,
    "invoke.duplicate_id": RULE,
    "invoke.event_input": LINT,
    "invoke.no_error": DURABILITY_LINT,
    "invoke.no_src": RULE,
    "invoke.no_timeout": DURABILITY_LINT,
    "invoke.type": ERROR,
    "monotonic.order": ERROR,
    "monotonic.unproved": ERROR,
    "monotonic.violated": ERROR,
    "name.reserved": RULE,
    "parallel.conflict": LINT,
    "parallel.no_region": ERROR,
    "parallel.one_region": LINT,
    "payload.default": RULE,
    "payload.type": RULE,
    "permit.state": ERROR,
    "read.inline": LINT,
    "read.owner": ERROR,
    "personal.place": ERROR,
    "personal.read": ERROR,
    "personal.unsealed": ERROR,
    "removed.day": ERROR,
    "removed.exists": ERROR,
    "renamed.exists": ERROR,
    "renamed.unknown": ERROR,
    "retention.empty": ERROR,
    "retention.entries": ERROR,
    "roles.system": RULE,
    "roles.widened": RULE,
    "saga.compensated": ERROR,
    "saga.duplicate_step": ERROR,
    "saga.field": ERROR,
    "saga.input": LINT,
    "saga.left_midway": LINT,
    "saga.misplaced": ERROR,
    "saga.no_compensation": LINT,
    "saga.no_steps": ERROR,
    "script.untrusted": ERROR,
    "send.no_timer": RULE,
    "sensitive.cover": LINT,
    "sensitive.name": LINT,
    "sensitive.no_roles": LINT,
    "sensitive.roles": LINT,
    "sensitive.unanswered": LINT,
    "sensitive.unknown_field": ERROR,
    "state.catch_all_failure": LINT,
    "state.duplicate_id": ERROR,
    "state.duplicate_key": ERROR,
    "state.id_length": ERROR,
    "state.key": RULE,
    "state.no_initial": ERROR,
    "state.no_timeout": DURABILITY_LINT,
    "state.too_many_children": DURABILITY_LINT,
    "state.trap": DURABILITY_LINT,
    "state.unreachable": LINT,
    "state.verb_name": DURABILITY_LINT,
    "target.ambiguous": ERROR,
    "target.conflict": ERROR,
    "target.history": ERROR,
    "target.root": ERROR,
    "target.unknown": ERROR,
    "transition.overlap": HINT,
    "transition.reenter": RULE,
    "transition.targets": ERROR,
    "transition.shadowed": STRICT_LINT,
    "vocabulary.inert": LINT,
}
"""Every code that the compiler itself reports; those of expressions are in `expression/`."""

LINTS = tuple(code for code, each in CODES.items() if each.can_allow)
"""The codes that an `allow` can silence."""


class EventIndex:
    """Declared events by every prefix of their names, so that the events of a descriptor are found by one lookup."""

    def __init__(self, events: Iterable[EventType]) -> None:
        self.prefixes: dict[tuple[str, ...], list[EventType]] = {}
        self.names: dict[tuple[str, ...], list[EventType]] = {}
        for each in events:
            tokens = tuple(each.name.split("."))
            self.names.setdefault(tokens, []).append(each)
            for length in range(len(tokens) + 1):
                self.prefixes.setdefault(tokens[:length], []).append(each)

    def matching(self, descriptor: Descriptor) -> list[EventType]:
        """The declared events that a descriptor takes."""
        return (self.names if descriptor.exact else self.prefixes).get(descriptor.tokens, [])


class CheckReport:
    """The chart under test, its document, and the diagnostics so far.

    `chart` and `tree` contain the states of sagas; `document` is as the author wrote it.
    """

    def __init__(self, chart: Chart, document: Document, names: NameResolver, diagnostics: Diagnostics) -> None:
        self.chart = chart
        self.document = document
        self.names = names
        self.tree = names.tree
        self.diagnostics = diagnostics
        self.is_native = document.dialect == "interlock"
        self.suggestion_count = 0
        self.events = EventIndex(chart.events or ())

    def add(
        self,
        code: str,
        message: str,
        at: int | SourceLocation,
        hint: str | None = None,
        *,
        within: int | None = None,
        severity: Code | None = None,
    ) -> None:
        """Report a problem of a state or at a place, with the severity of the table.

        `within`: the state whose `allow` counts, if `at` is a place. `severity` replaces that of the table.
        """
        known = severity or CODES[code]
        state = at if isinstance(at, int) else within
        if known.can_allow and state is not None and self.allows(code, state):
            return
        location = self.tree.states[at].location if isinstance(at, int) else at
        level = known.native if self.is_native else known.imported
        self.diagnostics.add(level, code, message, location, hint)

    def add_reserved(self, what: str, name: str, location: SourceLocation) -> None:
        """Report a reserved name."""
        self.add("name.reserved", f'the {what} "{name}" has a reserved name', location, RESERVED_HINT)

    def suggestion(self, word: str, known: Iterable[str]) -> str | None:
        """`did you mean ...?`; None if no known word is similar, or after too many unknown words."""
        self.suggestion_count += 1
        return suggestion(word, known) if self.suggestion_count <= SUGGESTIONS_MAX else None

    def allows(self, code: str, state: int) -> bool:
        """Whether the state or an ancestor allows this lint."""
        around = (state, *self.tree.ancestors(state))
        return any(code == allowed for each in around for allowed, _ in self.tree.states[each].allow)

    def is_from_saga(self, state: int) -> bool:
        """Whether the state was generated from a saga."""
        return any(self.tree.states[each].saga is not None for each in self.tree.ancestors(state))

    def name(self, state: int | State) -> str:
        """The state as messages name it: its id in quotes, or `the root`."""
        index = state if isinstance(state, int) else state.index
        return "the root" if index == 0 else f'"{self.tree.ids[index]}"'


def describe_trigger(transition: Transition) -> str:
    """The trigger of a transition as messages name it."""
    return "always" if not transition.descriptors else f'"{transition.label}"'
