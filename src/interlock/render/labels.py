"""The texts of a drawing: values, actions, transitions and the lines inside a state.

Rule 1: every text is one line of limited length. The output format escapes it.
Rule 2: a text looks like the definition: an expression as written, a literal as JSON.
Rule 3: nothing here depends on an output format.
"""

from __future__ import annotations

from collections.abc import Iterable

from interlock.model.charts.chart import Invoke, Transition
from interlock.model.document.actions import Block
from interlock.model.document.wording import block_text, guard_text, name_text

TEXT_LENGTH_MAX = 120
"""Characters of one text: a label must be readable at a glance, and the definition has the whole text."""


def clipped(text: str) -> str:
    """Return the text on one line, with single spaces, and truncated with an ellipsis if it is too long."""
    line = " ".join(text.split())
    return line if len(line) <= TEXT_LENGTH_MAX else line[: TEXT_LENGTH_MAX - 1].rstrip() + "…"


def event_text(transition: Transition) -> str:
    """Return the text of a transition's event; `always` for an eventless one."""
    return transition.label or ", ".join(each.text for each in transition.descriptors) or "always"


def transition_text(transition: Transition) -> str:
    """Return the label of a transition: `event [guard] / actions`, without missing parts."""
    guard = "" if transition.guard is None else f"[{guard_text(transition.guard)}]"
    actions = f"/ {block_text(transition.block)}" if transition.block else ""
    return clipped(" ".join(filter(None, (event_text(transition), guard, actions))))


def blocks_lines(word: str, blocks: Iterable[Block]) -> list[str]:
    """Return one line for each block of entry or exit actions that is not empty."""
    return [clipped(f"{word} / {block_text(block)}") for block in blocks if block]


def invoke_line(invoke: Invoke) -> str:
    """Return the line of an invoke, with its id if that differs from its source."""
    source = "a computed chart" if invoke.src is None else name_text(invoke.src)
    named = f" ({invoke.id})" if invoke.id and invoke.id != source else ""
    return clipped(f"invoke {source}{named}")
