"""Random charts with nothing in them that smcat cannot say: states, events, targets, names of actions.

Made of the random documents of the properties, by leaving out all the rest.
"""

from __future__ import annotations

from random import Random

from interlock.compiler.build import compile_document
from interlock.model.document.actions import Block, Do
from interlock.model.document.document import Document, Initial, Origin, State, Transition
from tests.properties.charts import document


def plain_document(seed: int) -> Document | None:
    """The plain part of one random document; None when nothing of sense is left."""
    made = document(Random(seed))
    if made.dialect != "interlock":
        return None
    plain = Document(kind="random", root=_state(made.root))
    return None if compile_document(plain).chart is None else plain


def _state(state: State) -> State:
    initial = state.initial
    return State(
        key=state.key,
        type=state.type,
        states=tuple(_state(each) for each in state.states),
        initial=None if initial is None else Initial(targets=initial.targets[:1]),
        history=state.history,
        targets=state.targets[:1],
        transitions=_transitions(state) if state.key else (),
        entry=_blocks(f"{state.key}_entered", state.entry),
        exit=_blocks(f"{state.key}_left", state.exit),
    )


def _blocks(name: str, blocks: tuple[Block, ...]) -> tuple[Block, ...]:
    return ((Do(name=name),),) if blocks else ()


def _transitions(state: State) -> tuple[Transition, ...]:
    """Return the transitions without guards, except those that an earlier one hides."""
    kept: list[Transition] = []
    taken: list[str] = []
    for each in sorted(state.transitions, key=lambda transition: transition.origin != "onDone"):
        stems = [text.removesuffix(".*") for text in each.events] or [f"({each.origin})"]
        hidden = any(f"{stem}.".startswith(f"{other}.") for stem in stems for other in taken)
        if each.origin in ("always", "after") or "*" in stems or hidden:
            continue
        taken += stems
        actions = (Do(name="acted"),) if each.actions else ()
        origin: Origin = "on" if each.events else "onDone"
        kept.append(
            Transition(origin=origin, events=each.events, targets=each.targets, reenter=each.reenter, actions=actions)
        )
    return tuple(kept)
