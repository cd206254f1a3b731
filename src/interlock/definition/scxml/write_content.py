"""Actions, guards and values as SCXML elements.

Rule 1: what SCXML can express is written in SCXML, for every tool; everything else in our namespace, for our reader.
Rule 2: reading gives back what was written; tests compare this module with `read_content`.
Rule 3: what other tools ignore is a diagnostic `export.<what>`, once per document.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from interlock.definition.scxml.expressions import (
    Datamodel,
    expression_text,
    read_value,
    round_trips,
    to_scxml,
    write_value,
)
from interlock.definition.scxml.extension import guard_json, value_json
from interlock.definition.scxml.structure import INTERLOCK
from interlock.definition.source.xml import Element
from interlock.errors import NO_LOCATION, Severity, SourceLocation
from interlock.model.diagnostics import Diagnostics
from interlock.model.document.actions import (
    Action,
    Assign,
    AssignCall,
    Block,
    Cancel,
    Do,
    Expression,
    Foreach,
    Guard,
    GuardAll,
    GuardAny,
    GuardExpression,
    GuardIn,
    GuardNot,
    If,
    Log,
    Raise,
    Script,
    Send,
    Value,
)
from interlock.model.document.walk import value_expressions
from interlock.model.duration import parse_duration

_INSIDE = re.compile(r"""\bIn\(\s*(?:'([^'\\]*)'|"([^"\\]*)")\s*\)""")


class Untranslatable(Exception):
    """An expression cannot be read back in this datamodel; the file must use our own."""


def element(
    name: str, attributes: dict[str, str | None] | None = None, children: Iterable[Element | str] = ()
) -> Element:
    """An element with the attributes that are not None; names include their prefix."""
    given = {("", key): text for key, text in (attributes or {}).items() if text is not None}
    return Element(name, attributes=given, children=list(children))


class Losses:
    """Reports what other tools ignore, once per kind."""

    def __init__(self, diagnostics: Diagnostics) -> None:
        self.diagnostics = diagnostics
        self.reported: set[str] = set()

    def report(
        self, what: str, message: str, location: SourceLocation = NO_LOCATION, severity: Severity = "warning"
    ) -> None:
        """Add the diagnostic `export.<what>` unless it was added before."""
        if what not in self.reported:
            self.reported.add(what)
            add = self.diagnostics.info if severity == "info" else self.diagnostics.warning
            add(f"export.{what}", message, location, f"only readers that know {INTERLOCK} use it")


class ContentWriter:
    """Writes the content of one document. `inside` returns the id of the state in `In('text')`."""

    def __init__(self, datamodel: Datamodel, losses: Losses) -> None:
        self.datamodel: Datamodel = datamodel
        self.losses = losses
        self.inside: Callable[[str], str] = str

    # Values

    def text(self, expression: Expression) -> str:
        """An expression as an attribute of this datamodel."""
        if not round_trips(expression.text, self.datamodel):
            raise Untranslatable
        return to_scxml(expression.text, self.datamodel)

    def with_state_ids(self, text: str) -> str:
        """The expression with the ids of the states in its `In()`."""
        return _INSIDE.sub(lambda found: f"In({self.inside(found[1] or found[2] or '')!r})", text)

    def value(self, value: Value, name: str = "expr") -> dict[str, str | None]:
        """The attributes of a value: `expr`, and our JSON if `expr` alone cannot restore it."""
        if isinstance(value, Expression):
            self.text(value)
        text = write_value(value, self.datamodel)
        if text is not None and any("In(" in each.text for each in value_expressions(value)):
            text = to_scxml(self.with_state_ids(expression_text(value)), self.datamodel)
        if text is None:
            self.losses.report("value", "a value is too large, or has a type that expressions do not have")
            return {"interlock:value": value_json(value)}
        exact = _same(read_value(text, self.datamodel, NO_LOCATION), value)
        return {name: text, "interlock:value": None if exact else value_json(value)}

    def either(self, value: Value, literal: str, computed: str) -> dict[str, str | None]:
        """The attributes of a value that has a literal and a computed form."""
        if value is None:
            return {}
        if isinstance(value, str):
            return {literal: value}
        if isinstance(value, Expression):
            return {computed: self.text(value)}
        return {computed: write_value(value, self.datamodel) or expression_text(value)}

    def payload(self, value: Value) -> list[Element]:
        """A payload: one `param` per name of a mapping, else one `content`."""
        if value is None:
            return []
        if isinstance(value, dict) and value:
            return [element("param", {"name": name} | self.value(each)) for name, each in value.items()]
        return [element("content", self.value(value))]

    def guard(self, guard: Guard | None) -> dict[str, str | None]:
        """The attributes of a guard: `cond`, and our JSON if `cond` alone cannot restore it."""
        if guard is None:
            return {}
        if isinstance(guard, GuardExpression):
            text = self.text(guard.expression)
            shown = to_scxml(self.with_state_ids(guard.expression.text), self.datamodel)
            exact = shown == text and text.strip()
            return {"cond": shown, "interlock:guard": None if exact else guard_json(guard)}
        return {
            "cond": to_scxml(self.condition(guard), self.datamodel),
            "interlock:guard": guard_json(guard),
        }

    def condition(self, guard: Guard) -> str:
        """The guard as one expression of our language; a registered function is false for other tools."""
        match guard:
            case GuardExpression():
                return self.with_state_ids(guard.expression.text)
            case GuardIn():
                return f"In({self.inside(guard.state)!r})"
            case GuardNot():
                return f"not ({self.condition(guard.guard)})"
            case GuardAll():
                return " and ".join(f"({self.condition(each)})" for each in guard.guards) or "true"
            case GuardAny():
                return " or ".join(f"({self.condition(each)})" for each in guard.guards) or "false"
            case _:
                self.losses.report("guard", f"the guard `{guard.name}` is a registered function", guard.location)
                return "false"

    # Actions

    def actions(self, block: Block) -> list[Element]:
        """The elements of a block."""
        return [each for action in block for each in self.action(action)]

    def action(self, action: Action) -> list[Element]:
        """The elements of one action: one, or several for an assign of several fields."""
        match action:
            case Raise():
                return [self.raise_element(action)]
            case Send():
                return [self.send(action)]
            case Cancel():
                return [element("cancel", self.either(action.id, "sendid", "sendidexpr"))]
            case Log():
                value = {} if action.value is None else self.value(action.value)
                return [element("log", {"label": action.label} | value)]
            case Assign():
                return [self.assign(path, value, joined=n > 0) for n, (path, value) in enumerate(action.values)]
            case If():
                return [self.branches(action)]
            case Foreach():
                return [self.foreach(action)]
            case Script():
                return [element("script", children=[action.text] if action.text else [])]
            case Do():
                self.losses.report("do", f"the handler `{action.name}` is called by name", action.location)
                return [element("interlock:do", {"name": action.name}, self.payload(action.arguments))]
            case AssignCall():
                self.losses.report("assign", f"the function `{action.name}` is registered code", action.location)
                return [element("interlock:assign", {"name": action.name}, self.payload(action.arguments))]
            case _:
                self.losses.report("emit", "a message goes to the outbox", action.location)
                return [
                    element("interlock:emit", self.either(action.type, "type", "typeexpr"), self.payload(action.data))
                ]

    def raise_element(self, action: Raise) -> Element:
        """`raise`; with data or a computed name it is a `send` to the internal queue, which is equivalent."""
        if isinstance(action.event, str) and action.data is None:
            return element("raise", {"event": action.event})
        name = self.either(action.event, "event", "eventexpr")
        return element("send", name | {"target": "#_internal", "interlock:raise": "true"}, self.payload(action.data))

    def send(self, action: Send) -> Element:
        """`send`."""
        attributes = self.either(action.event, "event", "eventexpr") | self.target(action.to)
        attributes |= self.either(action.type, "type", "typeexpr")
        if isinstance(action.id, str):
            attributes["id"] = action.id
        elif action.id is not None:
            self.losses.report("id", "the id of a send is computed", action.location)
            attributes["interlock:id"] = value_json(action.id)
        attributes |= self.id_location(action.id_location, action.id) | self.delay(action.delay)
        attributes["interlock:restore"] = action.restore
        return element("send", attributes, self.payload(action.data))

    def id_location(self, path: str | None, id: Value) -> dict[str, str | None]:
        """The attribute for the location of an id; SCXML has none if the author gives an id."""
        if path is not None and id is not None:
            self.losses.report("id_location", "an id is given and also written to a field")
        return {"idlocation" if id is None else "interlock:idlocation": path}

    def target(self, to: Value) -> dict[str, str | None]:
        """The attributes of a target."""
        match to:
            case "self":
                return {"interlock:to": "self"}
            case "internal" | "parent":
                return {"target": f"#_{to}"}
            case str() if not to.startswith(("#_", "!")):
                return {"target": f"#_scxml_{to}" if "/" in to else f"#_{to}", "interlock:to": to}
            case _:
                return self.either(to, "target", "targetexpr")

    def delay(self, delay: Value) -> dict[str, str | None]:
        """The attributes of a delay; SCXML has seconds and milliseconds only."""
        ms = parse_duration(delay) if isinstance(delay, str) else None
        if ms is None:
            return self.either(delay, "interlock:delay", "delayexpr")
        text = f"{ms // 1000}s" if ms % 1000 == 0 else f"{ms}ms"
        return {"delay": text, "interlock:delay": None if text == delay else delay}

    def assign(self, path: str, value: Value, *, joined: bool) -> Element:
        """One field of an assign; `joined`: it belongs to the same action as the one before."""
        if self.datamodel == "interlock" and path.startswith("context."):
            path = f"context.{path}"
        attributes = {"location": path or None} | self.value(value)
        return element("assign", attributes | {"interlock:joined": "true" if joined else None})

    def branches(self, action: If) -> Element:
        """`if` with its `elseif` and `else`, which are among the actions."""
        (first, block), *rest = action.branches
        children = self.actions(block)
        for guard, inner in rest:
            children += [element("elseif", self.guard(guard)), *self.actions(inner)]
        if action.otherwise:
            children += [element("else"), *self.actions(action.otherwise)]
        return element("if", self.guard(first), children)

    def foreach(self, action: Foreach) -> Element:
        """`foreach`."""
        attributes = {"array": "[]"} | self.value(action.items, "array")
        attributes |= {"item": action.item, "index": action.index}
        return element("foreach", attributes, self.actions(action.block))


def _same(left: Value, right: Value) -> bool:
    """Equality that distinguishes 1 from true and 1.0, at any depth."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return list(left) == list(right) and all(_same(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(_same, left, right))
    return bool(left == right)
