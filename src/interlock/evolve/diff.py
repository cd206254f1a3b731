"""The differences between two definitions of one kind, each classified.

Rule 1: definitions are compared in normal form, so that spellings of one behaviour differ in nothing.
Rule 2: states are paired by id after the renames of the new definition, transitions by state and event, invokes by id,
        saga steps, fields and events by name. What has no partner was added or removed.
Rule 3: of a state that was added or removed with everything in it, only the outermost is reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import inf

from interlock.compiler.build import compile_document
from interlock.compiler.resolve import exact_descriptor, parse_descriptor
from interlock.errors import UsageError
from interlock.evolve.changes import Change, Review, worst
from interlock.evolve.fields import field_changes, payload_changes
from interlock.evolve.identity import behaviour_name, named, normalize
from interlock.evolve.rename import composed_renames, conflicts, effective_renames, rename_states
from interlock.evolve.sagas import saga_changes
from interlock.evolve.transitions import (
    TransitionChange,
    Trigger,
    Triggered,
    timer_changes,
    transition_changes,
    triggers,
)
from interlock.model.charts.chart import DIALECTS, Chart
from interlock.model.charts.personal_plan import is_personal
from interlock.model.document.actions import Log
from interlock.model.document.document import Document, EventType, Invoke, Retention, State
from interlock.model.document.field import Field
from interlock.model.document.targets import TargetIndex, Unresolved
from interlock.model.duration import parse_duration


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartDiff:
    """The differences between two definitions of one kind.

    `before` and `after` are the names of their behaviours. `new_names` are functions, handlers and charts that only the
    new definition uses: programs must register them before it is used. `names` maps the old id of each renamed state to
    its new one. `old` is the old chart with these new ids, for a drawing; `before_chart` has the old ids.
    """

    kind: str
    before: str
    after: str
    changes: tuple[Change, ...]
    new_names: tuple[str, ...]
    names: dict[str, str]
    before_chart: Chart
    old: Chart
    new: Chart

    @property
    def review(self) -> Review:
        """The gravest class of the changes."""
        return worst(self.changes)


def diff_documents(before: Document, after: Document, between: Iterable[Document] = ()) -> ChartDiff:
    """Return the differences. `between` are the revisions between the two, oldest first: their renames count, too.

    Raises UsageError for definitions of different kinds, or one that does not compile.
    """
    if before.kind != after.kind:
        message = f"the charts are of different kinds: {before.kind} and {after.kind}"
        raise UsageError(message, code="diff.kind", hint="compare two definitions of one kind")
    between = tuple(between)
    names = composed_renames(before, between, after) if between else effective_renames(before, after.renamed)
    clashing = conflicts(before, names)
    if clashing:
        names = {old: new for old, new in names.items() if old not in clashing}
    renamed = normalize(rename_states(normalize(before), names))
    old, new = _compiled(before), _compiled(after)
    changes = _Differ(renamed, normalize(after), names).changes()
    changes += _retention_changes(before, after)
    changes += [Change(code="state.rename_conflict", subject=f"{each}") for each in clashing]
    is_same = behaviour_name(before) == behaviour_name(after)
    if is_same and before != after and not changes:
        changes.append(Change(code="text.changed", subject=after.kind))
    return ChartDiff(
        kind=after.kind,
        before=behaviour_name(before),
        after=behaviour_name(after),
        changes=tuple(changes),
        new_names=tuple(sorted(_names(new) - _names(old))),
        names=names,
        before_chart=old,
        old=_compiled(renamed) if names else old,
        new=new,
    )


def _retention_changes(before: Document, after: Document) -> list[Change]:
    """Return the change of how long entities and entries are kept; without a duration, forever."""
    old, new = before.retention or Retention(), after.retention or Retention()
    if old == new:
        return []
    durations = ((old.ended, new.ended), (old.entries, new.entries))
    is_shorter = any(_kept_ms(later) < _kept_ms(earlier) for earlier, later in durations)
    is_lost = old.archive is not None and new.archive != old.archive
    code = "retention.shorter" if is_shorter or is_lost else "retention.longer"
    return [Change(code=code, subject=after.kind, detail=f"{_retention_text(old)} -> {_retention_text(new)}")]


def _kept_ms(text: str | None) -> float:
    found = None if text is None else parse_duration(text)
    return inf if found is None else found


def _retention_text(retention: Retention) -> str:
    named = (("ended", retention.ended), ("entries", retention.entries), ("archive", retention.archive))
    return ", ".join(f"{name} {text}" for name, text in named if text is not None) or "none"


def named_states(document: Document, names: dict[str, str]) -> dict[str, State]:
    """Return the states of a definition in normal form, by id after these renames; the root has an empty one."""
    side = _Side(normalize(rename_states(normalize(document), names)))
    return {"": side.state(""), **side.states}


def _compiled(document: Document) -> Chart:
    chart = compile_document(document).chart
    if chart is None:
        hint = "interlock check shows the errors"
        raise UsageError(f"the chart {document.kind} does not compile", code="diff.definition", hint=hint)
    return named(chart)


def _names(chart: Chart) -> set[str]:
    return {*chart.guards, *chart.assigns, *chart.handlers, *chart.charts}


class _Side:
    """One definition in normal form, with its states by id."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.tree = TargetIndex(document)
        self.states = {name: self.tree.states[index] for name, index in self.tree.by_id.items() if index}
        dialect = DIALECTS[document.dialect]
        self.settings = {
            "dialect": document.dialect,
            "unhandled": document.unhandled or dialect.unhandled,
            "errors": document.errors or dialect.errors,
            "binding": document.binding,
        }

    def is_personal(self) -> bool:
        """Whether entities have personal data, and so a data key."""
        states = [self.document.root, *self.states.values()]
        payloads = (field for event in self.document.events or () for field in event.payload or ())
        fields = (*(field for state in states for field in state.context), *payloads)
        return any(map(is_personal, fields)) or any(each.personal for state in states for each in state.invokes)

    def parent(self, name: str) -> str:
        """The id of the state around a state; empty for the root."""
        index = self.tree.parents[self.tree.by_id[name]]
        return self.tree.ids[index] if index > 0 else ""

    def children(self, name: str) -> list[str]:
        """The ids of the states directly in a state; empty name: the root."""
        return [self.tree.ids[each] for each in self.tree.children[self._index(name)]]

    def within(self, name: str) -> tuple[str, ...]:
        """A state and everything in it."""
        index = self._index(name)
        return tuple(self.tree.ids[index : self.tree.last[index] + 1])

    def state(self, name: str) -> State:
        """A state; the root for an empty name."""
        return self.tree.states[self._index(name)]

    def kind(self, name: str) -> str:
        """The type of a state: atomic, compound, parallel, final or history."""
        state = self.state(name)
        if state.type != "state":
            return state.type
        return "compound" if state.states or not name else "atomic"

    def monotonic(self, name: str) -> list[str]:
        """The ids of the states in a state that are never left backwards, in order."""
        listed = self.state(name).monotonic
        if listed is True:
            return self.children(name)
        found = (self.tree.resolve_child(self._index(name), text) for text in listed or ())
        return [self.tree.ids[each] for each in found if not isinstance(each, Unresolved)]

    def takes(self, name: str, event: str) -> bool:
        """Whether a transition of a state or one around it takes an event."""
        index = self._index(name)
        around = [index, *self.tree.ancestors(index)]
        return any(
            parse_descriptor(text, self.document.dialect).matches(event)
            for each in around
            for transition in self.tree.states[each].transitions
            for text in transition.events
        )

    def _index(self, name: str) -> int:
        return self.tree.by_id[name] if name else 0


class _Differ:
    def __init__(self, before: Document, after: Document, names: dict[str, str]) -> None:
        self.old, self.new = _Side(before), _Side(after)
        self.names = names
        self.former = {new: old for old, new in names.items()}

    def changes(self) -> list[Change]:
        found = [*self._chart(), *self._renamed(), *self._removed(), *self._added()]
        for name in ("", *self.new.states):
            if name == "" or name in self.old.states:
                found += self._paired(name)
        found += self._fields()
        found += self._events()
        return found

    def _show(self, name: str) -> str:
        return name or self.new.document.kind

    def _live(self, name: str) -> tuple[str, ...]:
        """The ids that a state of both definitions had in the old one."""
        return (self.former.get(name, name),) if name else ()

    # The chart

    def _chart(self) -> Iterator[Change]:
        for part, old in self.old.settings.items():
            new = self.new.settings[part]
            if old != new:
                yield Change(code=f"chart.{part}", subject=part, detail=f"{old} -> {new}")
        if self.old.document.script != self.new.document.script:
            yield Change(code="chart.script", subject="script")
        for part in ("create", "read"):
            if getattr(self.old.document, part) != getattr(self.new.document, part):
                yield Change(code=f"chart.{part}", subject=part)
        if self.new.is_personal() and not self.old.is_personal():
            yield Change(code="chart.personal", subject="personal")

    # States

    def _renamed(self) -> Iterator[Change]:
        for old, new in self.names.items():
            above = old.rpartition(".")[0]
            if new in self.new.states and above not in self.names:
                yield Change(code="state.renamed", subject=f"{old} -> {new}", states=(old,))

    def _removed(self) -> Iterator[Change]:
        for name in self.old.states:
            parent = self.old.parent(name)
            if name in self.new.states or (parent and parent not in self.new.states):
                continue
            states = tuple(self.former.get(each, each) for each in self.old.within(name))
            if self.old.kind(name) == "history":
                yield Change(code="history.removed", subject=name)
            elif self.old.kind(parent) == "parallel" and self.new.kind(parent) == "parallel":
                yield Change(code="region.removed", subject=name, states=states)
            else:
                yield Change(code="state.removed", subject=name, states=states, hint=self._proposal(name))

    def _proposal(self, name: str) -> str | None:
        """The rename that an added state with equal content suggests."""
        content = state_content(self.old.state(name))
        added = (each for each in self.new.states if each not in self.old.states)
        twin = next((each for each in added if state_content(self.new.state(each)) == content), None)
        return None if twin is None else f"if it was renamed, add `renamed: {{{name}: {twin}}}`"

    def _added(self) -> Iterator[Change]:
        reached = self._reached()
        for name in self.new.states:
            parent = self.new.parent(name)
            if name in self.old.states or (parent and parent not in self.old.states):
                continue
            if self.old.kind(parent) == self.new.kind(parent) == "parallel" and self.new.kind(name) != "history":
                yield Change(code="region.added", subject=name, states=self._live(parent))
            elif self.new.kind(name) == "final":
                yield Change(code="state.added_final", subject=name)
            else:
                inside = self.new.within(name)
                code = "state.added_on_path" if any(each in reached for each in inside) else "state.added"
                yield Change(code=code, subject=name)

    def _reached(self) -> set[str]:
        """The added states that a path from an old state enters."""
        found: set[str] = set()
        stack = ["", *(name for name in self.new.states if name in self.old.states)]
        while stack:
            for target in self._entered(stack.pop()):
                # SCXML accepts a target that no state has.
                if target in self.new.states and target not in self.old.states and target not in found:
                    found.add(target)
                    stack.append(target)
        return found

    def _entered(self, name: str) -> Iterator[str]:
        """The states that a state leads to: targets, and those it enters by default."""
        state, children = self.new.state(name), self.new.children(name)
        for _, transition in triggers(state, name, self.new.document.dialect):
            yield from (text[1:] for text in transition.targets)
        yield from (text[1:] for text in state.targets)
        if self.new.kind(name) == "parallel":
            yield from children
        elif state.initial is not None:
            yield from (text[1:] for text in state.initial.targets)
        else:
            yield from children[:1]

    def _paired(self, name: str) -> Iterator[Change]:
        """The changes of a state that both definitions have."""
        before, after = self.old.state(name), self.new.state(name)
        if name:
            yield from self._type(name)
            if self.old.parent(name) != self.new.parent(name):
                yield Change(code="state.moved", subject=name, states=self._live(name))
        yield from self._order(name)
        yield from self._content(name, before, after)
        if "history" not in (before.type, after.type):
            yield from self._behaviour(name, before, after)

    def _type(self, name: str) -> Iterator[Change]:
        old, new = self.old.kind(name), self.new.kind(name)
        if old == new:
            return
        if "history" in (old, new):
            code = "state.kind"
        elif "parallel" in (old, new):
            code = "state.parallel"
        elif "final" in (old, new):
            code = "state.final"
        else:
            code = "state.split" if new == "compound" else "state.flattened"
        if (self.old.state(name).saga is None) == (self.new.state(name).saga is None):
            yield Change(code=code, subject=name, detail=f"{old} -> {new}", states=self._live(name))

    def _order(self, name: str) -> Iterator[Change]:
        old, new = self.old.children(name), self.new.children(name)
        if [each for each in old if each in new] != [each for each in new if each in old]:
            yield Change(code="state.order", subject=self._show(name), states=self._live(name))
        starts = [self._initial(side, name) for side in (self.old, self.new)]
        if self.old.kind(name) == self.new.kind(name) == "compound" and starts[0] != starts[1]:
            detail = "" if starts[0][0] == starts[1][0] else f"{', '.join(starts[0][0])} -> {', '.join(starts[1][0])}"
            yield Change(code="state.initial", subject=self._show(name), detail=detail, states=self._live(name))

    def _initial(self, side: _Side, name: str) -> tuple[tuple[str, ...], object]:
        """The states that a compound state enters by default, and the actions."""
        initial = side.state(name).initial
        if initial is not None:
            return tuple(text.removeprefix("#") for text in initial.targets), initial.actions
        active = [each for each in side.children(name) if side.kind(each) != "history"]
        return tuple(active[:1]), ()

    def _content(self, name: str, before: State, after: State) -> Iterator[Change]:
        subject, live = self._show(name), self._live(name)
        if before.entry != after.entry:
            only_log = _without_logs(before) == _without_logs(after)
            detail = "only `log` differs" if only_log else ""
            yield Change(code="state.entry", subject=subject, detail=detail, states=() if only_log else live)
        for part in ("exit", "output", "sensitive"):
            if getattr(before, part) != getattr(after, part):
                yield Change(code=f"state.{part}", subject=subject, states=live)
        histories = [(each.history, each.targets, each.actions) for each in (before, after)]
        if before.type == after.type == "history" and histories[0] != histories[1]:
            yield Change(code="history.changed", subject=subject)
        old, new = self.old.monotonic(name), self.new.monotonic(name)
        if [each for each in old if each in new] != [each for each in new if each in old]:
            yield Change(code="monotonic.order", subject=subject, states=live)

    def _behaviour(self, name: str, before: State, after: State) -> Iterator[Change]:
        subject, live = self._show(name), self._live(name)
        yield from self._invokes(name, before, after)
        yield from saga_changes(before.saga, after.saga, subject=subject, states=live)
        dialect = self.new.document.dialect
        shared = {each.id for each in _identified(name, before)} & {each.id for each in _identified(name, after)}
        if before.saga is None or after.saga is None:
            before, after = replace(before, saga=None), replace(after, saga=None)
        old, new = (
            [each for each in triggers(state, name, dialect) if each[0].invoke in (None, *shared)]
            for state in (before, after)
        )
        found = [
            Change(
                code=self._weighed(name, each, new),
                subject=f"{subject}: {each.trigger.text}",
                detail=each.detail,
                states=live,
                event=parse_descriptor(each.trigger.text, dialect) if each.trigger.kind == "on" else None,
            )
            for each in transition_changes(old, new)
        ]
        found += timer_changes(before, after, subject=subject, states=live)
        if not found and before.transitions != after.transitions:
            found.append(Change(code="transition.order", subject=subject, states=live))
        yield from found

    def _weighed(self, name: str, change: TransitionChange, new: list[Triggered]) -> str:
        """The code of a change, which may depend on who else takes the event."""
        trigger = change.trigger
        if change.code == "transition.removed" and trigger.kind in ("on", "invoke"):
            has_taker = any(each == trigger for each, _ in new) or self.new.takes(name, trigger.event)
            return change.code if has_taker else "transition.removed_last"
        if change.code == "transition.added":
            if self.old.takes(name, trigger.event):
                return "transition.added_overlap"
            return change.code if self._is_new_event(trigger) else "transition.added_answer"
        return change.code

    def _is_new_event(self, trigger: Trigger) -> bool:
        """Whether no sender could send the event before."""
        events = self.old.document.events
        if trigger.kind != "on" or events is None:
            return False
        descriptor = parse_descriptor(trigger.text, self.new.document.dialect)
        return not any(descriptor.matches(each.name) for each in events)

    # Invokes

    def _invokes(self, name: str, before: State, after: State) -> Iterator[Change]:
        subject, live = self._show(name), self._live(name)
        old = {each.id or "": each for each in _identified(name, before)}
        new = {each.id or "": each for each in _identified(name, after)}
        for each in (each for each in old if each not in new):
            yield Change(code="invoke.removed", subject=f"{subject}: {each}", states=live)
        for each in (each for each in new if each not in old):
            yield Change(code="invoke.added", subject=f"{subject}: {each}", states=live)
        for each in (each for each in new if each in old):
            code = _invoke_code(old[each], new[each])
            if code is not None:
                yield Change(code=code, subject=f"{subject}: {each}", states=live)
        if [each for each in old if each in new] != [each for each in new if each in old]:
            yield Change(code="invoke.order", subject=subject, states=live)

    # Data and events

    def _fields(self) -> Iterator[Change]:
        old, new = _context(self.old), _context(self.new)
        for name, (owner, field) in old.items():
            if name not in new:
                yield Change(code="field.removed", subject=name)
                continue
            if new[name][0] != owner:
                detail = f"{self._show(owner)} -> {self._show(new[name][0])}"
                yield Change(code="field.moved", subject=name, detail=detail)
            yield from field_changes(field, new[name][1])
        for name, (_, field) in new.items():
            if name not in old:
                yield Change(code="field.added_required" if field.required else "field.added", subject=name)

    def _events(self) -> Iterator[Change]:
        old, new = self.old.document.events, self.new.document.events
        if old is None or new is None:
            if old is not None or new is not None:
                yield Change(code="events.open" if new is None else "events.declared", subject=self._show(""))
            return
        before, after = {each.name: each for each in old}, {each.name: each for each in new}
        for name, event in before.items():
            if name not in after:
                yield Change(code="event.removed", subject=name, event=exact_descriptor(name))
            else:
                yield from _event_changes(event, after[name])
        for name in (each for each in after if each not in before):
            yield Change(code="event.added", subject=name)


def _event_changes(old: EventType, new: EventType) -> Iterator[Change]:
    found = (*_declaration_changes(old, new), *payload_changes(old, new))
    yield from (replace(each, event=exact_descriptor(new.name)) for each in found)


def _declaration_changes(old: EventType, new: EventType) -> Iterator[Change]:
    name = new.name
    if old.direction != new.direction:
        detail = f"{old.direction} -> {new.direction}"
        code = "event.closed" if old.direction == "in" else "event.direction"
        yield Change(code=code, subject=name, detail=detail)
    for part in ("roles", "permit", "approvals", "dedupe"):
        if getattr(old, part) != getattr(new, part):
            yield Change(code=f"event.{part}", subject=name)


def _context(side: _Side) -> dict[str, tuple[str, Field]]:
    """Every field of the context with the state that owns it."""
    return {field.name: (name, field) for name in ("", *side.states) for field in side.state(name).context}


def _identified(name: str, state: State) -> list[Invoke]:
    """The invokes of a state, each with the id that its events have."""
    return [replace(each, id=each.id or f"{name}.{number}") for number, each in enumerate(state.invokes)]


def _invoke_code(old: Invoke, new: Invoke) -> str | None:
    kinds = [isinstance(each.src, Document) for each in (old, new)]
    if old.type != new.type or kinds[0] != kinds[1]:
        return "invoke.source"
    if isinstance(old.src, Document) and isinstance(new.src, Document):
        if old.src.kind != new.src.kind:
            return "invoke.source"
        if behaviour_name(old.src) != behaviour_name(new.src):
            return "invoke.child"
    elif old.src != new.src:
        return "invoke.source"
    if old.personal != new.personal:
        return "invoke.personal" if _seals_more(old, new) else "invoke.declassified"
    options = [replace(each, src=None, done=(), error=()) for each in (old, new)]
    return None if options[0] == options[1] else "invoke.options"


def _seals_more(old: Invoke, new: Invoke) -> bool:
    """Whether everything of a result that was sealed is sealed now."""
    return new.personal is True or (old.personal is not True and set(old.personal or ()) <= set(new.personal or ()))


def _without_logs(state: State) -> list[list[object]]:
    return [[action for action in block if not isinstance(action, Log)] for block in state.entry]


def state_content(state: State) -> State:
    """Return a state without its name, for finding it under another one."""
    return replace(state, key="", id=None, states=tuple(state_content(each) for each in state.states))
