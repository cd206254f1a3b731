"""Parsed smcat to a `Document`, with UML's pseudo-states rewritten.

Rule 1: `initial` becomes the parent's `initial`; `fork` several targets; `join` the `onDone` of a parallel state;
        `choice` and `junction` a state with `always`; `terminate` a final child of the root.
Rule 2: an arrow without an event is `always`; one that leaves a state which can complete is UML's completion: `onDone`.
Rule 3: `reenter` is set exactly where it is required (V2); a self-loop of `type=internal` has no target.
Rule 4: drawing attributes (colour, class, width, active) are kept under `meta.smcat`.
"""

from __future__ import annotations

from typing import Literal

from interlock.definition.format import ReadResult, SourceLoader
from interlock.definition.names import kind_from_source
from interlock.definition.smcat.labels import LabelReader
from interlock.definition.smcat.parse import Attributes, parse_smcat
from interlock.definition.smcat.states import Draft, DraftTransition, assign_keys, read_drafts, walk_drafts
from interlock.definition.source.node import SourceLines, decode_source, key_path
from interlock.errors import SourceLocation
from interlock.model.diagnostics import Diagnostics
from interlock.model.document.document import TRANSITION_ORDER, Document, Initial, State, StateType, Transition
from interlock.model.limits import EFFECTS_MAX

_TYPES: dict[str, StateType] = {
    "parallel": "parallel",
    "final": "final",
    "terminate": "final",
    "history": "history",
    "deephistory": "history",
}


def read_smcat(text: str | bytes, /, *, source: str = "<definition>", loader: SourceLoader | None = None) -> ReadResult:
    """The document of a smcat text, with all diagnostics. The chart's kind is the name of the source."""
    del loader  # smcat refers to no other text
    diagnostics = Diagnostics()
    admitted = decode_source(text, language="smcat", source=source, diagnostics=diagnostics)
    if admitted is None:
        return ReadResult(document=None, diagnostics=diagnostics.sorted())
    lines = SourceLines(admitted, source)
    body = parse_smcat(admitted, lines, diagnostics)
    if body is not None and not diagnostics.has_errors and not (body.declarations or body.arrows):
        diagnostics.error(
            "smcat.empty", "the text contains no state", SourceLocation(source), "start with `initial -> first;`"
        )
    if body is None or diagnostics.has_errors:
        return ReadResult(document=None, diagnostics=diagnostics.sorted())
    labels = LabelReader(lines, diagnostics)
    root = read_drafts(body, labels, diagnostics, SourceLocation(source))
    _rewrite(root, diagnostics)
    for draft, key in assign_keys(root):
        diagnostics.info("smcat.renamed", f'state "{draft.name}" gets the key "{key}"', draft.location)
    document = Document(
        kind=kind_from_source(source), root=DocumentBuilder(labels, diagnostics).state(root, ""), source=source
    )
    return ReadResult(document=document, diagnostics=diagnostics.sorted())


def _rewrite(root: Draft, diagnostics: Diagnostics) -> None:
    """Replace the pseudo-states by transitions and states around them."""
    for draft in walk_drafts(root):
        if draft.type == "fork":
            _rewrite_fork(draft, diagnostics)
    for draft in walk_drafts(root):
        if draft.type == "join":
            _rewrite_join(draft, diagnostics)
    for draft in walk_drafts(root):
        if draft.type == "initial":
            _rewrite_initial(draft, diagnostics)
        elif draft.type == "terminate" and draft.parent is not root:
            _move_to_root(draft, root)
        elif draft.type in {"choice", "junction"}:
            _rewrite_choice(draft, diagnostics)
        elif draft.type in {"regular", "parallel"}:
            _complete(draft)


def _remove(draft: Draft) -> None:
    assert draft.parent is not None  # the root is never removed
    draft.parent.children.remove(draft)
    for transition in list(draft.leaving):
        transition.detach()


def _rewrite_fork(fork: Draft, diagnostics: Diagnostics) -> None:
    outgoing = [target for transition in fork.leaving for target in transition.targets]
    actions = tuple(action for transition in fork.leaving for action in transition.actions)
    if fork in outgoing:
        diagnostics.error("smcat.fork", f'fork "{fork.name}" leads to itself', fork.location)
        outgoing = []
    for transition in list(fork.incoming):
        targets = [each for target in transition.targets for each in (outgoing if target is fork else [target])]
        transition.retarget(list(dict.fromkeys(targets)))
        if len(transition.actions) + len(actions) > EFFECTS_MAX:  # forks that lead to forks can double them each time
            diagnostics.error("smcat.fork", f"more than {EFFECTS_MAX:,} actions are joined here", transition.location)
        else:
            transition.actions += actions
    _remove(fork)


def _rewrite_join(join: Draft, diagnostics: Diagnostics) -> None:
    """Each region gets a final state instead of the join; the parallel state's `onDone` has the join's target."""
    gathered, outgoing = list(join.incoming), join.leaving[0]
    parallel = _joined_parallel([transition.source for transition in gathered])
    if parallel is None:
        message = f'join "{join.name}" does not join one state of each region of one parallel state'
        hint = "end every region in a final state and draw one arrow from the parallel state: `p -> next: onDone;`"
        diagnostics.error("smcat.join", message, join.location, hint)
    else:
        for transition in gathered:
            _end_region(transition, join, parallel)
        outgoing.source.leaving.remove(outgoing)
        outgoing.source, outgoing.origin, outgoing.has_event = parallel, "onDone", True
        parallel.leaving.append(outgoing)
    for transition in list(join.incoming):
        transition.detach()
    _remove(join)


def _joined_parallel(sources: list[Draft]) -> Draft | None:
    """The parallel state whose regions contain exactly one of the states each."""
    for candidate in sources[0].ancestors():
        if candidate.type == "parallel":
            regions = [_region(each, candidate) for each in sources]
            if None not in regions and len(set(regions)) == len(regions) == len(candidate.children):
                return candidate
    return None


def _region(draft: Draft, parallel: Draft) -> Draft | None:
    path = [draft, *draft.ancestors()]
    return path[path.index(parallel) - 1] if parallel in path[1:] else None


def _end_region(transition: DraftTransition, join: Draft, parallel: Draft) -> None:
    """A state that only waits at the join becomes a final state; otherwise its arrow leads to a new one next to it."""
    source = transition.source
    waits_only = transition.bare and not transition.actions and source.leaving == [transition] and not source.children
    region = _region(source, parallel)
    assert region is not None  # `_joined_parallel` has found the parallel state
    if waits_only and source.type == "regular" and source is not region:
        source.type = "final"
        transition.detach()
        return
    if source is region:
        _enclose(region)
    ending = Draft(join.name, join.location, region, "final")
    region.children.append(ending)
    transition.retarget([ending])


def _enclose(region: Draft) -> None:
    """A region that is itself a state at the join gets that state inside, so that it can end."""
    inner = Draft(region.name, region.location, region, region.type, declaration=region.declaration)
    inner.children, region.children = region.children, [inner]
    for child in inner.children:
        child.parent = inner
    region.type, region.declaration = "regular", None
    inner.leaving, region.leaving = region.leaving, []
    for transition in inner.leaving:
        transition.source = inner


def _rewrite_initial(draft: Draft, diagnostics: Diagnostics) -> None:
    parent, transition = draft.parent, draft.leaving[0]
    assert parent is not None  # the root is not a pseudo-state
    if all(parent in target.ancestors() for target in transition.targets):
        parent.initial = transition
    else:
        message = f'"{draft.name}" has a target outside the state in which it is'
        diagnostics.error(
            "smcat.initial", message, transition.location, "draw the arrow to a state inside the same braces"
        )
    parent.children.remove(draft)


def _move_to_root(draft: Draft, root: Draft) -> None:
    """`terminate` ends the entity, which only a final child of the root does."""
    assert draft.parent is not None  # the root is not a pseudo-state
    draft.parent.children.remove(draft)
    draft.parent = root
    root.children.append(draft)


def _rewrite_choice(draft: Draft, diagnostics: Diagnostics) -> None:
    for transition in draft.leaving:
        if transition.has_event:
            text = ", ".join(transition.events) or transition.origin
            message = f'a transition from {draft.type} "{draft.name}" cannot have the event "{text}"'
            diagnostics.warning("smcat.choice", message, transition.location, f"write a guard: `[{text}]`")
    draft.leaving.sort(key=lambda transition: transition.otherwise or transition.bare)


def _complete(draft: Draft) -> None:
    can_complete = draft.type == "parallel" or any(each.type == "final" for each in draft.children)
    for transition in draft.leaving:
        if can_complete and transition.origin == "always" and not transition.eventless:
            transition.origin = "onDone"


class DocumentBuilder:
    """Creates the document from drafts whose keys are set."""

    def __init__(self, labels: LabelReader, diagnostics: Diagnostics) -> None:
        self.labels = labels
        self.diagnostics = diagnostics

    def state(self, draft: Draft, path: str) -> State:
        location = draft.location.with_path(path)
        declaration = draft.declaration
        entry, exit_, invokes, texts = self.labels.activities(declaration.activities if declaration else None)
        own = sorted(draft.leaving, key=lambda transition: TRANSITION_ORDER[transition.origin])
        history = draft.leaving if draft.is_history else []
        inner = key_path(path, "states")
        return State(
            key=draft.key,
            type=_TYPES.get(draft.type, "state"),
            initial=_initial(draft, path),
            states=tuple(self.state(child, key_path(inner, child.key)) for child in draft.children),
            transitions=() if draft.is_history else tuple(self._transition(transition, path) for transition in own),
            entry=(entry,) if entry else (),
            exit=(exit_,) if exit_ else (),
            invokes=invokes,
            history="deep" if draft.type == "deephistory" else "shallow",
            targets=self._defaults(draft) if draft.is_history else (),
            actions=tuple(action for transition in history for action in transition.actions),
            description=_description(draft, texts),
            meta=_meta(declaration.attributes if declaration else {}),
            location=location,
        )

    def _defaults(self, draft: Draft) -> tuple[str, ...]:
        """The default of a history: the targets of its arrows, else the initial state of its parent, as in UML."""
        parent = draft.parent
        assert parent is not None  # the root is not a pseudo-state
        targets = [target for transition in draft.leaving for target in transition.targets]
        if not targets and parent.initial is not None:
            targets = [each for each in parent.initial.targets if not each.is_history]
        if not targets:
            targets = _initial_transitions(parent)[: None if parent.type == "parallel" else 1]
        if not targets:
            self.diagnostics.error("smcat.history", f'the history "{draft.name}" has no sibling states', draft.location)
        return tuple(_inner(parent, target) for target in targets)

    def _transition(self, transition: DraftTransition, path: str) -> Transition:
        source = transition.source
        targets = [] if transition.internal and transition.targets == [source] else transition.targets
        reenter: bool | None = None
        if any(target is source or source in target.ancestors() for target in targets):
            proper = all(source in target.ancestors() for target in targets)
            reenter = not (transition.internal and proper and source.type != "parallel")
        return Transition(
            origin=transition.origin,
            events=transition.events,
            targets=tuple(_target(source, target) for target in targets),
            guard=transition.guard,
            actions=transition.actions,
            reenter=reenter,
            delay=transition.delay,
            description="\n".join(transition.notes) or None,
            meta=_meta(transition.attributes),
            location=transition.location.with_path(_path(transition, path)),
        )


def _path(transition: DraftTransition, path: str) -> str:
    where = key_path(path, transition.origin)
    if transition.origin == "on":
        return key_path(where, ", ".join(transition.events))
    return key_path(where, str(transition.delay)) if isinstance(transition.delay, str) else where


def _initial(draft: Draft, path: str) -> Initial | None:
    """The initial state of a compound state: as drawn, else its first state that is neither final nor a history."""
    if draft.initial is not None:
        targets, actions, location = draft.initial.targets, draft.initial.actions, draft.initial.location
        where = location.with_path(key_path(path, "initial"))
        return Initial(targets=tuple(_inner(draft, target) for target in targets), actions=actions, location=where)
    states = _initial_transitions(draft)
    if draft.type == "parallel" or not states or states[0] is draft.children[0]:
        return None
    return Initial(targets=(states[0].key,), location=draft.location.with_path(path))


def _initial_transitions(draft: Draft) -> list[Draft]:
    """The children that can be initial states."""
    return [child for child in draft.children if _TYPES.get(child.type, "state") in {"state", "parallel"}]


def _target(source: Draft, target: Draft) -> str:
    """The text of a target: a path from where the source searches its first key (V5), else `#id`."""
    if source in target.ancestors():
        return f".{_inner(source, target)}"
    scopes = list(source.ancestors())
    text = _inner(next(scope for scope in scopes if scope in target.ancestors()), target)
    levels = sum(text.split(".", 1)[0] in scope.keys for scope in scopes)
    return text if levels == 1 else f"#{target.id}"


def _inner(parent: Draft, target: Draft) -> str:
    """The text of a target below the parent."""
    path = target.id
    if parent.parent is None:
        return path
    return path.removeprefix(f"{parent.id}.") if parent in target.ancestors() else f"#{path}"


def _description(draft: Draft, texts: list[str]) -> str | None:
    """The label, or the name if the key differs from it; then the notes; then activities that are only text."""
    declaration = draft.declaration
    label = str(declaration.attributes.get("label") or draft.name) if declaration else draft.name
    plain = {"", draft.key, draft.id, f"{draft.parent.name}.{draft.key}" if draft.parent else ""}
    notes = declaration.notes if declaration else []
    return "\n".join([*([] if label in plain else [label]), *notes, *texts]) or None


def _meta(attributes: Attributes) -> dict[Literal["smcat"], Attributes] | None:
    drawing = {name: value for name, value in attributes.items() if name not in {"label", "type"}}
    return {"smcat": drawing} if drawing else None
