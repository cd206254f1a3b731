"""The texts inside smcat, read and written: `event [guard] / actions`, the lines of a state, and names.

Rule 1: smcat gives these texts no meaning beyond their UML form; their meaning here is what our writer writes.
Rule 2: guards and actions keep their text as the name of a registered function; an event's text becomes a valid name.
Rule 3: written texts are one line each: exact if a label can express it, otherwise for people. The writer reads each
        label back to find what is lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from interlock.definition.shapes import compile_pattern
from interlock.definition.smcat.parse import TextSpan
from interlock.definition.source.node import SourceLines
from interlock.definition.vocabulary.names import EVENT
from interlock.errors import SourceLocation
from interlock.model.diagnostics import Diagnostics
from interlock.model.document.actions import (
    Block,
    Do,
    Expression,
    Guard,
    GuardAll,
    GuardAny,
    GuardExpression,
    GuardIn,
    GuardName,
    GuardNot,
    Value,
)
from interlock.model.document.document import Invoke, Origin
from interlock.model.document.wording import action_text, arguments_text, guard_text, name_text
from interlock.model.duration import parse_duration

_NOT_IN_EVENT = re.compile(r"[^\w.-]+")
_ACTIVITY = re.compile(r"(entry|exit|do|activity)\s*/\s*(.*)")
_QUOTES = "'\""
_OPENING, _CLOSING = "([{", ")]}"


def event_name(text: str) -> str:
    """A valid event name made from any text; empty if nothing of the text remains."""
    if is_event(text):
        return text
    return ".".join(filter(None, (part.strip("_") for part in _NOT_IN_EVENT.sub("_", text).split("."))))


def is_event(text: str) -> bool:
    """Whether the text is a valid event name."""
    return compile_pattern(EVENT.pattern or "").fullmatch(text) is not None


@dataclass(slots=True)
class Label:
    """The content of a label.

    `otherwise`: its guard is UML's `[else]`. `has_event`: it names an event. `eventless`: it is `always`.
    """

    origin: Origin = "always"
    events: tuple[str, ...] = ()
    delay: Value = None
    guard: Guard | None = None
    otherwise: bool = False
    actions: Block = ()
    has_event: bool = False
    eventless: bool = False


class LabelReader:
    """Reads the texts of one definition; changed names are reported."""

    def __init__(self, lines: SourceLines, diagnostics: Diagnostics) -> None:
        self.lines = lines
        self.diagnostics = diagnostics

    def label(self, words: TextSpan | None) -> Label:
        """The event, guard and actions of a transition's label."""
        label = Label()
        if words is None:
            return label
        text = words.text
        event_end = next((index for index, each in enumerate(text) if each in "[/"), len(text))
        rest = event_end
        if text[rest : rest + 1] == "[":
            rest = self._guard(label, words, rest)
        slash = text.find("/", rest)
        between = text[rest : slash if slash >= 0 else len(text)].strip()
        if between:
            message = f'"{between}" between the guard and the actions is ignored'
            hint = "write the label as `event [guard] / actions`"
            self.diagnostics.warning("smcat.label", message, self._place(words, rest, len(text)), hint)
        self._event(label, text[:event_end].strip(), self._place(words, 0, event_end))
        if slash >= 0:
            label.actions = self.actions(text[slash + 1 :], self._place(words, slash + 1, len(text)))
        return label

    def _event(self, label: Label, text: str, location: SourceLocation) -> None:
        label.eventless = text == "always"
        if label.eventless or not text:
            return
        label.has_event = True
        if text == "onDone":
            label.origin = "onDone"
        elif (delay := _delay(text, location)) is not None:
            label.origin, label.delay = "after", delay
        else:
            label.origin = "on"
            events = [self._descriptor(each, location) for each in _split(text)]
            label.events = tuple(dict.fromkeys(filter(None, events)))

    def _descriptor(self, text: str, location: SourceLocation) -> str:
        if text == "*" or (text.endswith(".*") and is_event(text[:-2])):
            return text
        name = event_name(text)
        if not name:
            hint = "use dotted names of letters, digits, `_` and `-`"
            self.diagnostics.error("smcat.name", f'"{text}" is not a valid event name', location, hint)
        elif name != text:
            self.diagnostics.info("smcat.renamed", f'event "{text}" becomes "{name}"', location)
        return name

    def _guard(self, label: Label, words: TextSpan, start: int) -> int:
        """Read `[...]` from `start` and return the offset after it. A bracket inside an expression does not end it."""
        text = words.text
        inner = start + 1 + len(text[start + 1 :]) - len(text[start + 1 :].lstrip())
        computed = text.startswith("=", inner)
        end = _closing(text, start) if computed else text.find("]", start)
        if end < 0:
            hint = "close it: `event [guard] / actions`"
            self.diagnostics.error(
                "smcat.label", "this guard is not closed", self._place(words, start, len(text)), hint
            )
            return len(text)
        content = text[inner:end].rstrip()
        location = self._place(words, inner, end)
        if computed:
            body = content[1:].strip()
            at = inner + content.find(body, 1)
            where = self._place(words, at, at + len(body))
            label.guard = GuardExpression(expression=Expression(body, where), location=location)
        elif content.lower() in {"else", "otherwise"}:
            label.otherwise = True
        elif content:
            label.guard = GuardName(name=" ".join(content.split()), location=location)
        return end + 1

    def actions(self, text: str, location: SourceLocation) -> tuple[Do, ...]:
        """The handlers in a text, separated by commas or line ends."""
        names = (each.lstrip("= \t") for each in _split(text))  # a name that starts with `=` would be an expression
        return tuple(Do(name=" ".join(name.split()), location=location) for name in names if name)

    def activities(self, words: TextSpan | None) -> tuple[Block, Block, tuple[Invoke, ...], list[str]]:
        """The entry block, the exit block, the invokes, and the lines that are only text."""
        entry: list[Do] = []
        exit_: list[Do] = []
        invokes: list[Invoke] = []
        notes: list[str] = []
        if words is None:
            return (), (), (), notes
        offset = 0
        for line in words.text.split("\n"):
            location = self._place(words, offset, offset + len(line.rstrip()))
            offset += len(line) + 1
            found = _ACTIVITY.fullmatch(line.strip())
            if found is None:
                notes.extend(filter(None, [line.strip()]))
            elif found[1] == "entry":
                entry += self.actions(found[2], location)
            elif found[1] == "exit":
                exit_ += self.actions(found[2], location)
            else:
                invokes += [Invoke(src=each.name, location=location) for each in self.actions(found[2], location)]
        return tuple(entry), tuple(exit_), tuple(invokes), notes

    def _place(self, words: TextSpan, start: int, end: int) -> SourceLocation:
        return self.lines.location(words.start + start, words.start + max(end, start + 1))


def _delay(text: str, location: SourceLocation) -> str | Expression | None:
    """The delay of `after 5m`, `after(5m)` or `after = expression`; None if the text is something else."""
    if not text.startswith("after") or text[5:6] not in {" ", "\t", "\n", "(", "="}:
        return None
    content = text[5:].strip()
    if content.startswith("(") and content.endswith(")"):
        content = content[1:-1].strip()
    if content.startswith("="):
        return Expression(content[1:].strip(), location)
    joined = content.replace(" ", "")
    return joined if parse_duration(joined) is not None else None


def _split(text: str) -> list[str]:
    """The parts between commas and line ends outside brackets and quotes."""
    parts = [part.strip() for line in text.split("\n") for part in _split_line(line)]
    return list(filter(None, parts))


def _split_line(line: str) -> list[str]:
    parts, start, depth, quote = [], 0, 0, ""
    for index, each in enumerate(line):
        if quote:
            quote = "" if each == quote else quote
        elif (
            each in _QUOTES and line.find(each, index + 1) >= 0
        ):  # an apostrophe (`customer's`) does not start a quotation
            quote = each
        elif each in _OPENING:
            depth += 1
        elif each in _CLOSING:
            depth = max(0, depth - 1)
        elif each == "," and depth == 0:
            parts.append(line[start:index])
            start = index + 1
    return [*parts, line[start:]]


def _closing(text: str, start: int) -> int:
    """The offset of the bracket that closes the one at `start`, ignoring quotations; -1 if there is none."""
    depth, quote = 0, ""
    for index in range(start, len(text)):
        each = text[index]
        if quote:
            quote = "" if each == quote else quote
        elif each in _QUOTES:
            quote = each
        elif each in "[]":
            depth += 1 if each == "[" else -1
            if depth == 0:
                return index
    return -1


_BARE_NAME = re.compile(r"[A-Za-z0-9_.^][A-Za-z0-9_.^]*")
_LABEL_QUOTED = re.compile(r'[;{"]|\A/[/*]')
_ACTIVITY_QUOTED = re.compile(r'[,;{"]|\A/[/*]')


def quote(text: str) -> str:
    r"""The text in smcat's quotes. The only escape is `\"`, so a backslash cannot be the last character."""
    return '"' + text.replace('"', '\\"') + (' "' if text.endswith("\\") else '"')


def quote_state_name(name: str) -> str:
    """A state's name, in quotes if it needs them."""
    return name if _BARE_NAME.fullmatch(name) else quote(name)


def quote_label(text: str) -> str:
    """A transition's label, in quotes if it needs them."""
    return quote(text) if _LABEL_QUOTED.search(text) else text


def quote_activities(lines: Iterable[str], indent: str) -> str:
    """A state's activities, one per line, in quotes if one of them needs them."""
    text = f"\n{indent}".join(lines)
    return quote(text) if _ACTIVITY_QUOTED.search(text) else text


def fold_lines(text: str) -> str:
    """The text on one line: if it has line ends, all white space is folded."""
    return " ".join(text.split()) if len(text.splitlines()) > 1 else text.strip()


def guard_expression(guard: Guard) -> str | None:
    """The guard as one equivalent expression; None if it calls a registered function."""
    match guard:
        case GuardExpression():
            return fold_lines(guard.expression.text)
        case GuardIn():
            return f"In({guard.state!r})"
        case GuardAll() | GuardAny():
            parts = [guard_expression(each) for each in guard.guards]
            word, empty = (" and ", "true") if isinstance(guard, GuardAll) else (" or ", "false")
            return None if None in parts else word.join(f"({part})" for part in parts) or empty
        case GuardNot():
            inner = guard_expression(guard.guard)
            return None if inner is None else f"not ({inner})"
        case _:
            return None


def label_guard(guard: Guard) -> str:
    """The text in the brackets of a label: exact if it is an expression or a name, otherwise for people to read."""
    expression = guard_expression(guard)
    if expression is not None:
        return f"= {expression}"
    arguments = arguments_text(guard.arguments) if isinstance(guard, GuardName) else ""
    return fold_lines(guard_text(guard) + arguments).replace("[", "(").replace("]", ")")


def label_actions(block: Block) -> str:
    """The actions of a block on one line."""
    return ", ".join(fold_lines(action_text(action)) for action in block)


def label_value(value: Value) -> str:
    """A value on one line."""
    return fold_lines(name_text(value))
