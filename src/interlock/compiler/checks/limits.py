"""Limits on the nesting of content. Checked first, because the other walks over content are recursive.

Rule 1: nothing here is recursive, so a document of any depth can be checked.
Rule 2: a block becomes one Python function in the kernel, so Python's own limits on nested blocks apply.
"""

from __future__ import annotations

from collections.abc import Iterator

from interlock.model.diagnostics import Diagnostics
from interlock.model.document.actions import Action, Foreach, Guard, GuardAll, GuardAny, GuardNot, If
from interlock.model.document.document import Document
from interlock.model.document.walk import documents, state_blocks, state_guards, states
from interlock.model.limits import CONTENT_DEPTH_MAX, FOREACH_DEPTH_MAX

_Part = tuple[Action | Guard, int, int]
"""An action or guard, its depth, and the number of loops around it."""


def check_nesting(document: Document, diagnostics: Diagnostics) -> bool:
    """Whether all content of a document and of its inline charts is within the limits; reports it if not."""
    stack: list[_Part] = [(each, 1, 0) for each in _contents(document)]
    while stack:
        part, depth, loops = stack.pop()
        loops += isinstance(part, Foreach)
        if depth > CONTENT_DEPTH_MAX:
            message = f"actions or guards are nested more than {CONTENT_DEPTH_MAX} levels deep"
            diagnostics.error("content.depth", message, part.location, "move the inner part into a registered function")
            return False
        if loops > FOREACH_DEPTH_MAX:
            message = f"`foreach` is nested more than {FOREACH_DEPTH_MAX} levels deep"
            diagnostics.error(
                "content.depth", message, part.location, "move the inner loops into a registered function"
            )
            return False
        stack.extend((each, depth + 1, loops) for each in _parts(part))
    return True


def _parts(part: Action | Guard) -> Iterator[Action | Guard]:
    match part:
        case If():
            for guard, block in part.branches:
                yield guard
                yield from block
            yield from part.otherwise
        case Foreach():
            yield from part.block
        case GuardAll() | GuardAny():
            yield from part.guards
        case GuardNot():
            yield part.guard
        case _:
            pass


def _contents(document: Document) -> Iterator[Action | Guard]:
    for each in documents(document):
        for state in states(each.root):
            yield from (action for block in state_blocks(state) for action in block)
            yield from state_guards(state)
