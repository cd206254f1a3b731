"""Checks of sensitive data: masked fields, and hidden states that are shown under a cover.

Others see an entity in a hidden state as it was before: that is its cover. A chart that breaks a rule of covers can be
loaded, but then no reader without the right sees any entity of the kind (ADR 0138).

Rule 1: a name that is computed from a masked field reveals its value wherever the name is shown.
Rule 2: entering and leaving takes a role, and leaving at least the roles of entering: `sensitive.roles` gives them.
Rule 3: a hidden state is entered from a visible one, which is its cover. `as` names the only possible cover.
Rule 4: what the cover accepts from others, the hidden state accepts or defers. Otherwise the event would be lost, and
its sender would not learn it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from interlock.compiler.checks.events import is_automatic
from interlock.compiler.checks.graph import Graph
from interlock.compiler.checks.report import CheckReport, describe_trigger
from interlock.compiler.checks.states import exits_of
from interlock.model.charts.chart import Chart, HiddenStates, State, Transition
from interlock.model.charts.sendable_events import matches_event
from interlock.model.charts.sites import block_sites, computable_names, event_names, expression_sites, known_fields
from interlock.model.document.actions import Value
from interlock.model.document.walk import value_expressions
from interlock.model.effect import CHART_TYPES

Roles = frozenset[str]
Crossing = dict[int, list[State]]
"""Hidden states with `roles` that a transition enters or leaves, by the number of the transition."""


def check_sensitive(report: CheckReport, graph: Graph) -> bool:
    """Check every `sensitive` of the chart; whether its hidden states, if any, are covered."""
    known = known_fields(report.chart)
    tops = []
    for state in graph.states:
        sensitive = state.sensitive
        if sensitive is None:
            continue
        for path in sensitive.fields:
            name = path.split(".", 1)[0]
            if name not in known:
                hint = report.suggestion(name, known) or "declare it under `context`"
                message = f"sensitive: the context has no field `{name}`"
                report.add("sensitive.unknown_field", message, state.location, hint)
        if sensitive.hidden:
            tops.append(state)
    _check_names(report)
    return _HiddenStatesCheck(report, graph, tops).run() if tops else False


def with_hidden_states(chart: Chart, *, is_covered: bool) -> Chart:
    """Return a chart with its hidden states, and with their `roles` on the transitions that enter or leave them."""
    tops = _tops(chart)
    if not tops:
        return chart
    graph = Graph(chart)
    always, within = _crossings(graph, tops)
    transitions = tuple(
        replace(
            each,
            roles=_limited(each, always.get(each.index, [])),
            roles_in=tuple((state.id, _roles_of(state)) for state in within.get(each.index, [])),
        )
        for each in chart.transitions
    )
    hidden = HiddenStates(
        states=frozenset(chart.states[index].id for each in tops for index in range(each.index, each.last + 1)),
        entering=frozenset(each.index for found in _entering(graph, tops).values() for each in found),
        readers=_readers(tops),
        is_covered=is_covered,
    )
    return replace(chart, transitions=transitions, hidden=hidden)


def _tops(chart: Chart) -> list[State]:
    return [each for each in chart.states if each.sensitive is not None and each.sensitive.hidden]


def _roles_of(state: State) -> tuple[str, ...]:
    assert state.sensitive is not None
    return state.sensitive.roles or ()


def _readers(tops: list[State]) -> Roles:
    """The roles that may see every hidden state."""
    return frozenset.intersection(*(frozenset(_roles_of(each)) for each in tops)) - {"system"}


def _limited(transition: Transition, states: list[State]) -> tuple[str, ...] | None:
    """The roles of a transition, limited to those of the hidden states that it always enters or leaves."""
    roles = transition.roles
    for state in states:
        given = _roles_of(state)
        roles = given if roles is None else tuple(each for each in roles if each in given)
    return roles


def _crossings(graph: Graph, tops: list[State]) -> tuple[Crossing, Crossing]:
    """The transitions that enter or leave hidden states with `roles`: always, and only while such a state is active."""
    always: Crossing = {}
    within: Crossing = {}
    entering = _entering(graph, tops)
    for state in tops:
        if state.sensitive is None or state.sensitive.roles is None:
            continue
        for each in entering[state.index]:
            always.setdefault(each.index, []).append(state)
        for each in graph.transitions:
            if not graph.exits(each, state.index) or each in entering[state.index]:
                continue
            if graph.is_within(each.source, state.index):
                always.setdefault(each.index, []).append(state)
            elif graph.can_be_active_together(each.source, state.index):
                within.setdefault(each.index, []).append(state)
    return always, within


def _entering(graph: Graph, tops: list[State]) -> dict[int, list[Transition]]:
    """Per hidden state, the transitions from outside that enter it."""
    hidden = frozenset(each.index for each in tops)
    found: dict[int, list[Transition]] = {each: [] for each in hidden}
    for transition in graph.transitions if hidden else ():
        for each in graph.entered(transition, memory=True) & hidden:
            if not graph.is_within(transition.source, each):
                found[each].append(transition)
    return found


# Names


def _check_names(report: CheckReport) -> None:
    """Report masked fields in computed names of events, timers, targets, sources and messages."""
    marked = (state.sensitive for state in report.chart.states if state.sensitive is not None)
    masked = {path.split(".", 1)[0] for each in marked for path in each.fields}
    if not masked:
        return
    for state, value in _computed_names(report.chart):
        for expression in value_expressions(value):
            parsed = report.names.parsed.get(expression.text)
            read = sorted({name for name, _ in parsed.reads} & masked) if parsed is not None else []
            if read:
                message = f"the sensitive field `{read[0]}` is part of a computed name, and names are stored unmasked"
                hint = "compute the name from another field, such as an id"
                report.add("sensitive.name", message, expression.location, hint, within=state)


def _computed_names(chart: Chart) -> Iterator[tuple[int, Value]]:
    for site in block_sites(chart):
        for action in site.actions():
            yield from ((site.state, each) for each in computable_names(action))
    for state in chart.states:
        for invoke in state.invokes:
            yield from ((state.index, each) for each in (invoke.src, invoke.type, invoke.key))


# Hidden states


class _HiddenStatesCheck:
    """Reports what keeps the hidden states of a chart from being covered. An `allow` silences a lint, not the rule."""

    def __init__(self, report: CheckReport, graph: Graph, tops: list[State]) -> None:
        self.report = report
        self.graph = graph
        self.tops = tops
        self.entering = _entering(graph, tops)
        self.always, self.within = _crossings(graph, tops)
        self.hidden = frozenset(index for each in tops for index in range(each.index, each.last + 1))
        self.insiders = _readers(tops) | {"system"}
        self.reported: set[int] = set()
        self.is_covered = True

    def run(self) -> bool:
        """Report all problems; whether there are none."""
        for state in self.tops:
            self._check_access(state)
        for state in self.tops:
            self._check_cover(state)
            self._check_answers(state)
        self._check_versions()
        return self.is_covered and not self.graph.is_exhausted

    def _add(self, code: str, message: str, at: State | Transition, hint: str, *, within: int | None = None) -> None:
        self.is_covered = False
        self.report.add(code, message, at.location, hint, within=at.index if isinstance(at, State) else within)

    # Who may enter and leave

    def _check_access(self, state: State) -> None:
        """Compare the roles that may enter with the roles that may leave. Each transition is reported once."""
        entering: set[str] = set()
        for transition in self.entering[state.index]:
            entering |= self._required_roles(state, transition, "into")
        self.insiders |= entering
        for transition in exits_of(self.graph, state.index):
            more = sorted(self._required_roles(state, transition, "out of") - entering - {"system"})
            if more and entering and transition.index not in self.reported:
                self.reported.add(transition.index)
                message = f"{', '.join(more)} may leave the hidden state {self.report.name(state)} but not enter it"
                hint = "require at least the same rights for leaving as for entering, or set `roles` of `sensitive`"
                self._add("sensitive.roles", message, transition, hint, within=state.index)

    def _required_roles(self, state: State, transition: Transition, way: str) -> set[str]:
        """The roles that may take a transition; reports a transition without roles."""
        roles = self._effective_roles(transition)
        if roles or (roles is not None and transition.index in self.within):
            return roles  # none: it does not lead out of the hidden state, and elsewhere it can be taken
        if transition.index not in self.reported:
            self.reported.add(transition.index)
            where = f"{way} the hidden state {self.report.name(state)} by {describe_trigger(transition)}"
            if is_automatic(transition):
                hint = (
                    "add `system` to the `roles` of `sensitive`"
                    if transition.index in self.always
                    else "add `system` to its `roles`"
                )
            else:
                hint = "add `roles` to it, to its event or to `sensitive`"
            found = "has no roles" if roles is None else "can be taken by no role"
            self._add("sensitive.no_roles", f"the transition {where} {found}", transition, hint, within=state.index)
        return set()

    def _effective_roles(self, transition: Transition) -> set[str] | None:
        """The roles that may take a transition: its own, else those of its events, limited by hidden states."""
        roles = _roles(self.report, transition)
        for state in (*self.always.get(transition.index, ()), *self.within.get(transition.index, ())):
            given = set(_roles_of(state))
            if roles is None:
                # Without its own roles, an automatic transition still needs `system`.
                roles = (given & {"system"}) if is_automatic(transition) else given - {"system"}
            else:
                roles &= given
        return roles

    # The cover

    def _check_cover(self, state: State) -> None:
        report, graph = self.report, self.graph
        name = report.name(state)
        if state.index in graph.initial_states():
            message = f"an entity starts in the hidden state {name}, so there is no earlier state to show"
            self._add("sensitive.cover", message, state, "start in a visible state and enter the hidden one from there")
        for index in range(state.index, state.last + 1):
            if any(each.type in CHART_TYPES for each in graph.states[index].invokes):
                message = f"the hidden state {name} invokes a chart, and the child is an entity that others can see"
                self._add(
                    "sensitive.cover", message, state, "invoke a handler, or invoke the chart from a visible state"
                )
        shown = state.sensitive.neutral if state.sensitive is not None else None
        if shown is None:
            return
        target = next((each for each in graph.states[1:] if shown in (each.id, each.key)), None)
        if target is None or target.index in self.hidden:
            message = f'sensitive: "{shown}" is not a visible state of the chart, so it would reveal what it hides'
            hint = "name the visible state from which the hidden state is entered, or remove `as`"
            self._add("sensitive.cover", message, state, hint)
            return
        for transition in self.entering[state.index]:
            if not graph.is_within(transition.source, target.index):
                where = f"{describe_trigger(transition)} enters it from {report.name(transition.source)}"
                message = f'the hidden state {name} is shown as "{shown}", but {where}'
                hint = "the cover is the state before; enter the hidden state from there only, or remove `as`"
                self._add("sensitive.cover", message, transition, hint, within=state.index)

    def _check_versions(self) -> None:
        """Report expressions that read the version: it counts the entries that others do not see.

        Only handlers get what an invoke computes, and others do not see the progress of sagas.
        """
        for site in expression_sites(self.report.chart):
            is_shown = not (site.invoke or self.report.is_from_saga(site.state))
            if is_shown and "entity.version" in site.expression.text:
                self.is_covered = False
                message = "`entity.version` counts entries of hidden states, and others could see its value"
                hint = "count in a field of the context"
                self.report.add("sensitive.cover", message, site.expression.location, hint, within=site.state)

    # Events of others

    def _check_answers(self, state: State) -> None:
        chart, graph = self.report.chart, self.graph
        covers = self._covers(state)
        outside = [each for each in chart.transitions if each.source in covers and not is_automatic(each)]
        for name in event_names(chart):
            declared = next((each for each in chart.events or () if each.name == name), None)
            senders = None if declared is None or declared.roles is None else frozenset(declared.roles)
            if not self._is_open(senders):
                continue
            accepted = any(
                matches_event(chart, each.index, name)
                and self._is_open(None if each.roles is None else frozenset(each.roles))
                for each in outside
                if each.index not in self.always
            )
            if not accepted:
                continue
            for atom in graph.atomic_states(state.index):
                if not self._is_answered(atom, name):
                    message = (
                        f"while {self.report.name(atom)} is hidden, the event `{name}` of others is lost: its cover "
                        "accepts it, and the hidden state neither accepts nor defers it"
                    )
                    hint = "accept it there without guard and roles, or set `unhandled: defer`"
                    self._add("sensitive.unanswered", message, graph.states[atom], hint)
                    break

    def _covers(self, state: State) -> set[int]:
        """The states that may be active in a cover of a hidden state: where it is entered from, and what is around."""
        graph, found = self.graph, set[int]()
        for transition in self.entering[state.index]:
            for atom in graph.atomic_states(transition.source):
                found.update(each for each in range(len(graph.states)) if graph.can_be_active_together(each, atom))
        return found - self.hidden

    def _is_open(self, roles: Roles | None) -> bool:
        """Whether a user who may not see hidden states can have one of these roles."""
        return roles is None or bool(roles - self.insiders)

    def _is_answered(self, atom: int, name: str) -> bool:
        """Whether an event of others is accepted or deferred in a hidden atomic state."""
        chart = self.report.chart
        if chart.states[atom].type == "final" and self.graph.ends_entity(atom):
            return False
        matching = [
            chart.transitions[number]
            for index in self.graph.path(atom)
            for number in chart.states[index].transitions
            if matches_event(chart, number, name)
        ]
        for each in matching:
            if each.index in self.within:
                continue  # others may not take it now, and it does not deny their event
            if each.roles is not None or each.index in self.always:
                return False
            if each.guard is None:
                return True
        return chart.unhandled == "defer"


def _roles(report: CheckReport, transition: Transition) -> set[str] | None:
    """The roles that may take a transition: its own, else those of its events; None if anyone may."""
    if is_automatic(transition):
        return set(transition.roles) if transition.roles is not None and "system" in transition.roles else None
    if transition.roles is not None:
        return set(transition.roles)
    found: set[str] = set()
    for descriptor in transition.descriptors:
        events = report.events.matching(descriptor)
        if not events or any(not each.roles and each.direction == "in" for each in events):
            return None
        for each in events:
            found |= {"system"} if each.direction == "internal" else set(each.roles or ())
    return found
