"""Lints about effects: what fails unseen, what may hang, what is left half done, what is swallowed."""

from __future__ import annotations

from interlock.compiler.checks.graph import Graph
from interlock.compiler.checks.report import Review, trigger
from interlock.compiler.checks.sites import readings, sites
from interlock.compiler.checks.state_lints import ways_out
from interlock.compiler.descriptors import exact
from interlock.model.chart import Invoke, State
from interlock.model.document.actions import Do, Emit, Send
from interlock.model.document.document import Saga


def lint_invokes(review: Review, graph: Graph) -> None:
    """Invokes whose failure nobody takes, that may hang, or whose input depends on which event came last."""
    for state in graph.states:
        if review.is_generated(state.index):
            continue
        for invoke in state.invokes:
            _lint_invoke(review, graph, state, invoke)
    for reading in readings(review.chart):
        parsed = review.names.parsed.get(reading.expression.text)
        if reading.invoke and parsed is not None and "event" in parsed.roots:
            message = "`event` is here the last event of the step, which need not be the one that led to this state"
            hint = "assign what you need to a field first, and read that"
            review.lint("invoke.event_input", message, reading.state, reading.expression.place, hint)


def _lint_invoke(review: Review, graph: Graph, state: State, invoke: Invoke) -> None:
    failure = exact("error.invoke") if invoke.id is None else exact(f"error.invoke.{invoke.id}")
    around = [graph.listeners[each] for each in graph.path(state.index)]
    if not any(True for each in around for _ in each.taking(failure)):
        message = f"no transition takes the failure of this invoke of {review.name(state)}"
        review.lint("invoke.no_error", message, state.index, invoke.place, "write `onError`")
    timed = any(graph.states[each].after for each in graph.path(state.index))
    if invoke.timeout_ms is None and invoke.type != "chart" and not timed:
        message = f"this invoke of {review.name(state)} may run for ever"
        review.lint("invoke.no_timeout", message, state.index, invoke.place, "write `timeout`")


def lint_sagas(review: Review, graph: Graph) -> None:
    """Sagas that cannot answer for what they did, and those that an outer transition can leave half done."""
    for state in graph.states:
        saga = review.tree.states[state.index].saga
        if saga is None:
            continue
        _lint_steps(review, state, saga)
        if not saga.error:
            message = f"no transition takes the failure of the saga of {review.name(state)}"
            review.lint("invoke.no_error", message, state.index, saga.place, "write `onError`")
        for transition in ways_out(graph, state.index):
            if transition.origin != "onDone":  # a saga that is done is not half done
                message = f"{trigger(transition)} can leave the saga of {review.name(state)} half done"
                hint = "take the event inside the saga's state, or `allow` it with the reason why that is right"
                review.lint("saga.left_midway", message, state.index, transition.place, hint)


def _lint_steps(review: Review, state: State, saga: Saga) -> None:
    for step in saga.steps:
        if step.timeout is None:
            message = f'the saga step "{step.id}" may run for ever'
            review.lint("invoke.no_timeout", message, state.index, step.place, "write `timeout`")
        call = step.compensate
        if call is not None and call.input is not None and not isinstance(call.input, dict):
            message = f'the input of the compensation of "{step.id}" is no mapping, so it cannot carry `compensates`'
            review.lint("saga.input", message, state.index, call.place, "write a mapping of named inputs")
        if call is None and step is not saga.steps[-1] and saga.compensation != "none":
            message = f'the saga step "{step.id}" has no `compensate`, so it stays done when a later step fails'
            hint = "write `compensate`, put it last, or say `compensation: none`"
            review.lint("saga.no_compensation", message, state.index, step.place, hint)


def lint_actions(review: Review, graph: Graph) -> None:
    """Effects that are hard to audit, errors that nobody takes, events that are swallowed."""
    asked = None
    for site in sites(review.chart):
        effects = [each for each in site.actions() if isinstance(each, Do | Emit | Send)]
        moves = site.role == "exit" or (site.transition is not None and site.transition.targets)
        if effects and moves and not review.is_generated(site.state):
            where = "on exit" if site.role == "exit" else "on a transition"
            message = f"an effect {where} of {review.name(site.state)}: effects on entry are easier to audit"
            review.lint(
                "effect.outside_entry", message, site.state, effects[0].place, "move it to the entry of the next state"
            )
        asked = asked or next(((site, each) for each in effects if isinstance(each, Do)), None)
    takers = (one for each in graph.transitions for one in each.descriptors)
    if asked is not None and not any(each.matches("error.communication") for each in takers):
        message = f'no transition takes "error.communication", which comes when `{asked[1].name}` fails for good'
        review.lint(
            "error.unhandled", message, asked[0].state, asked[1].place, "add a transition for it, or watch the faults"
        )
    _lint_swallowed(review)


def _lint_swallowed(review: Review) -> None:
    if review.own and review.document.unhandled == "ignore":
        message = "`unhandled: ignore` makes an illegal event look like one that was already done"
        review.lint("events.swallowed", message, 0, hint="leave it out, and take with {} what may come again")
    for transition in review.chart.transitions:
        idle = not transition.targets and not transition.block and transition.guard is None
        if idle and any(not each.tokens for each in transition.descriptors):
            message = "`*` with nothing to do makes an illegal event look like one that was already done"
            hint = "name the events that may come again"
            review.lint("events.swallowed", message, transition.source, transition.place, hint)
