"""Errors and lints about what is hidden: fields that are masked, and states shown under a neutral name.

Who could enter a hidden state unasked, or leave it with less right than it takes to enter, could tell that it is there.
"""

from __future__ import annotations

from interlock.compiler.check_events import is_by_itself
from interlock.compiler.content import known_fields
from interlock.compiler.graph import Graph
from interlock.compiler.lint_states import ways_out
from interlock.compiler.review import Review, trigger
from interlock.model.chart import State, Transition

NEUTRAL = "processing"
"""What a hidden state is shown as when its author gives no name."""


def check_sensitive(review: Review, graph: Graph) -> None:
    """Every `sensitive` of the chart."""
    known = known_fields(review.chart)
    for state in graph.states:
        sensitive = state.sensitive
        if sensitive is None:
            continue
        for path in sensitive.fields:
            name = path.split(".", 1)[0]
            if name not in known:
                hint = review.suggestion(name, known) or "declare it under `context`"
                message = f"sensitive: the context has no field `{name}`"
                review.error("sensitive.unknown_field", message, state.place, hint)
        if sensitive.hidden:
            _check_neutral(review, state, sensitive.neutral or NEUTRAL)
            _check_ways(review, graph, state)


def _check_neutral(review: Review, state: State, neutral: str) -> None:
    if any(neutral in (each.id, each.key) for each in review.chart.states[1:]):
        message = f'sensitive: {review.name(state)} would be shown as "{neutral}", which is a state of the chart'
        review.error("sensitive.neutral", message, state.place, "choose another name with `as`")


def _check_ways(review: Review, graph: Graph, state: State) -> None:
    entering: set[str] = set()
    exits: list[tuple[Transition, set[str]]] = []
    leaving = {each.index for each in ways_out(graph, state.index)}
    for transition in graph.transitions:
        inside = graph.is_within(transition.source, state.index)
        enters = not inside and state.index in graph.entered(transition, memory=True)
        if not enters and transition.index not in leaving:
            continue
        roles = _roles(review, transition)
        if roles is None or (is_by_itself(transition) and "system" not in (transition.roles or ())):
            wish = "name `system` in its `roles`" if is_by_itself(transition) else "give it or its event `roles`"
            way = "into" if enters else "out of"
            where = f"{way} the hidden state {review.name(state)} by {trigger(transition)}"
            message = f"the way {where} does not say who may take it"
            review.lint("sensitive.no_roles", message, state.index, transition.place, wish)
        elif enters:
            entering |= roles
        else:
            exits.append((transition, roles))
    for transition, roles in exits:
        more = sorted(roles - entering - {"system"})
        if more and entering:
            message = f"{', '.join(more)} may leave the hidden state {review.name(state)} but not enter it"
            hint = "leaving takes at least the right that entering takes"
            review.lint("sensitive.roles", message, state.index, transition.place, hint)


def _roles(review: Review, transition: Transition) -> set[str] | None:
    """Who may take a transition: by its own roles, else by those of its events; None when somebody is not asked."""
    if transition.roles is not None:
        return set(transition.roles)
    if is_by_itself(transition):
        return None
    found: set[str] = set()
    for descriptor in transition.descriptors:
        events = review.events.taken(descriptor)
        if not events or any(not each.roles and each.direction == "in" for each in events):
            return None
        for each in events:
            found |= {"system"} if each.direction == "internal" else set(each.roles or ())
    return found
