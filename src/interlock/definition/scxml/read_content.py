"""Executable content of SCXML: actions, guards and values.

Rule 1: an invalid attribute keeps its text and fails when it is evaluated (S35); one without any meaning (a delay that
        is not a duration) is a diagnostic.
Rule 2: inline data is JSON if it parses as such, else its text with white space normalised, else XML as text (S5).
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from interlock.definition.format import SourceLoader
from interlock.definition.scxml.expressions import Datamodel, from_scxml, read_path, read_value
from interlock.definition.scxml.extension import Extension
from interlock.definition.scxml.structure import ACTIONS, INTERLOCK, children_named, tag
from interlock.definition.source.xml import Element
from interlock.errors import InterlockError
from interlock.model.diagnostics import Diagnostics
from interlock.model.document.actions import (
    Action,
    Assign,
    AssignCall,
    Block,
    Cancel,
    Do,
    Emit,
    Expression,
    Foreach,
    Guard,
    GuardExpression,
    If,
    Log,
    Raise,
    Script,
    Send,
    Value,
)
from interlock.model.document.field import UNSET, json_problem
from interlock.model.duration import format_duration, parse_css_duration, parse_duration
from interlock.model.encoding.codec import UNDECODABLE
from interlock.model.event import SCXML_PROCESSOR

ALLOW_SRC_HINT = "write its text inline, or, if you trust it, use load(..., allow_src=True) or --allow-src"
"""The hint for a `src` that is not loaded."""

_TARGETS = {"#_internal": "internal", "#_parent": "parent"}


class ContentReader:
    """Reads executable content, such as that of `onentry` and `transition`, in the datamodel of one file."""

    def __init__(self, datamodel: Datamodel, diagnostics: Diagnostics, loader: SourceLoader | None) -> None:
        self.datamodel: Datamodel = datamodel
        self.diagnostics = diagnostics
        self.loader = loader
        self.extension = Extension(diagnostics)

    # Values

    def expression(self, element: Element, name: str) -> Expression:
        """An attribute as an expression."""
        return Expression(from_scxml(element.get(name) or "", self.datamodel), element.at(name))

    def computed(self, element: Element, name: str) -> Value:
        """An attribute as a literal or an expression; None if it is absent."""
        text = element.get(name)
        return None if text is None else read_value(text, self.datamodel, element.at(name))

    def either(self, element: Element, literal: str, computed: str) -> Value:
        """An attribute that has a second form ending in `expr`."""
        text = element.get(literal)
        if text is not None or element.get(computed) is None:
            return text
        return self.expression(element, computed)

    def location(self, element: Element, name: str) -> str | None:
        """An attribute that names a location in the context."""
        text = element.get(name)
        return None if text is None else read_path(text, self.datamodel)

    def id_location(self, element: Element) -> str | None:
        """The location that an id is written to. If the author also gives an id, it is in our namespace."""
        path = self.extension.text(element, "idlocation")
        return self.location(element, "idlocation") if path is None else path

    def guard(self, element: Element) -> Guard | None:
        """The guard of a transition or a branch. An empty `cond` counts as absent."""
        if element.get("guard", INTERLOCK) is not None:
            return self.extension.guard(element, "guard")
        if not (element.get("cond") or "").strip():
            return None
        return GuardExpression(expression=self.expression(element, "cond"), location=element.at("cond"))

    def inline(self, element: Element) -> Value:
        """The value of `expr`, of our JSON attribute, or of the content of an element; UNSET if there is none."""
        if element.get("value", INTERLOCK) is not None:
            return self.extension.value(element, "value")
        if element.get("expr") is not None:
            return self.computed(element, "expr")
        if element.elements:
            return "".join(each if isinstance(each, str) else each.raw for each in element.children).strip()
        return parse_text(element.text) if element.text.strip() else UNSET

    def inline_or_none(self, element: Element) -> Value:
        """The same, where a missing value means null."""
        value = self.inline(element)
        return None if value is UNSET else value

    def load(self, element: Element, name: str) -> str | None:
        """The text that `src` names, from the loader."""
        src = element.get(name) or ""
        if self.loader is None:
            message = f'"{src}" is not loaded: a definition opens no other file unless the caller allows it'
            self.diagnostics.error("scxml.src", message, element.at(name), ALLOW_SRC_HINT)
            return None
        try:
            return self.loader(src)
        except (InterlockError, OSError, LookupError, ValueError) as error:
            self.diagnostics.error("scxml.src", f'"{src}" cannot be loaded: {error}', element.at(name))
            return None

    def payload(self, element: Element) -> Value:
        """The value of `namelist`, `param` and `content`: a mapping, one value, or None."""
        for content in children_named(element, "content"):
            return self.inline_or_none(content)
        data: dict[str, Value] = {}
        for name in (element.get("namelist") or "").split():
            data[name] = Expression(from_scxml(name, self.datamodel), element.at("namelist"))
        for param in children_named(element, "param"):
            data[param.get("name") or ""] = self.param(param)
        return data or None

    def param(self, param: Element) -> Value:
        """The value of one `param`."""
        if param.get("location") is not None:
            return self.expression(param, "location")
        return self.inline_or_none(param)

    # Actions

    def blocks(self, element: Element, name: str) -> tuple[Block, ...]:
        """One block per child with this tag, without generated ones."""
        return tuple(
            self.block(each) for each in children_named(element, name) if each.get("generated", INTERLOCK) is None
        )

    def block(self, element: Element) -> Block:
        """The actions inside an element, as one block."""
        return self.actions(element.elements)

    def actions(self, elements: list[Element]) -> Block:
        """The actions of these elements; other elements are reported elsewhere."""
        made: list[Action] = []
        for each in elements:
            if tag(each) not in ACTIONS:
                continue
            action = self.action(each)
            last = made[-1] if made and each.get("joined", INTERLOCK) is not None else None
            if isinstance(last, Assign) and isinstance(action, Assign):
                # Our writer split one action with several values.
                made[-1] = replace(last, values=last.values + action.values)
            else:
                made.append(action)
        return tuple(made)

    def action(self, element: Element) -> Action:
        """One action."""
        location = element.location
        match tag(element):
            case "raise":
                return Raise(event=element.get("event") or "", location=location)
            case "if":
                return self.branches(element)
            case "foreach":
                return Foreach(
                    items=self.items(element),
                    item=(element.get("item") or "").strip(" "),
                    index=None if element.get("index") is None else (element.get("index") or "").strip(" "),
                    block=self.block(element),
                    location=location,
                )
            case "send":
                return self.send(element)
            case "cancel":
                return Cancel(id=self.either(element, "sendid", "sendidexpr"), location=location)
            case "log":
                return Log(label=element.get("label"), value=self.inline_or_none(element), location=location)
            case "assign":
                return self.assign(element)
            case "script":
                return Script(text=self.script(element) or "", location=location)
            case "interlock:do":
                return Do(name=element.get("name") or "", arguments=self.payload(element), location=location)
            case "interlock:assign":
                return AssignCall(name=element.get("name") or "", arguments=self.payload(element), location=location)
            case _:
                kind = self.either(element, "type", "typeexpr")
                return Emit(type=kind, data=self.payload(element), location=location)

    def items(self, element: Element) -> Value:
        """The list of a `foreach`."""
        if element.get("value", INTERLOCK) is not None:
            return self.extension.value(element, "value")
        return self.computed(element, "array")

    def branches(self, element: Element) -> If:
        """`if`, with its children split into branches at each `elseif` and `else`."""
        parts: list[tuple[Element, list[Element]]] = [(element, [])]
        for child in element.elements:
            if tag(child) in ("elseif", "else"):
                if tag(parts[-1][0]) == "else":
                    self.diagnostics.error("scxml.else", f"<{child.name}> comes after <else>", child.location)
                parts.append((child, []))
            else:
                parts[-1][1].append(child)
        otherwise = self.actions(parts.pop()[1]) if tag(parts[-1][0]) == "else" else ()
        branches = tuple((self.branch_guard(head), self.actions(inside)) for head, inside in parts)
        return If(branches=branches, otherwise=otherwise, location=element.location)

    def branch_guard(self, element: Element) -> Guard:
        """The guard of a branch; an empty one is invalid and fails when it is evaluated."""
        empty = GuardExpression(expression=self.expression(element, "cond"), location=element.at("cond"))
        return self.guard(element) or empty

    def send(self, element: Element) -> Action:
        """`send`; a `raise` that our writer wrote as a `send` becomes a `raise` again."""
        extension = self.extension
        event = self.either(element, "event", "eventexpr")
        if event is None:
            message = "<send> without `event` or `eventexpr` fails when it runs"
            self.diagnostics.warning("scxml.send", message, element.location)
            event = Expression("", element.location)
        data = self.payload(element)
        if extension.text(element, "raise") is not None:
            return Raise(event=event, data=data, location=element.location)
        to = self.either(element, "target", "targetexpr")
        if extension.text(element, "to") is not None:
            to = extension.text(element, "to")
        elif isinstance(to, str):
            to = self.target(to, element)
        kind = self.either(element, "type", "typeexpr")
        sendid: Value = element.get("id")
        if extension.text(element, "id") is not None:
            sendid = extension.value(element, "id")
        return Send(
            event=event,
            to=to,
            delay=self.delay(element) if extension.text(element, "delay") is None else extension.text(element, "delay"),
            id=sendid,
            id_location=self.id_location(element),
            data=data,
            type=None if kind in (SCXML_PROCESSOR, "scxml") else kind,
            restore=extension.choice(element, "restore", ("deadline", "remaining", "restart"), None),
            location=element.location,
        )

    def target(self, text: str, element: Element) -> str:
        """A target of SCXML as ours. An unknown one is marked, so that sending to it fails (W3C 194)."""
        if text.startswith(("#_", "!")) or "/" in text:
            return _TARGETS.get(text, text)
        message = f'unknown target "{text}"; sending to it fails'
        self.diagnostics.warning(
            "scxml.target", message, element.at("target"), f'the target of an invoke is written "#_{text}"'
        )
        return f"!{text}"

    def delay(self, element: Element) -> Value:
        """The delay of a `send`: SCXML's `1.5s` as a duration of ours, or an expression."""
        value = self.either(element, "delay", "delayexpr")
        text = read_value(value.text, "interlock", value.location) if isinstance(value, Expression) else value
        if not isinstance(text, str) or parse_duration(text) is not None:
            return value
        ms = parse_css_duration(text)
        if ms is not None:
            return format_duration(ms)
        if value is text:
            message = f'"{text}" is not a duration'
            self.diagnostics.error("scxml.delay", message, element.at("delay"), "write it like 1.5s or 200ms")
        return value

    def assign(self, element: Element) -> Assign:
        """`assign`. Without a valid location it fails when it runs (W3C 401)."""
        path = self.location(element, "location")
        if path is None:
            message = "<assign> without `location` fails when it runs"
            self.diagnostics.warning("scxml.assign", message, element.location)
        return Assign(values=((path or "", self.inline_or_none(element)),), location=element.location)

    def script(self, element: Element) -> str | None:
        """The text of a script, inline or by `src`."""
        return element.text if element.get("src") is None else self.load(element, "src")


def parse_text(text: str) -> Value:
    """A text as data: JSON if it parses as such, else the text with white space normalised."""
    try:
        value = msgspec.json.decode(text)
    except UNDECODABLE:
        return " ".join(text.split())
    return value if json_problem(value) is None else " ".join(text.split())
