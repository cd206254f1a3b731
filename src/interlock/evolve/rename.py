"""States under new ids: a definition as it reads after the renames that a later one declares.

Rule 1: a rename of a state renames the states in it whose ids start with its own.
Rule 2: only ids change: keys, and with them the order and the meaning of everything else, stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial

from interlock.model.document.actions import Block, Expression, Guard, GuardIn
from interlock.model.document.document import Document, Initial, Invoke, Saga, State, Transition
from interlock.model.document.targets import TargetIndex
from interlock.model.document.walk import rewrite_block, rewrite_guard


def effective_renames(document: Document, renamed: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Return old id to new id for every state of the document that a later one renamed, those inside included."""
    tree = TargetIndex(document)
    found: dict[str, str] = {}
    for old, new in renamed:
        index = tree.by_id.get(old)
        if index is None:
            continue
        for each in range(index, tree.last[index] + 1):
            name = tree.ids[each]
            if name == old or name.startswith(f"{old}."):
                found[name] = new + name[len(old) :]
    return found


def composed_renames(before: Document, between: Iterable[Document], after: Document) -> dict[str, str]:
    """Return old id to new id over all revisions from one to another, each of which may declare renames.

    Without the revisions between, a name that was renamed away and is used again for a new state would be taken for the
    old one. What they do not lead to a state of the last one is what that declares itself.
    """
    names = {name: name for name in TargetIndex(before).ids}
    document = before
    for following in (*between, after):
        step = effective_renames(document, following.renamed)
        for each in conflicts(document, step):
            del step[each]
        names = {old: step.get(new, new) for old, new in names.items()}
        document = following
    direct, known = effective_renames(before, after.renamed), TargetIndex(after).by_id
    names = {old: new if new in known else direct.get(old, new) for old, new in names.items()}
    return {old: new for old, new in names.items() if old != new}


def conflicts(document: Document, names: Mapping[str, str]) -> tuple[str, ...]:
    """Return the old ids whose new id another state of the document keeps."""
    kept = {name for name in TargetIndex(document).ids if name not in names}
    return tuple(old for old, new in names.items() if new in kept)


def rename_states(document: Document, names: Mapping[str, str]) -> Document:
    """Return a document, whose targets must be absolute, with other ids for its states."""
    tree = TargetIndex(document)
    renamer = _Renamer(tree, names)
    return replace(document, root=renamer.state(0))


class _Renamer:
    def __init__(self, tree: TargetIndex, names: Mapping[str, str]) -> None:
        self.tree = tree
        self.names = names

    def state(self, index: int) -> State:
        written, name = self.tree.states[index], self.tree.ids[index]
        return replace(
            written,
            id=self.names.get(name, name) if index else written.id,
            initial=None if written.initial is None else self._initial(written.initial),
            states=tuple(self.state(each) for each in self.tree.children[index]),
            transitions=self._transitions(written.transitions),
            entry=tuple(self._block(each) for each in written.entry),
            exit=tuple(self._block(each) for each in written.exit),
            invokes=tuple(self._invoke(each) for each in written.invokes),
            targets=self._targets(written.targets),
            actions=self._block(written.actions),
            saga=None if written.saga is None else self._saga(written.saga),
        )

    def _initial(self, written: Initial) -> Initial:
        return replace(written, targets=self._targets(written.targets), actions=self._block(written.actions))

    def _transitions(self, written: tuple[Transition, ...]) -> tuple[Transition, ...]:
        return tuple(
            replace(
                each,
                targets=self._targets(each.targets),
                guard=self._guard(each.guard),
                actions=self._block(each.actions),
            )
            for each in written
        )

    def _invoke(self, written: Invoke) -> Invoke:
        return replace(
            written,
            finalize=None if written.finalize is None else self._block(written.finalize),
            done=self._transitions(written.done),
            error=self._transitions(written.error),
        )

    def _saga(self, written: Saga) -> Saga:
        return replace(
            written,
            steps=tuple(replace(each, guard=self._guard(each.guard)) for each in written.steps),
            done=self._transitions(written.done),
            compensated=self._transitions(written.compensated),
            error=self._transitions(written.error),
        )

    def _targets(self, texts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(f"#{self.names.get(text[1:], text[1:])}" if text.startswith("#") else text for text in texts)

    def _guard(self, guard: Guard | None) -> Guard | None:
        return None if guard is None else rewrite_guard(guard, _same, partial(_in_state, self.names))

    def _block(self, block: Block) -> Block:
        return rewrite_block(block, _same, partial(_in_state, self.names))


def _same(expression: Expression) -> Expression:
    return expression


def _in_state(names: Mapping[str, str], guard: GuardIn) -> Guard:
    return replace(guard, state=names.get(guard.state, guard.state))
