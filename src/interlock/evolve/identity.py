"""The name of a behaviour: `b1.` and 20 hex digits over the part of a definition that steps depend on.

Rule 1: which keys are part of it, and where order counts, is declared in the vocabulary table (`identity`, `order`).
Rule 2: different spellings of one behaviour have one name: targets are absolute ids, transitions have a normal order,
        white space in expressions and values equal to their documented default do not count.
Rule 3: what is copied into a snapshot, an effect or an entry counts as written, such as `60s` and `1m` of `after`.
Rule 4: empty is not absent: `roles: []` denies every sender, a missing `roles` allows every sender.
Rule 5: a document is hashed, not a chart, so a change of the compiler changes no name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from heapq import heapify, heappop, heappush
from typing import Any

from interlock.compiler.build import xstate_rank
from interlock.compiler.resolve import exact_descriptor, parse_descriptor
from interlock.definition.vocabulary.chart import write_identity
from interlock.expression.language import SAFE
from interlock.expression.parser import ExpressionError
from interlock.model.charts.chart import DIALECTS, SEMANTICS, Chart, Descriptor
from interlock.model.document.actions import Block, Expression, Guard, GuardIn, Value
from interlock.model.document.document import (
    Document,
    Initial,
    Invoke,
    Saga,
    SagaCall,
    SagaStep,
    State,
    Transition,
)
from interlock.model.document.targets import TargetIndex, Unresolved
from interlock.model.document.walk import rewrite_block, rewrite_guard, rewrite_value
from interlock.model.duration import format_duration, parse_duration
from interlock.model.encoding.codec import encode

SCHEME = "b1"

_DOMAIN = b"interlock-behaviour-1\0"
_SPACE = re.compile(r"""("(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?)|\s+""", re.DOTALL)


def behaviour_name(document: Document) -> str:
    """Return the name of a document's behaviour, such as `b1.3f9c2a7d1e0b4c5d6e7f`."""
    data = _DOMAIN + encode(behaviour(document))
    return f"{SCHEME}.{blake2b(data, digest_size=10).hexdigest()}"


def named(chart: Chart) -> Chart:
    """Return a compiled chart with the name of its behaviour as its revision. Its former name is one of the others."""
    if chart.document is None or chart.other_names:
        return chart
    inline = tuple((name, named(each)) for name, each in chart.inline)
    return replace(chart, revision=behaviour_name(chart.document), other_names=(chart.revision,), inline=inline)


def behaviour(document: Document) -> dict[str, Any]:
    """Return what is hashed, as plain JSON in which the order of mappings does not count."""
    return {"semantics": SEMANTICS, **write_identity(normalize(document))}


def normalize(document: Document) -> Document:
    """Return the document in the one spelling that all documents with the same behaviour share, without its texts."""
    return _Normalizer(document).document()


def collapse_space(text: str) -> str:
    """Return an expression with each white space outside quotes as one blank, and none around it."""
    return _SPACE.sub(lambda match: match[1] or " ", text).strip()


class _Normalizer:
    """Rewrites one document. Names that cannot be resolved are kept: such a document does not compile."""

    def __init__(self, document: Document) -> None:
        self.written = document
        self.tree = TargetIndex(document)

    def document(self) -> Document:
        written = self.written
        dialect = DIALECTS[written.dialect]
        events = written.events and tuple(replace(each, dedupe=self._value(each.dedupe)) for each in written.events)
        return replace(
            written,
            root=self._state(0, ""),
            unhandled=None if written.unhandled == dialect.unhandled else written.unhandled,
            errors=None if written.errors == dialect.errors else written.errors,
            events=events,
        )

    def _state(self, index: int, path: str) -> State:
        written = self.tree.states[index]
        children = (
            self._state(each, f"{path}.{self.tree.states[each].key}" if path else self.tree.states[each].key)
            for each in self.tree.children[index]
        )
        transitions = tuple(self._transition(index, each) for each in written.transitions)
        return replace(
            written,
            id=None if written.id == path else written.id,
            initial=self._initial(index, written),
            states=tuple(children),
            transitions=normal_order(transitions, self.written, self.tree.ids[index]),
            entry=tuple(self._block(index, each) for each in written.entry if each),
            exit=tuple(self._block(index, each) for each in written.exit if each),
            invokes=tuple(self._invoke(index, each) for each in written.invokes),
            context=tuple(replace(each, default=self._value(each.default)) for each in written.context),
            targets=self._children(self.tree.parents[index], written.targets),
            actions=self._block(index, written.actions),
            output=self._value(written.output),
            saga=None if written.saga is None else self._saga(index, written.saga),
            expect=None,
            allow=(),
            description=None,
            tags=(),
            meta=None,
        )

    def _initial(self, index: int, written: State) -> Initial | None:
        initial = written.initial
        if initial is None:
            return None
        targets = self._children(index, initial.targets)
        first = next((each for each in self.tree.children[index] if self.tree.states[each].type != "history"), None)
        if not initial.actions and first is not None and targets == (f"#{self.tree.ids[first]}",):
            return None
        return replace(initial, targets=targets, actions=self._block(index, initial.actions))

    def _transition(self, index: int, written: Transition) -> Transition:
        return replace(
            written,
            origin=written.origin if written.origin in ("after", "onDone") else "transitions",
            targets=tuple(self._named(text, self.tree.resolve_target(index, text)) for text in written.targets),
            guard=self._guard(index, written.guard),
            actions=self._block(index, written.actions),
            delay=self._value(written.delay),
            restore=None if written.restore == "deadline" else written.restore,
            description=None,
            meta=None,
        )

    def _transitions(self, index: int, written: Iterable[Transition]) -> tuple[Transition, ...]:
        return tuple(self._transition(index, each) for each in written)

    def _invoke(self, index: int, written: Invoke) -> Invoke:
        src = normalize(written.src) if isinstance(written.src, Document) else self._value(written.src)
        return replace(
            written,
            src=src,
            type=self._value(written.type),
            input=self._value(written.input),
            key=self._value(written.key),
            finalize=None if written.finalize is None else self._block(index, written.finalize),
            timeout=_timeout(written.timeout),
            restore=None if written.restore == "keep" else written.restore,
            done=self._transitions(index, written.done),
            error=self._transitions(index, written.error),
        )

    def _saga(self, index: int, written: Saga) -> Saga:
        return replace(
            written,
            steps=tuple(self._saga_step(index, each) for each in written.steps),
            done=self._transitions(index, written.done),
            compensated=self._transitions(index, written.compensated),
            error=self._transitions(index, written.error),
        )

    def _saga_step(self, index: int, written: SagaStep) -> SagaStep:
        return replace(
            written,
            do=self._call(written.do),
            guard=self._guard(index, written.guard),
            compensate=None if written.compensate is None else self._call(written.compensate),
            timeout=_timeout(written.timeout),
        )

    def _call(self, written: SagaCall) -> SagaCall:
        return replace(written, input=self._value(written.input), key=self._value(written.key))

    def _children(self, parent: int, texts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(self._named(text, self.tree.resolve_child(max(parent, 0), text)) for text in texts)

    def _named(self, text: str, found: int | Unresolved) -> str:
        return text if isinstance(found, Unresolved) else f"#{self.tree.ids[found]}"

    def _guard(self, index: int, guard: Guard | None) -> Guard | None:
        return None if guard is None else rewrite_guard(guard, self._expression, partial(self._in_state, index))

    def _block(self, index: int, block: Block) -> Block:
        return rewrite_block(block, self._expression, partial(self._in_state, index))

    def _in_state(self, index: int, guard: GuardIn) -> Guard:
        found = self.tree.resolve_in_state(index, guard.state)
        return guard if isinstance(found, Unresolved) else replace(guard, state=self.tree.ids[found])

    def _value(self, value: Value) -> Value:
        return rewrite_value(value, self._expression)

    def _expression(self, expression: Expression) -> Expression:
        if self.written.dialect == "scxml" and not _is_sound(expression.text):
            return expression  # it fails when it is evaluated, and the failure is as written
        return Expression(collapse_space(expression.text))


def _is_sound(text: str) -> bool:
    try:
        SAFE.check(text)
    except ExpressionError:
        return False
    return True


def _timeout(text: str | None) -> str | None:
    """A time limit, which a step writes in milliseconds, in one spelling."""
    ms = None if text is None else parse_duration(text)
    return text if ms is None else format_duration(ms)


def normal_order(transitions: tuple[Transition, ...], document: Document, state: str) -> tuple[Transition, ...]:
    """Return the transitions of a state in the first order, by content, that selects as the written one does.

    Two of them must keep their order if one event can match both, if both are eventless, or if both are the first with
    their delay: timers are set in that order.
    """
    if len(transitions) < 2:
        return transitions
    found = [(each, _descriptors(each, document, state)) for each in transitions]
    if document.dialect == "xstate":
        found.sort(key=lambda each: xstate_rank(each[1]))
    order = _Order()
    for number, (each, descriptors) in enumerate(found):
        order.add(number, each, descriptors)
    transitions = tuple(each for each, _ in found)
    holder = replace(document, events=None, root=State(transitions=transitions))
    contents = [encode(each) for each in write_identity(holder)["transitions"]]
    return tuple(transitions[number] for number in order.smallest(contents))


def _descriptors(transition: Transition, document: Document, state: str) -> tuple[Descriptor, ...]:
    """What a transition of a state matches. The event of a computed delay has a number in place of this text."""
    match transition.origin:
        case "after":
            delay = transition.delay
            mark = f"= {delay.text}".replace(".", " ") if isinstance(delay, Expression) else str(delay)
            return (exact_descriptor(f"after.{mark}.{state}"),)
        case "onDone":
            return (exact_descriptor(f"done.state.{state}"),)
        case _:
            return tuple(parse_descriptor(text, document.dialect) for text in transition.events)


class _Order:
    """Which transitions must come before which: a graph with few edges, whose paths say the rest.

    A new transition follows the last one with the same tokens, the last wildcard above them, and for a wildcard those
    below it since the last equal wildcard.
    """

    def __init__(self) -> None:
        self.before: list[set[int]] = []
        self.last: dict[tuple[str, ...], int] = {}
        self.wildcards: dict[tuple[str, ...], int] = {}
        self.below: dict[tuple[str, ...], list[int]] = {}
        self.eventless: int | None = None
        self.timer: int | None = None

    def add(self, number: int, transition: Transition, descriptors: tuple[Descriptor, ...]) -> None:
        """Add the next transition as written."""
        before: set[int] = set()
        self.before.append(before)
        if not descriptors:
            before.update(() if self.eventless is None else (self.eventless,))
            self.eventless = number
        for each in descriptors:
            if transition.origin == "after" and each.tokens not in self.last:
                before.update(() if self.timer is None else (self.timer,))
                self.timer = number
            before.update(self._overlapping(each))
        for each in descriptors:
            self.last[each.tokens] = number
            if not each.exact:
                self.wildcards[each.tokens] = number
            for length in range(len(each.tokens) + 1):
                self.below.setdefault(each.tokens[:length], []).append(number)
        before.discard(number)

    def _overlapping(self, descriptor: Descriptor) -> Iterable[int]:
        tokens = descriptor.tokens
        if tokens in self.last:
            yield self.last[tokens]
        for length in range(len(tokens)):
            if tokens[:length] in self.wildcards:
                yield self.wildcards[tokens[:length]]
        if not descriptor.exact:
            since = self.wildcards.get(tokens, -1)
            for number in reversed(self.below.get(tokens, ())):
                if number <= since:
                    break
                yield number

    def smallest(self, contents: list[bytes]) -> list[int]:
        """Return the numbers in the order that is smallest by content among those that the graph allows."""
        waiting = [len(each) for each in self.before]
        after: list[list[int]] = [[] for _ in self.before]
        for number, before in enumerate(self.before):
            for each in before:
                after[each].append(number)
        ready = [(contents[number], number) for number, count in enumerate(waiting) if count == 0]
        heapify(ready)
        found: list[int] = []
        while ready:
            _, number = heappop(ready)
            found.append(number)
            for each in after[number]:
                waiting[each] -= 1
                if waiting[each] == 0:
                    heappush(ready, (contents[each], each))
        return found
