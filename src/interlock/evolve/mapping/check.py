"""Checks of a mapping: unknown names, questions without an answer, and answers that are not needed.

Rule 1: everything is found before an entity moves: for every set of old states that can be active together, and every
        place that the mapping names for them, as if every timer were pending and every invoke running.
Rule 2: beyond `MAPPING_PLACEMENTS_MAX` sets, and with a function for states, what entities really have decides: the dry
        run says it.
Rule 3: an answer that no entity can need is an error, because its author expected something else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice, product

from interlock.errors import NO_LOCATION, Diagnostic, SourceLocation
from interlock.evolve.carry import NEVER, Carrier
from interlock.evolve.identity import collapse_space
from interlock.evolve.mapping.document import Mapping
from interlock.evolve.mapping.placement import Choice, Placer, Question, invoke_name
from interlock.expression.parser import parse
from interlock.model.approvals import ACTORS_FIELD
from interlock.model.charts.chart import Chart, State
from interlock.model.diagnostics import Diagnostics, suggestion
from interlock.model.document.actions import Expression
from interlock.model.document.field import UNSET
from interlock.model.document.walk import rewrite_value, value_expressions
from interlock.model.limits import MAPPING_PLACEMENTS_MAX


def resolved(carrier: Carrier, mapping: Mapping) -> Mapping:
    """Return a mapping whose `In('...')` mean states of the old definition, by id or by the end of it."""

    def resolve(each: Expression) -> Expression:
        written = [text for text, _ in parse(each.text).inside]
        return replace(each, inside=tuple((text, state_named(carrier.old, text) or text) for text in written))

    context = {name: rewrite_value(value, resolve) for name, value in mapping.context.items()}
    states = {
        name: tuple(
            each if each.condition is None else replace(each, condition=resolve(each.condition)) for each in places
        )
        for name, places in mapping.states.items()
    }
    return replace(mapping, context=context, states=states)


def state_named(chart: Chart, text: str) -> str | None:
    """Return the state that a text means: its id, or the only one whose id ends with it."""
    found = [each.id for each in chart.states[1:] if text.lstrip("#.") == each.id]
    found = found or [each.id for each in chart.states[1:] if each.id.endswith(f".{text}")]
    return found[0] if len(found) == 1 else None


def check_mapping(carrier: Carrier, mapping: Mapping, placer: Placer) -> tuple[Diagnostic, ...]:
    """Return the problems of a mapping for a pair of definitions; none if every entity has an answer."""
    found = _Check(carrier, mapping, placer)
    found.names()
    if not found.diagnostics.has_errors:
        found.answers()
    return found.diagnostics.sorted()


def open_questions(carrier: Carrier, mapping: Mapping, placer: Placer) -> list[Question]:
    """Return what a mapping does not answer about states, timers, invokes and fields, each once."""
    found = [*_chart_questions(carrier)]
    for placement in map(placer.place, islice(choices(carrier, placer), MAPPING_PLACEMENTS_MAX)):
        found += placement.questions
    found += _field_questions(carrier, mapping)
    return list(dict.fromkeys(found))


def choices(carrier: Carrier, placer: Placer) -> Iterator[Choice]:
    """Yield every set of old states that can be active together, with every combination of their places."""
    for configuration in _configurations(carrier.old, carrier.old.states[0]):
        last = [carrier.old_states[name] for name in configuration]
        if not any(each.type == "final" and each.parent == carrier.old.completion_root for each in last):
            yield from _combinations(configuration, placer)


def _combinations(configuration: tuple[str, ...], placer: Placer) -> Iterator[Choice]:
    """Every combination of the places of these states. A state whose entities stay has none, and so has every set."""
    answered = {name: placer.answered(name) for name in configuration}
    names = [each for each in dict.fromkeys(answered.values()) if each is not None]
    for places in product(*(placer.mapping.states[each] for each in names)):
        chosen = {name: place.targets for name, place in zip(names, places, strict=True)}
        yield tuple((name, None if answer is None else chosen[answer]) for name, answer in answered.items())


def _configurations(chart: Chart, state: State) -> Iterator[tuple[str, ...]]:
    """Yield the sets of atomic states that can be active while a state is, one by one: there may be very many."""
    children = [chart.states[index] for index in chart.regions(state.index)]
    if not children:
        yield (state.id,)
    elif state.type == "parallel":
        yield from _product(chart, children)
    else:
        for child in children:
            yield from _configurations(chart, child)


def _product(chart: Chart, regions: list[State]) -> Iterator[tuple[str, ...]]:
    if not regions:
        yield ()
        return
    for first in _configurations(chart, regions[0]):
        for rest in _product(chart, regions[1:]):
            yield (*first, *rest)


def _chart_questions(carrier: Carrier) -> Iterator[Question]:
    for change in carrier.diff.changes:
        if change.code in NEVER:
            yield Question(f"{change.code} {change.subject}: {change.rule.reason}; no mapping answers it")


def _field_questions(carrier: Carrier, mapping: Mapping) -> Iterator[Question]:
    if mapping.context_function is not None:
        return
    former = carrier.saga_fields()
    for name, new in carrier.new_fields.items():
        if name in mapping.context or name in carrier.old_fields or name in former:
            continue
        if new.required and new.default is UNSET:
            text = f"the new field `{name}` is required, has no default, and entities have no value for it"
            yield Question(text, ("context", name), ('"= …"',))
    for change in carrier.diff.changes:
        if change.code == "field.narrowed" and change.subject not in mapping.context:
            text = f"the field `{change.subject}` accepts fewer values than before"
            yield Question(text, ("context", change.subject), (f'"= context.{change.subject}"',))


class _Check:
    def __init__(self, carrier: Carrier, mapping: Mapping, placer: Placer) -> None:
        self.carrier = carrier
        self.mapping = mapping
        self.placer = placer
        self.diagnostics = Diagnostics()

    # Names

    def names(self) -> None:
        """Report every name that the definitions do not have."""
        carrier, mapping = self.carrier, self.mapping
        if mapping.kind != carrier.new.kind:
            text = f"the mapping is for `{mapping.kind[:80]}`, and the charts are of kind `{carrier.new.kind}`"
            self.diagnostics.error("mapping.unknown", text, SourceLocation(mapping.source))
        old, new = carrier.old_states, carrier.new_states
        for name, places in mapping.states.items():
            if self._known("state", name, old, "old", "states", name):
                for target in (each for place in places for each in place.targets):
                    self._known("state", target, new, "new", "states", name)
        for name, answers in mapping.timers.items():
            if self._known("state", name, old, "old", "timers", name):
                labels = [collapse_space(each.label) for each in old[name].after]
                for label in answers:
                    self._known("timer", label, labels, f"old `{name}`", "timers", name, label)
        for name, cancelled in mapping.invokes.items():
            if self._known("state", name, old, "old", "invokes", name):
                labels = [invoke_name(old[name], each) for each in range(len(old[name].invokes))]
                for label in sorted(cancelled):
                    self._known("invoke", label, labels, f"old `{name}`", "invokes", name, label)
        for name, answer in mapping.entered.items():
            if self._known("state", name, new, "new", "entered", name):
                labels = [collapse_space(each.label) for each in new[name].after]
                for label in answer.timers:
                    self._known("timer", label, labels, f"new `{name}`", "entered", name)
                labels = [invoke_name(new[name], each) for each in range(len(new[name].invokes))]
                for label in answer.invokes:
                    self._known("invoke", label, labels, f"new `{name}`", "entered", name)
        histories = [each.id for each in carrier.old.states if each.type == "history"]
        for name in sorted(mapping.histories):
            self._known("history", name, histories, "old", "history", name)
        hidden = {ACTORS_FIELD, *carrier.saga_fields()}
        fields = [each for each in carrier.new_fields if each not in hidden]
        for name, value in mapping.context.items():
            if self._known("field", name, fields, "new", "context", name):
                for each in value_expressions(value):
                    self._reads(each, "context", name)
        for name, places in mapping.states.items():
            for place in places:
                if place.condition is not None:
                    self._reads(place.condition, "states", name)

    def _reads(self, expression: Expression, *path: str) -> None:
        """Report fields and states that an expression reads and the old definition does not have."""
        for field, _ in parse(expression.text).reads:
            self._known("field", field, self.carrier.old_fields, "old", *path)
        for text, state in expression.inside:
            if state not in self.carrier.old_states:
                self._unknown("state", text, self.carrier.old_states, "old", *path)

    def _known(self, what: str, name: str, known: Iterable[str], where: str, *path: str) -> bool:
        if name and name in known:
            return True
        self._unknown(what, name, known, where, *path)
        return False

    def _unknown(self, what: str, name: str, known: Iterable[str], where: str, *path: str) -> None:
        text = f"the {where} definition has no {what} `{name[:80]}`"
        self.diagnostics.error(
            "mapping.unknown", text, self.mapping.location(*path), suggestion(name, [each for each in known if each])
        )

    # Answers

    def answers(self) -> None:
        """Report what is not answered, and which answers nothing needs."""
        used: set[tuple[str, ...]] = set()
        count = 0
        questions = [*_chart_questions(self.carrier), *_field_questions(self.carrier, self.mapping)]
        is_exact = self.mapping.states_function is None
        for choice in islice(choices(self.carrier, self.placer), MAPPING_PLACEMENTS_MAX) if is_exact else ():
            placement = self.placer.place(choice)
            questions += placement.questions
            used |= placement.used
            count += 1
        for each in dict.fromkeys(questions):
            where = self.mapping.location(*each.path[:2])
            location = SourceLocation(self.mapping.source) if where is NO_LOCATION else where
            self.diagnostics.error("mapping.unanswered", each.text, location, each.hint)
        if not questions and is_exact and count < MAPPING_PLACEMENTS_MAX:
            self._unused(used)

    def _unused(self, used: set[tuple[str, ...]]) -> None:
        entered = self.mapping.entered.items()
        given = [
            *(("entered", name, "entry") for name, each in entered if each.entry is not None),
            *(("entered", name, label) for name, each in entered for label in each.invokes),
            *(("entered", name, f"after {label}") for name, each in entered for label in each.timers),
            *(("timers", name, label) for name, each in self.mapping.timers.items() for label in each),
            *(("invokes", name, label) for name, each in self.mapping.invokes.items() for label in sorted(each)),
        ]
        for path in given:
            if path not in used:
                text = f"no entity needs the answer for `{path[2]}` of `{path[1]}`: it continues as it is"
                self.diagnostics.error("mapping.unused", text, self.mapping.location(*path), "remove it")
