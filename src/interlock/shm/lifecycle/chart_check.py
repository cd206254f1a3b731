"""Which charts fit into a word, and every reason why another does not."""

from __future__ import annotations

from collections.abc import Iterator

from interlock.errors import NOWHERE, Diagnostic, Place
from interlock.model.chart import Chart, State, Transition
from interlock.model.document.actions import Block, Do, Emit, Log, Send

ADMITS = "admits"
"""The tag of the state in which permits are given."""

DRAINS = "drains"
"""The tag of the state in which the chart waits for the last permit."""

STATES_MAX = 1 << 16
"""States of a chain; what a person writes has five."""


def word_diagnostics(chart: Chart) -> tuple[Diagnostic, ...]:
    """Every reason why the chart does not fit into a word, with its place; none when it fits."""
    return tuple(_found(chart))


def _found(chart: Chart) -> Iterator[Diagnostic]:
    root = chart.states[0]
    chain = [chart.states[child] for child in root.children]
    yield from _of_chart(chart, root, chain)
    for state in chain:
        yield from _of_state(chart, state)
    for transition in chart.transitions:
        yield from _of_transition(chart, transition)
    yield from _of_tags(chart, chain)


def _no(code: str, message: str, place: Place = NOWHERE, hint: str | None = None) -> Diagnostic:
    return Diagnostic(code=f"word.{code}", message=message, place=place, hint=hint)


def _of_chart(chart: Chart, root: State, chain: list[State]) -> Iterator[Diagnostic]:
    if root.type != "compound" or chart.top != 0:
        yield _no("root", "the root has no chain of states", root.place, "one compound root, or a store")
        return
    if root.initial != (chain[0].index,):
        yield _no("initial", "the chart does not begin with its first state", root.place, "write the states in order")
    if chain[-1].type != "final":
        yield _no("final", f"the last state (`{chain[-1].id}`) is not final", chain[-1].place, "a word's life ends")
    if len(chain) > STATES_MAX:
        yield _no("states", f"{len(chain)} states are too many", root.place)
    if root.context or chart.script:
        yield _no("context", "a word has no room for a context", root.place, "keep it in a store")
    if root.transitions:
        yield _no("root_transition", "the root has transitions", root.place, "write them on the states they leave")
    if root.entry or root.exit or root.initial_block or root.invokes:
        yield _no("root_actions", "the root has actions or invokes", root.place, "write them on its states")
    if chart.unhandled == "defer":
        yield _no("defer", "a word cannot keep events for later", root.place, "unhandled: reject or ignore")
    if any(event.roles is not None or event.permit is not None for event in chart.events or ()):
        yield _no("roles", "a word knows no principals", root.place, "who may send is checked by a runtime")


def _of_state(chart: Chart, state: State) -> Iterator[Diagnostic]:
    if state.type not in {"atomic", "final"}:
        yield _no("flat", f"state `{state.id}` is {state.type}", state.place, "only atomic and final states fit")
    if state.context:
        yield _no("context", f"state `{state.id}` has a context", state.place, "keep it in a store")
    if state.after:
        yield _no("timer", f"state `{state.id}` sets a timer", state.place, "send the event from a clock of your own")
    if state.invokes:
        yield _no("invoke", f"state `{state.id}` invokes", state.place, "a word does not survive its processes")
    if chart.states[0].initial == (state.index,) and state.entry:
        yield _no("entry", f"nobody enters the first state (`{state.id}`)", state.place, "act on the way out of it")
    for block in (*state.entry, *state.exit):
        yield from _of_block(block, state.place)


def _of_transition(chart: Chart, transition: Transition) -> Iterator[Diagnostic]:
    source, place = chart.states[transition.source], transition.place
    if not transition.descriptors:
        yield _no("eventless", f"`{source.id}` has a transition without an event", place, "name the event")
    if transition.guard is not None:
        yield _no("guard", f"a transition of `{source.id}` has a guard", place, "a word has no data to ask")
    if transition.roles is not None:
        yield _no("roles", "a word knows no principals", place, "who may send is checked by a runtime")
    for number in transition.targets:
        target = chart.states[number]
        if number <= transition.source:
            yield _no("backward", f"targets an earlier state (`{target.id}`): a word only moves forward", place)
    if not transition.targets and transition.block:
        yield _no("targetless", f"a transition of `{source.id}` acts without moving", place, "give it a target")
    yield from _of_block(transition.block, place)


def _of_block(block: Block, place: Place) -> Iterator[Diagnostic]:
    for action in block:
        where = action.place if action.place != NOWHERE else place
        if isinstance(action, Do | Emit | Log) or (isinstance(action, Send) and action.delay is None):
            continue
        word = "send with a delay" if isinstance(action, Send) else type(action).__name__.lower()
        yield _no("action", f"`{word}` needs more than a word", where, "call, send, emit and log are effects; they fit")


def _of_tags(chart: Chart, chain: list[State]) -> Iterator[Diagnostic]:
    admits = [state for state in chain if ADMITS in state.tags]
    drains = [state for state in chain if DRAINS in state.tags]
    for tag, tagged in ((ADMITS, admits), (DRAINS, drains)):
        for state in tagged[1:]:
            yield _no("tags", f"`{state.id}` is a second state tagged `{tag}`", state.place, "at most one")
    if len(admits) == 1 and not drains:
        yield _no("tags", f"`{admits[0].id}` admits, but no state drains", admits[0].place, f"tag one `{DRAINS}`")
    if len(drains) != 1:
        return
    [draining] = drains
    if not admits:
        yield _no("tags", f"`{draining.id}` drains, but no state admits", draining.place, f"tag one `{ADMITS}`")
    leaving = [chart.transitions[number] for number in draining.transitions]
    fits = len(leaving) == 1 and len(leaving[0].targets) == 1 and len(leaving[0].descriptors) == 1
    if not fits or not leaving[0].descriptors[0].tokens:
        hint = "one event, one target: the last exit takes it"
        yield _no("drains", f"`{draining.id}` is not left by exactly one transition", draining.place, hint)
    for state in admits:
        for number in state.transitions:
            transition = chart.transitions[number]
            if transition.targets and transition.targets != (draining.index,):
                hint = f"go through `{draining.id}`"
                yield _no("undrained", f"`{state.id}` is left while permits may be out", transition.place, hint)
