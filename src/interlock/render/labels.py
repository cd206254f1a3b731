"""The texts a drawing shows: of values, guards, actions, transitions and the lines inside a state.

Rule 1: every text is one line and bounded; the format that prints it escapes it.
Rule 2: a text reads like the definition: an expression stands as written, a literal as JSON.
Rule 3: nothing here knows a format; what is an edge and what is a line is decided in `drawing`.
"""

from __future__ import annotations

from collections.abc import Iterable

from interlock.model.chart import Invoke, Transition
from interlock.model.document.actions import Block
from interlock.model.document.wording import block_text, guard_text, name_text

TEXT_LENGTH_MAX = 120
"""Characters of one text: a label is read at a glance, the whole stands in the definition."""


def clipped(text: str) -> str:
    """The text on one line, white space folded, cut with an ellipsis where it is too long."""
    line = " ".join(text.split())
    return line if len(line) <= TEXT_LENGTH_MAX else line[: TEXT_LENGTH_MAX - 1].rstrip() + "…"


def event_text(transition: Transition) -> str:
    """What a transition waits for; an eventless one waits for nothing and is always tried."""
    return transition.label or ", ".join(each.text for each in transition.descriptors) or "always"


def transition_text(transition: Transition) -> str:
    """A transition's label: `event [guard] / actions`, each part only where there is one."""
    guard = "" if transition.guard is None else f"[{guard_text(transition.guard)}]"
    actions = f"/ {block_text(transition.block)}" if transition.block else ""
    return clipped(" ".join(filter(None, (event_text(transition), guard, actions))))


def blocks_lines(word: str, blocks: Iterable[Block]) -> list[str]:
    """One line per block of entry or exit that holds anything."""
    return [clipped(f"{word} / {block_text(block)}") for block in blocks if block]


def invoke_line(invoke: Invoke) -> str:
    """What a state has running while it is active, with the id its results carry where that says more."""
    source = "a computed chart" if invoke.src is None else name_text(invoke.src)
    named = f" ({invoke.id})" if invoke.id and invoke.id != source else ""
    return clipped(f"invoke {source}{named}")
