"""What XState does differently with the JSON we write: one diagnostic `export.<what>` for each.

The differences are those of the dialect record: selection (X8), errors (X10, X18), `always` (X11), regions (X14),
invokes (X16), nested parallels (X20), the order of wildcards (X7). Documents of dialect `xstate` behave as in XState;
for them only what XState ignores is reported.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from interlock.model.diagnostics import Diagnostics
from interlock.model.document.actions import AssignCall, Block, Guard, GuardName
from interlock.model.document.document import Document, State, Transition
from interlock.model.document.targets import TargetIndex, Unresolved
from interlock.model.document.walk import (
    action_expressions,
    block_actions,
    guard_expressions,
    guard_parts,
    state_blocks,
    state_guards,
)

_INFORMATIVE = frozenset(
    {"allow", "compatible", "monotonic", "properties", "removed", "renamed", "retention", "upgrade"}
)
"""Keys without effect on behaviour: if XState ignores them, only a check is lost."""


def report_differences(
    document: Document,
    tree: TargetIndex,
    diagnostics: Diagnostics,
    *,
    carried: Collection[str],
    foreign: Collection[str],
) -> None:
    """Add every difference of a document to the diagnostics."""
    if foreign:
        message = f"XState needs implementations of: {', '.join(sorted(foreign))}"
        diagnostics.info("export.actions", message, document.root.location)
    for what in sorted(carried):
        message = f"{what.replace('_', ' ')}: stored in `meta.interlock`, which XState ignores"
        report = diagnostics.info if what in _INFORMATIVE else diagnostics.warning
        report(f"export.{what.replace(' ', '_')}", message, document.root.location)
    if document.dialect == "xstate":
        return
    if document.unhandled in (None, "reject"):
        message = "XState ignores an event that no transition takes; Interlock rejects it"
        diagnostics.warning("export.unhandled", message, document.root.location)
    if document.errors != "raise" and _can_fail(tree):
        message = "an error in a guard or an action ends an XState actor; in Interlock it is an event"
        diagnostics.warning("export.errors", message, document.root.location)
    for index, state in enumerate(tree.states):
        _report_state(tree, index, state, diagnostics)


def _report_state(tree: TargetIndex, index: int, state: State, diagnostics: Diagnostics) -> None:
    evented = [each for each in state.transitions if each.events]
    always = [each for each in state.transitions if each.origin in ("always", "transitions") and not each.events]
    for each in always:
        if not each.targets and each.actions:
            message = "XState runs an eventless transition without target once, then waits for the next event"
            diagnostics.warning("export.always", message, each.location)
    skips = state.saga is not None and state.saga.compensation == "parallel"
    if (always and state.invokes) or skips:
        message = f'XState creates the invokes of "{tree.ids[index]}" even if the state is exited immediately'
        diagnostics.warning("export.transient_invoke", message, state.location)
    in_parallel = any(tree.states[each].type == "parallel" for each in tree.ancestors(index))
    if state.invokes and (tree.children[index] or in_parallel):
        message = (
            f'XState creates the invokes of "{tree.ids[index]}" before it enters its children and parallel regions'
        )
        diagnostics.warning("export.invoke_order", message, state.location)
    parallel_child = any(tree.states[each].type == "parallel" for each in tree.children[index])
    if state.type == "parallel" and parallel_child and any(each.origin == "onDone" for each in state.transitions):
        message = f'"{tree.ids[index]}" completes in XState as soon as the parallel states in it have completed'
        diagnostics.warning("export.nested_parallel", message, state.location)
    for each in state.transitions:
        if _crosses_regions(tree, index, each):
            message = "XState stays in the parallel state and enters its regions again; Interlock exits it as a whole"
            diagnostics.warning("export.region_to_region", message, each.location)
    for each in evented:
        if not each.targets and any(_overlap(each, inner) for inner in _below_parallel(tree, index)):
            message = "XState skips this transition if a region takes the event; in Interlock both run"
            diagnostics.warning("export.select", message, each.location)
    for position, each in enumerate(evented):
        if any(_is_tried_later(each, later) for later in evented[position + 1 :]):
            message = f'XState tries the longer descriptor first; in Interlock "{", ".join(each.events)}" is first'
            diagnostics.warning("export.descriptors", message, each.location)


def _tokens(descriptor: str) -> list[str]:
    stem = descriptor.removesuffix("*").removesuffix(".")
    return stem.split(".") if stem else []


def _is_prefix(short: list[str], long: list[str]) -> bool:
    return long[: len(short)] == short


def _overlap(one: Transition, other: Transition) -> bool:
    pairs = [(_tokens(left), _tokens(right)) for left in one.events for right in other.events]
    return any(_is_prefix(left, right) or _is_prefix(right, left) for left, right in pairs)


def _is_tried_later(first: Transition, later: Transition) -> bool:
    pairs = [(_tokens(left), _tokens(right)) for left in first.events for right in later.events]
    return any(len(left) < len(right) and _is_prefix(left, right) for left, right in pairs)


def _below_parallel(tree: TargetIndex, index: int) -> Iterator[Transition]:
    """Transitions of states inside a parallel state at or below this one."""
    for inner in range(index + 1, tree.last[index] + 1):
        above = [index, *(each for each in tree.ancestors(inner) if each > index)]
        if any(tree.states[each].type == "parallel" for each in above):
            yield from tree.states[inner].transitions


def _crosses_regions(tree: TargetIndex, index: int, transition: Transition) -> bool:
    found = [tree.resolve_target(index, text) for text in transition.targets]
    targets = [each for each in found if not isinstance(each, Unresolved)]
    if not targets:
        return False
    shared = next(
        (each for each in tree.ancestors(index) if all(tree.is_descendant(target, each) for target in targets)), 0
    )
    return tree.states[shared].type == "parallel"


def _can_fail(tree: TargetIndex) -> bool:
    """Whether anything in the document is evaluated: an expression, a guard or an assign function."""
    for state in tree.states:
        if any(map(_guard_can_fail, state_guards(state))) or any(map(_block_can_fail, state_blocks(state))):
            return True
    return False


def _guard_can_fail(guard: Guard) -> bool:
    named = any(isinstance(each, GuardName) for each in guard_parts(guard))
    return named or any(True for _ in guard_expressions(guard))


def _block_can_fail(block: Block) -> bool:
    return any(
        isinstance(each, AssignCall) or any(True for _ in action_expressions(each)) for each in block_actions(block)
    )
