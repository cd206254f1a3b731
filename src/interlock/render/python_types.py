"""Python types of a chart: what `interlock types` writes, for type checkers and editors.

Rule 1: the text depends on the chart only, and the same chart gives the same bytes: `--check` compares bytes.
Rule 2: the module has no behaviour. The facade is a cast: at run time it is the runtime itself.
        Types are evaluated when the module is imported, so pydantic and msgspec see which keys may be absent; only
        the names of Interlock are quoted, so importing it loads no runtime.
Rule 3: a type never refuses a value that the chart accepts, except an event name that the chart does not write. What
        the chart does not say is `Any`.
Rule 4: a string with a `format` may be written as the Python value, such as a datetime, and is read as a string.
Rule 5: a name that is taken gets a number: the events `a.b` and `a_b` have the payloads `ABPayload` and `ABPayload2`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from keyword import iskeyword

from interlock.model.charts.chart import Chart
from interlock.model.charts.sites import block_sites, event_names, takes_any_event
from interlock.model.document.actions import Do, Expression, Value
from interlock.model.document.document import EventType
from interlock.model.document.field import UNSET, Field
from interlock.model.document.formats import Format
from interlock.model.effect import CHART_TYPES

_TYPING = ("Any", "Literal", "NotRequired", "Protocol", "TYPE_CHECKING", "TypeAlias", "TypedDict", "Unpack")
_FUNCTIONS = ("cast", "overload")
_OURS = ("BlockingRuntime", "Receipt", "Runtime", "SendOptions", "Snapshot")
_BUILTINS = ("str", "int", "float", "bool", "dict", "list", "tuple", "Mapping")
_FORMATS: dict[Format, tuple[str, str]] = {
    "date-time": ("datetime", "datetime"),
    "date": ("datetime", "date"),
    "time": ("datetime", "time"),
    "duration": ("datetime", "timedelta"),
    "decimal": ("decimal", "Decimal"),
    "uuid": ("uuid", "UUID"),
}
"""The module and the class from which each format of a string is written; `byte` needs no import."""

_SCALARS = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "any": "Any"}
_WORD = re.compile(r"[^\W_]+")
_CONTEXT_FIELD = re.compile(r"\s*context\.([^\W\d]\w*)\s*")
_OR_NONE = " | None"
_LINE_LENGTH = 100
"""A longer list has one value per line."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """One key of a TypedDict."""

    name: str
    type: str
    required: bool = True


def python_types(chart: Chart) -> str:
    """Return a Python module with the types of a chart.

    It has the names of states, events and handlers as `Literal`, the context, payloads and inputs of handlers as
    `TypedDict`, and a typed facade of `Runtime` and `BlockingRuntime`. Inline charts are not part of it.
    """
    return _Module(chart).text()


class _Module:
    """The module of one chart while it is written. Inner types come before those that use them."""

    def __init__(self, chart: Chart) -> None:
        self.chart = chart
        self.formats = {field.format for field in _fields(chart) if field.format is not None}
        classes = {_FORMATS[each][1] for each in self.formats if each in _FORMATS}
        self.taken = {*_TYPING, *_FUNCTIONS, *_OURS, *_BUILTINS, *classes}
        words = _words(chart.kind)
        self.stem = _identifier(_pascal(chart.kind), "Chart")
        self.prefix = _identifier("_".join(each.lower() for each in words), "chart_")
        self.parts: list[str] = []
        self.read_types: dict[str, str] = {}

    def text(self) -> str:
        """The whole module."""
        names = {
            name: self.unique(f"{self.stem}{name}")
            for name in ("State", "Event", "Handler", "Context", "InitialContext", "Runtime")
        }
        names["Blocking"] = self.unique(f"Blocking{self.stem}Runtime")
        chart = self.chart
        states = [each.id for each in chart.states[1:] if each.type != "history"] or [chart.states[0].id]
        self.alias(names["State"], states)
        events = event_names(chart)
        is_open = takes_any_event(chart) or (chart.events is None and any(each.endswith("*") for each in events))
        self.alias(names["Event"], events, is_open=is_open)
        self.alias(names["Handler"], chart.handlers)
        create = self.contexts(names["Context"], names["InitialContext"])
        sends = list(self.sends(names["Event"], has_events=is_open or bool(events)))
        self.inputs()
        self.protocol(names["Runtime"], "async def", create, sends)
        self.protocol(names["Blocking"], "def", create, sends)
        self.functions(names)
        return "\n\n".join([self.head(), *self.parts]) + "\n"

    def head(self) -> str:
        """The comment and the imports, without those that are not used."""
        body = "\n".join(self.parts)
        used = [each for each in (*_TYPING, *_FUNCTIONS) if each == "TYPE_CHECKING" or re.search(rf"\b{each}\b", body)]
        return (
            f"# Types of the chart `{self.chart.kind}`, revision {self.chart.revision}.\n"
            "# Written by `interlock types`. Do not edit: change the chart, and write them again.\n"
            "# ruff: noqa\n"
            "# fmt: off\n"
            "from collections.abc import Mapping\n"
            f"{self.format_imports(body)}"
            f"from typing import {', '.join(used)}\n\n"
            "if TYPE_CHECKING:\n"
            f"    from interlock import {', '.join(_OURS)}"
        )

    def format_imports(self, body: str) -> str:
        """The imports of the classes from which formats are written, without those that are not used."""
        found: dict[str, set[str]] = {}
        for module, name in (_FORMATS[each] for each in self.formats if each in _FORMATS):
            if re.search(rf"\b{name}\b", body):
                found.setdefault(module, set()).add(name)
        return "".join(f"from {module} import {', '.join(sorted(found[module]))}\n" for module in sorted(found))

    def unique(self, name: str) -> str:
        """A name that is not taken yet."""
        number, found = 1, name
        while found in self.taken:
            number += 1
            found = f"{name}{number}"
        self.taken.add(found)
        return found

    # Parts of the module

    def alias(self, name: str, values: Iterable[str], *, is_open: bool = False) -> None:
        """Names of the chart as a `Literal`; `str` if the chart accepts others too."""
        texts = list(dict.fromkeys(map(_quoted, values)))
        if is_open:
            self.parts.append(f"{name}: TypeAlias = str")
        elif texts:
            line = f"{name}: TypeAlias = Literal[{', '.join(texts)}]"
            if len(line) > _LINE_LENGTH:
                line = "\n".join([f"{name}: TypeAlias = Literal[", *(f"    {each}," for each in texts), "]"])
            self.parts.append(line)

    def contexts(self, name: str, initial: str) -> str:
        """The context as it is read and as it is given to `create`; returns the parameter of `create`."""
        late, hidden = self.chart.binding == "late", self.chart.hidden_fields
        read: dict[str, _Entry] = {}
        given: list[_Entry] = []
        for state in self.chart.states:
            for field in state.context:
                if field.name in hidden:
                    continue
                text = self.type(field, self.stem)
                absent = field.default is UNSET and not (field.required and state.index == 0)
                self.read_types[field.name] = _optional(text) if absent else text
                present = state.index == 0 or not late
                read[field.name] = _Entry(field.name, self.read_types[field.name], present)
                if state.index == 0:
                    given.append(_Entry(field.name, _written(field, text), field.required))
        self.typed_dict(name, list(read.values()))
        if not given:
            return ""
        self.typed_dict(initial, given)
        return (
            f", context: {initial}" if any(each.required for each in given) else f", context: {initial} | None = None"
        )

    def sends(self, alias: str, *, has_events: bool) -> Iterator[str]:
        """The parameters of each `send`: one for each declared event, or one for all if no event is declared."""
        if self.chart.events is None:
            if has_events:
                yield f", event: {alias}, payload: Any = None"
            return
        for event in self.chart.events:
            if event.direction == "in":
                yield f", event: Literal[{_quoted(event.name)}]{self.payload(event)}"

    def payload(self, event: EventType) -> str:
        """The parameter of a payload."""
        if event.payload is None:
            return ", payload: Any = None"
        if not event.payload:
            return ""
        stem = _identifier(_pascal(event.name), "Event")
        name = self.unique(f"{stem}Payload")
        self.typed_dict(name, self.entries(event.payload, stem))
        needed = any(each.required and each.default is UNSET for each in event.payload)
        return f", payload: {name}" if needed else f", payload: {name} | None = None"

    def inputs(self) -> None:
        """The input of each handler, from every place of the chart that calls it."""
        found: dict[str, list[Value]] = {each: [] for each in self.chart.handlers}
        for name, value in _calls(self.chart):
            found.setdefault(name, []).append(value)
        for handler, values in found.items():
            stem = _identifier(_pascal(handler), "Handler")
            name = self.unique(f"{stem}Input")
            if all(isinstance(each, dict) for each in values):
                self.typed_dict(name, self.shared_entries(values, name))
            else:
                self.parts.append(f"{name}: TypeAlias = {self.shape(values, f'{name}Object')}")

    def protocol(self, name: str, define: str, create: str, sends: list[str]) -> None:
        """The facade of one kind of runtime."""
        options = (
            "key: str | None = None, principal: Mapping[str, Any] | None = None, trace: str | None = None, "
            "reason: str | None = None"
        )
        lines = [f"class {name}(Protocol):", f'    """A runtime, as entities of `{self.chart.kind}` use it."""']
        lines += ["", f'    {define} create(self, entity: str{create}, *, {options}) -> "Receipt": ...']
        for each in sends:
            lines += ["", *(["    @overload"] if len(sends) > 1 else [])]
            lines.append(
                f'    {define} send(self, entity: str{each}, **options: Unpack["SendOptions"]) -> "Receipt": ...'
            )
        self.parts.append("\n".join(lines))

    def functions(self, names: dict[str, str]) -> None:
        """The functions of the module. Each is a cast."""
        typed, blocking = names["Runtime"], names["Blocking"]
        name = f"{self.prefix}_runtime"
        self.parts.append(
            f'@overload\ndef {name}(runtime: "Runtime") -> {typed}: ...\n'
            f'@overload\ndef {name}(runtime: "BlockingRuntime") -> {blocking}: ...\n'
            f'def {name}(runtime: "Runtime | BlockingRuntime") -> "{typed} | {blocking}":\n'
            f'    """Return the same runtime, with the types of this chart."""\n'
            f'    return cast("{typed} | {blocking}", runtime)'
        )
        self.parts.append(
            f'def {self.prefix}_context(snapshot: "Snapshot") -> {names["Context"]}:\n'
            f'    """Return the context of a snapshot, with its type."""\n'
            f'    return cast("{names["Context"]}", snapshot.context)'
        )
        self.parts.append(
            f'def {self.prefix}_states(snapshot: "Snapshot") -> tuple[{names["State"]}, ...]:\n'
            f'    """Return the active states of a snapshot, with their type."""\n'
            f'    return cast("tuple[{names["State"]}, ...]", snapshot.configuration)'
        )

    # Types of fields

    def type(self, spec: Field, stem: str) -> str:
        """The type of a field."""
        choices = _choices(spec)
        text = f"Literal[{', '.join(choices)}]" if choices else self.base(spec, stem)
        return _optional(text) if spec.nullable or spec.type == "any" else text

    def base(self, spec: Field, stem: str) -> str:
        """The type of a field that is not null and has no list of values."""
        if spec.type in _SCALARS:
            return _SCALARS[spec.type]
        if spec.type == "array":
            return (
                "list[Any]" if spec.items is None else f"list[{self.type(spec.items, f'{stem}{_pascal(spec.name)}')}]"
            )
        if spec.fields is None:
            return "dict[str, Any]"
        inner = _identifier(f"{stem}{_pascal(spec.name)}", "Object")
        name = self.unique(inner)
        self.typed_dict(name, self.entries(spec.fields, inner))
        return name

    def entries(self, fields: Iterable[Field], stem: str) -> list[_Entry]:
        """The keys of an object that a program writes: a field with a default may be left out."""
        return [
            _Entry(each.name, _written(each, self.type(each, stem)), each.required and each.default is UNSET)
            for each in fields
        ]

    def typed_dict(self, name: str, entries: list[_Entry]) -> None:
        """Add a TypedDict. A key that cannot be written as an attribute needs the functional form."""
        texts = {each.name: each.type if each.required else f"NotRequired[{each.type}]" for each in entries}
        if all(self.is_attribute(each) for each in texts):
            lines = [f"    {key}: {text}" for key, text in texts.items()] or ["    pass"]
            self.parts.append("\n".join([f"class {name}(TypedDict):", *lines]))
        else:
            lines = [f"    {_quoted(key)}: {text}," for key, text in texts.items()]
            self.parts.append("\n".join([f'{name} = TypedDict("{name}", {{', *lines, "})"]))

    def is_attribute(self, key: str) -> bool:
        """Whether a key can be an attribute: not mangled, and not the name of a type that another attribute uses."""
        is_name = key.isascii() and key.isidentifier() and not iskeyword(key)
        return is_name and not key.startswith("__") and key not in self.taken

    # Types of inputs

    def shape(self, values: list[Value], stem: str) -> str:
        """The type of the values that one place of an input has, over all calls of its handler."""
        objects = [each for each in values if isinstance(each, dict)]
        lists = [each for each in values if isinstance(each, list)]
        texts = [self.scalar(each) for each in values if not isinstance(each, dict | list)]
        if lists:
            items = [item for each in lists for item in each]
            texts.append(f"list[{self.shape(items, stem) if items else 'Any'}]")
        if objects:
            name = self.unique(_identifier(stem, "Object"))
            self.typed_dict(name, self.shared_entries(objects, name))
            texts.append(name)
        return _union(texts)

    def shared_entries(self, objects: list[Value], stem: str) -> list[_Entry]:
        """The keys of an input: those that only some calls give may be absent."""
        keys = dict.fromkeys(key for each in objects for key in each)
        return [
            _Entry(
                key,
                self.shape([each[key] for each in objects if key in each], f"{stem}{_pascal(key)}"),
                all(key in each for each in objects),
            )
            for key in keys
        ]

    def scalar(self, value: Value) -> str:
        """The type of a literal, or of an expression that reads one field of the context."""
        if isinstance(value, Expression):
            field = _CONTEXT_FIELD.fullmatch(value.text)
            return "Any" if field is None else self.read_types.get(field[1], "Any")
        return "None" if value is None else type(value).__name__


def _fields(chart: Chart) -> Iterator[Field]:
    """Every field of the context and of payloads, with the fields inside it."""
    stack = [field for state in chart.states for field in state.context]
    stack += [field for event in chart.events or () for field in event.payload or ()]
    while stack:
        field = stack.pop()
        yield field
        stack += [*(() if field.items is None else (field.items,)), *(field.fields or ())]


def _written(spec: Field, text: str) -> str:
    """The type of a field that a program writes: a string with a format, or the value that is written in it."""
    if spec.type == "array" and spec.items is not None and spec.items.format is not None:
        items = _written(spec.items, "str")  # a list of both is neither
        return text.replace("list[str]", f"list[str] | list[{items.rpartition(' ')[2]}]")
    if spec.format is None or spec.type != "string" or "str" not in text:
        return text
    name = "bytes" if spec.format == "byte" else _FORMATS[spec.format][1]
    return text.replace("str", f"str | {name}", 1)


def _optional(text: str) -> str:
    """The type of a value that may be null."""
    return text if text == "Any" or text.endswith(_OR_NONE) else f"{text}{_OR_NONE}"


def _union(texts: list[str]) -> str:
    if "Any" in texts:
        return "Any"
    parts = list(dict.fromkeys(each.removesuffix(_OR_NONE) for each in texts if each != "None"))
    nullable = "None" in texts or any(each.endswith(_OR_NONE) for each in texts)
    return " | ".join([*parts, *(["None"] if nullable else [])])


def _choices(spec: Field) -> list[str]:
    """The values of `enum` for a `Literal`, which cannot have numbers with a fraction, arrays or objects."""
    values = [each for each in spec.enum or () if each is not None]
    if spec.type == "number" or not all(type(each) in (str, int, bool) for each in values):
        return []
    return list(dict.fromkeys(_quoted(each) if isinstance(each, str) else repr(each) for each in values))


def _calls(chart: Chart) -> Iterator[tuple[str, Value]]:
    """Every handler that the chart calls by name, with the input of that call."""
    for state in chart.states:
        for invoke in state.invokes:
            if isinstance(invoke.src, str) and invoke.type not in CHART_TYPES:
                yield invoke.src, invoke.input
            if invoke.late is not None:
                given = invoke.late.input or {}
                yield invoke.late.name, {"compensates": Expression(""), **given} if isinstance(given, dict) else given
    for site in block_sites(chart):
        for action in site.actions():
            if isinstance(action, Do):
                yield action.name, action.arguments


def _words(text: str) -> list[str]:
    return _WORD.findall(text)


def _pascal(text: str) -> str:
    return "".join(each[:1].upper() + each[1:] for each in _words(text))


def _identifier(text: str, default: str) -> str:
    """The text as a part of a Python name: after the default if it cannot come first, else the default alone."""
    if text.isidentifier() and not iskeyword(text):
        return text
    return f"{default}{text}" if f"{default}{text}".isidentifier() else default


def _quoted(text: str) -> str:
    """A string literal: JSON's escapes are Python's too."""
    return json.dumps(text, ensure_ascii=not text.isprintable())
