"""Checks of personal data: that it stays sealed, and that no expression looks into it.

Personal values are sealed before the step, so an expression sees tokens (ADR 0134). These checks are where the promise
is kept that nothing else of a chart is derived from a personal value and survives its erasure.

Rule 1 (`personal.read`): an expression copies a whole personal value, compares it with null, or compares two of them.
Names, keys, delays, logs and policies are never personal, nor is what is copied into a field that is not.
Rule 2 (`personal.unsealed`): a personal field gets only null or a personal value. What a registered function writes is
checked when it runs.
Rule 3 (`personal.place`): where a value cannot be sealed, it cannot be marked.
A chart without personal data is not looked at.
"""

from __future__ import annotations

from interlock.compiler.checks.personal_shape import (
    EventShapes,
    Reads,
    Shape,
    ShapeReader,
    has_personal,
    shape_at,
    shape_of_field,
    shape_of_fields,
)
from interlock.compiler.checks.report import CheckReport
from interlock.errors import SourceLocation
from interlock.model.charts.chart import Chart, Invoke, State, Transition
from interlock.model.charts.personal_plan import is_personal
from interlock.model.charts.sites import block_sites, declared_fields, guard_sites
from interlock.model.document.actions import (
    Action,
    Assign,
    AssignCall,
    Cancel,
    Do,
    Emit,
    Expression,
    Foreach,
    Guard,
    GuardExpression,
    GuardName,
    Log,
    Raise,
    Send,
    Value,
)
from interlock.model.document.document import EventType
from interlock.model.document.field import UNSET, Field
from interlock.model.document.walk import guard_parts
from interlock.model.effect import CHART_TYPES
from interlock.model.personal_token import KEY_FIELD

_OWN_TARGETS = (None, "self", "internal", "#_internal")
_COPY = "write `personal: true` on the field that takes it"
_FACT = (
    "send the fact that the chart needs (`adult: true`), or invoke a handler that returns it; a personal value can be "
    "copied as a whole, compared with null, or with another personal value"
)
_SOURCE = "assign null, or a personal value: of the event, of the context, or of the result of an invoke"


def check_personal(report: CheckReport) -> None:
    """Check every value of a chart with personal data."""
    if _has_personal(report.chart):
        _PersonalCheck(report).run()


def _has_personal(chart: Chart) -> bool:
    fields = [each for state in chart.states for each in state.context]
    fields += [each for event in chart.events or () for each in event.payload or ()]
    marked = any(map(_is_marked, fields))
    return marked or any(invoke.personal is not None for state in chart.states for invoke in state.invokes)


def _is_marked(field: Field) -> bool:
    return is_personal(field) or (field.items is not None and _is_marked(field.items))


class _PersonalCheck:
    def __init__(self, report: CheckReport) -> None:
        self.report = report
        self.chart = chart = report.chart
        self.events = EventShapes(chart)
        self.declared = {each.name: each for each in chart.events or ()}
        self.context: Shape = {name: shape_of_field(each) for name, each in declared_fields(chart).items()}
        self.anywhere = Reads(self.context, self.events.anything)

    def run(self) -> None:
        for state in self.chart.states:
            for field in state.context:
                self._field(field)
                if not is_personal(field):
                    self._sink(field.default, "public", Reads(self.context), field.location)
            self._state(state)
        for event in self.chart.events or ():
            for field in event.payload or ():
                self._field(field)
            self._policy(event)
        self._access()
        for index, guard, transition in guard_sites(self.chart):
            self._guard(guard, self._reads(transition), index)
        for site in block_sites(self.chart):
            reads = self._reads(site.transition)
            for action in site.actions():
                self._action(action, reads)
        self._invokes_with_one_id()

    def _reads(self, transition: Transition | None) -> Reads:
        return self.anywhere if transition is None else Reads(self.context, self.events.of_transition(transition))

    # Declarations

    def _field(self, field: Field, *, inside: bool = False) -> None:
        if field.personal:
            if field.index:
                hint = "index an opaque reference, such as a customer number"
                self._place(field, "cannot have an index: the index would contain the value", hint)
            if field.default is not UNSET and field.default is not None:
                message = f"the default of the personal field `{field.name}` is part of the definition, and not sealed"
                self.report.add("personal.unsealed", message, field.location, "remove it, or write `nullable: true`")
            if inside:
                self._place(field, "is inside an array", "mark the array: it is sealed as one value")
        elif is_personal(field) and field.default not in (UNSET, None):
            message = f"the default of `{field.name}` contains a personal field, and is not sealed"
            self.report.add("personal.unsealed", message, field.location, "write `nullable: true` in place of it")
        if field.name == KEY_FIELD:
            self.report.add_reserved("field", field.name, field.location)
        if not field.personal:  # inside a personal value everything is sealed with it
            for each in field.fields or ():
                self._field(each, inside=inside)
            if field.items is not None:
                self._field(field.items, inside=True)

    def _place(self, field: Field, why: str, hint: str) -> None:
        self.report.add("personal.place", f"the personal field `{field.name}` {why}", field.location, hint)

    def _invokes_with_one_id(self) -> None:
        """The result of an invoke is sealed by the id of the invoke alone, because it may come late."""
        seen: dict[str, Invoke] = {}
        for state in self.chart.states:
            for invoke in state.invokes:
                if invoke.personal is not None and invoke.id_location is not None:
                    message = "an invoke with a generated id cannot have a personal result"
                    self.report.add("personal.place", message, invoke.location, "give it an `id`")
                if invoke.id is None:
                    continue
                first = seen.setdefault(invoke.id, invoke)
                if first.personal != invoke.personal:
                    message = f'the invokes with the id "{invoke.id}" differ in `personal`'
                    hint = "write the same `personal` on each, or give them different ids"
                    self.report.add("personal.place", message, invoke.location, hint)

    # Values

    def _shape(self, value: Value, reads: Reads, location: SourceLocation) -> Shape:
        """Return the shape of a value, and report what its expressions may not read."""
        reader = ShapeReader(self.report.names.parsed, reads)
        shape = reader.value(value)
        for expression, text in reader.problems:
            where = expression.location if expression.location.line else location
            self.report.add("personal.read", f"the expression reads the personal value `{text[:80]}`", where, _FACT)
        return shape

    def _sink(self, value: Value, target: Shape | None, reads: Reads, location: SourceLocation, name: str = "") -> None:
        """Report a value that does not fit where it is written: personal into public, or plain into personal."""
        shape = self._shape(None if value is UNSET else value, reads, location)
        problem = _misfit(shape, target, name)
        if problem is not None:
            code, message = problem
            where = value.location if isinstance(value, Expression) else location
            self.report.add(code, message, where, _COPY if code == "personal.read" else _SOURCE)

    def _public(self, value: Value, reads: Reads, location: SourceLocation, what: str) -> None:
        self._sink(value, "public", reads, location, what)

    def _guard(self, guard: Guard, reads: Reads, state: int) -> None:
        location = self.report.tree.states[state].location
        for part in guard_parts(guard):
            if isinstance(part, GuardExpression):
                if has_personal(self._shape(part.expression, reads, location)):
                    message = f"the guard is the personal value `{part.expression.text[:80]}`"
                    hint = "write `!= null` to ask whether there is a value"
                    self.report.add("personal.read", message, part.expression.location, hint)
            elif isinstance(part, GuardName):
                self._shape(part.arguments, reads, part.location)

    def _access(self) -> None:
        """The permits of the chart itself: that of `create` reads the context that is given."""
        given: Shape = {"context": shape_of_fields(self.chart.states[0].context)}
        for access, reads in ((self.chart.create, Reads("public", (given,))), (self.chart.read, Reads(self.context))):
            if access is not None and access.permit is not None:
                self._public(access.permit, reads, access.location, "`permit`")

    def _policy(self, event: EventType) -> None:
        reads = Reads(self.context, (self.events.of_event(event),))
        self._public(event.permit, reads, event.location, "`permit`")
        self._public(event.dedupe, reads, event.location, "`dedupe`")

    # States

    def _state(self, state: State) -> None:
        chart, reads, location = self.chart, self.anywhere, state.location
        for each in state.after:
            self._public(each.delay, reads, location, "a delay")
        if state.type == "final" and state.parent == chart.completion_root:
            self._shape(state.output, reads, location)  # it goes to the parent, which declares what is personal
        else:
            self._public(state.output, reads, location, "the output of a state")
        for invoke in state.invokes:
            for what, value in (("`src`", invoke.src), ("`type`", invoke.type), ("`key`", invoke.key)):
                self._public(value, reads, invoke.location, f"{what} of an invoke")
            inline = dict(chart.inline).get(str(invoke.src)) if invoke.type in CHART_TYPES else None
            if inline is None:
                self._shape(invoke.input, reads, invoke.location)
            else:
                target = shape_of_fields(inline.states[0].context)
                self._sink(invoke.input, target, reads, invoke.location, "the context of the child")
            if invoke.late is not None:
                self._shape(invoke.late.input, reads, invoke.location)

    # Actions

    def _action(self, action: Action, reads: Reads) -> None:
        location = action.location
        match action:
            case Assign():
                for path, value in action.values:
                    target = shape_at(self.context, path.split("."))
                    if path.split(".", 1)[0] == KEY_FIELD:
                        self.report.add_reserved("field", KEY_FIELD, location)
                    self._sink(value, target, reads, location, f"`context.{path}`")
            case Do() | AssignCall():
                self._shape(action.arguments, reads, location)
            case Raise():
                self._public(action.event, reads, location, "the name of an event")
                self._sink(action.data, self._payload(action.event), reads, location, "the payload")
            case Send():
                self._send(action, reads)
            case Emit():
                self._public(action.type, reads, location, "the type of a message")
                declared = self.declared.get(str(action.type)) if not isinstance(action.type, Expression) else None
                fields = None if declared is None or declared.direction != "out" else declared.payload
                shape: Shape = "public" if fields is None else shape_of_fields(fields)
                self._sink(action.data, shape, reads, location, "the data of a message")
            case Log():
                self._public(action.value, reads, location, "a log line")
            case Foreach():
                self._public(action.items, reads, location, "the list of a `foreach`")
            case Cancel():
                self._public(action.id, reads, location, "the id of a send")
            case _:
                pass  # guards of an `if` are checked with all guards; a script is refused

    def _send(self, action: Send, reads: Reads) -> None:
        location = action.location
        for what, value in (("event", action.event), ("target", action.to), ("id", action.id), ("type", action.type)):
            self._public(value, reads, location, f"the {what} of a send")
        self._public(action.delay, reads, location, "a delay")
        if not isinstance(action.to, Expression) and action.to in _OWN_TARGETS:
            self._sink(action.data, self._payload(action.event), reads, location, "the payload")
        else:
            self._shape(action.data, reads, location)  # the target decides, when the event is delivered

    def _payload(self, event: Value) -> Shape:
        """Return the shape of the payload that an event of the chart's own has."""
        found = None if isinstance(event, Expression) else self.declared.get(str(event))
        return "public" if found is None else self.events.of_event(found)


def _misfit(source: Shape, target: Shape | None, name: str) -> tuple[str, str] | None:
    """Return the code and the message if a value does not fit; `name` is where it is written."""
    if target in (None, "public", "mixed"):
        if has_personal(source):
            return "personal.read", f"a personal value is copied to {name or 'a default'}, which is not personal"
        return None
    if source == "null":
        return None
    if target in ("inside", "unclear"):
        return "personal.unsealed", f"{name} is a part of a personal value, which is sealed as a whole"
    if target == "personal":
        if source == "personal":
            return None
        return "personal.unsealed", f"{name} is personal, and this value is not"
    assert isinstance(target, dict)
    if isinstance(source, dict):
        found = (_misfit(each, target.get(key, "public"), f"{name}: `{key}`") for key, each in source.items())
        return next((each for each in found if each is not None), None)
    if has_personal(source):
        return "personal.read", f"a personal value is copied to {name}, where it is not known which part is personal"
    return (
        ("personal.unsealed", f"{name} contains personal fields, and this value is not sealed")
        if has_personal(target)
        else None
    )
