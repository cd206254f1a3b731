"""The syntax of smcat: states, bodies in braces, arrows, attributes and notes, with the place of each.

Rule 1: this module knows syntax only; `states` decides the type of each state.
Rule 2: what state-machine-cat 14 accepts is accepted with the same meaning, with two exceptions: a name with `}` must
        be quoted, and `a :> b` before all other statements is always a state with activities (there only if it can be).
Rule 3: after a problem reading continues after the next `;`, so that all problems are reported together.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from interlock.definition.source.node import SourceLines
from interlock.errors import SourceLocation
from interlock.model.diagnostics import Diagnostics, suggestion
from interlock.model.limits import DEPTH_MAX, STATES_MAX, TRANSITIONS_MAX

STATE_TYPES = (
    "regular", "initial", "terminate", "final", "parallel", "history", "deephistory",
    "choice", "forkjoin", "fork", "join", "junction",
)  # fmt: skip

FORWARD = ("->", "=>>", "=>", ">>", ":>", "--", "==")
BACKWARD = ("<-", "<<=", "<=", "<<", "<:")

_PROBLEMS_MAX = 100  # a text that is not smcat should not give a diagnostic per character
_SPACE = re.compile(r"(?:[ \t\r\n]++|//[^\r\n]*+)*+")
_BARE = re.compile(r'[^;, "\t\n\r=\-><:{}\[]+')
_QUOTED = re.compile(r'"((?:\\"|[^"])*+)"')
_NOTE = re.compile(r"#([^\r\n]*)")
_ACTIVITY = re.compile(r"[^,;{]*")
_LABEL = re.compile(r"[^;{]*")
_WORD = re.compile(r"[A-Za-z]+")
_WIDTH = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")
_CLASS = re.compile(r"[a-zA-Z0-9_\- ]*")
_ATTRIBUTES_REST = re.compile(r'(?:"(?:\\"|[^"])*+"|[^];{}"])*+\]')
_SKIPPED = re.compile(r'"(?:\\"|[^"])*+"|[;{}]')
_ARROW = re.compile("|".join(map(re.escape, (*FORWARD, *BACKWARD))))


Attributes = dict[str, str | float | bool]
"""The attributes in brackets: texts, a width, and `active`."""


@dataclass(slots=True)
class TextSpan:
    """A piece of text and the offset of its first character."""

    text: str
    start: int


@dataclass(slots=True)
class Arrow:
    """`source -> target [attributes]: label;` as written; a backward arrow is reversed."""

    source: str
    target: str
    location: SourceLocation
    label: TextSpan | None = None
    attributes: Attributes = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Declaration:
    """`name [attributes]: activities { body }` as written."""

    name: str
    location: SourceLocation
    attributes: Attributes = field(default_factory=dict)
    activities: TextSpan | None = None
    body: Body | None = None
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Body:
    """The content of braces, or of the whole text: declarations first, then arrows."""

    declarations: list[Declaration] = field(default_factory=list)
    arrows: list[Arrow] = field(default_factory=list)


def parse_smcat(text: str, lines: SourceLines, diagnostics: Diagnostics) -> Body | None:
    """The syntax tree of a text; None, and a diagnostic, if it is too large or too deep."""
    parser = _Parser(text, lines, diagnostics)
    body = parser.body(0)
    return None if parser.stopped else body


class _Parser:
    """A cursor over the text. Methods that read a part return None after they have reported a problem."""

    def __init__(self, text: str, lines: SourceLines, diagnostics: Diagnostics) -> None:
        self.text = text
        self.lines = lines
        self.diagnostics = diagnostics
        self.position = 0
        self.comments_end = text.rfind("*/")
        self.problems = 0
        self.states = 0
        self.arrows = 0
        self.stopped = False

    def body(self, depth: int) -> Body:
        """Everything up to the closing brace, or to the end of the text."""
        body = Body()
        declaring, listing = True, False
        while not self.stopped:
            notes = self._notes()
            if depth == 0 and self._eat("}"):
                self._problem("unexpected `}`", start=self.position - 1)
                continue
            if self._at_end(depth, notes, listing=listing):
                break
            start = self.position
            name = self._name("a state's name")
            self._space()
            if name is None:
                self._recover()
                declaring = listing = False
            elif listing or (declaring and not self._at_arrow()):
                separator = self._declaration(body, Declaration(name, self._place(start), notes=notes), depth)
                listing = separator == ","
                declaring = listing
            else:
                declaring = False
                if not self._arrow(body, name, notes, start):
                    self._recover()
        return body

    def _at_end(self, depth: int, notes: list[str], *, listing: bool) -> bool:
        if self.position < len(self.text):
            if self.text[self.position] != "}":
                return False
        elif depth > 0:
            self._problem("`}` is missing at the end of the text")
        if notes:
            self._problem("a note must be before a state or a transition", hint="write a comment: `// ...`")
        if listing:
            self._problem("a state is missing after the comma", hint="end the list of states with `;`")
        return True

    def _declaration(self, body: Body, state: Declaration, depth: int) -> str | None:
        """Read what follows the name of a state; returns the separator that ends it."""
        self.states += 1
        if self.states > STATES_MAX:
            self._stop("smcat.size", f"the chart has more than {STATES_MAX:,} states")
            return None
        whole = self._declared(state, depth)
        self._add(body, state)
        self._space()
        if whole and not self.stopped:
            separator = self.text[self.position : self.position + 1]
            if separator in {",", ";"}:
                self.position += 1
                return separator
            hint = "states are declared first, in one list that ends with `;`, then the transitions follow"
            self._problem(f'`,` or `;` is missing after state "{state.name}"', hint=hint)
        self._recover()
        return None

    def _declared(self, state: Declaration, depth: int) -> bool:
        if self._eat("["):
            attributes = self._attributes(("label", "color", "class", "active", "type"), STATE_TYPES)
            if attributes is None:
                return False
            state.attributes = attributes
            self._space()
        if self._eat(":"):
            self._space()
            state.activities = self._words(_ACTIVITY)
            self._space()
        if self._eat("{"):
            if depth + 1 >= DEPTH_MAX:
                self._stop("smcat.depth", f"states are nested more than {DEPTH_MAX} levels deep")
                return False
            opened = self.position
            state.body = self.body(depth + 1)
            if not self.stopped and not (state.body.declarations or state.body.arrows):
                self._problem(f'no state between the braces of "{state.name}"', start=opened - 1, end=opened)
            self._eat("}")
        return True

    def _add(self, body: Body, state: Declaration) -> None:
        """A state declared twice in one body is the last one, at the position of the first."""
        for index, each in enumerate(body.declarations):
            if each.name == state.name:
                message = f'state "{state.name}" is declared twice; the last declaration counts'
                self.diagnostics.warning("smcat.state_repeated", message, state.location, "remove one of the two")
                body.declarations[index] = state
                return
        body.declarations.append(state)

    def _arrow(self, body: Body, name: str, notes: list[str], start: int) -> bool:
        found = _ARROW.match(self.text, self.position)
        if found is None:
            at = self.text[self.position : self.position + 1]
            if at and at in ",;[:{":
                message = f'state "{name}" is declared after transitions'
                hint = "declare all states of a body in one list, before its transitions"
                self._problem(message, start=start, hint=hint)
            else:
                self._problem("expected an arrow such as `->`")
            return False
        self.arrows += 1
        if self.arrows > TRANSITIONS_MAX:
            self._stop("smcat.size", f"the chart has more than {TRANSITIONS_MAX:,} transitions")
            return False
        self.position = found.end()
        self._space()
        other = self._name("the state at the other end of the arrow")
        if other is None:
            return False
        source, target = (name, other) if found[0] in FORWARD else (other, name)
        arrow = Arrow(source, target, self._place(start), notes=notes)
        return self._arrow_rest(arrow) and self._arrow_end(body, arrow)

    def _arrow_rest(self, arrow: Arrow) -> bool:
        self._space()
        if self._eat("["):
            attributes = self._attributes(("color", "class", "type", "width"), ("external", "internal"))
            if attributes is None:
                return False
            arrow.attributes = attributes
            self._space()
        if self._eat(":"):
            self._space()
            arrow.label = self._words(_LABEL)
            self._space()
        return True

    def _arrow_end(self, body: Body, arrow: Arrow) -> bool:
        if self._eat(";"):
            body.arrows.append(arrow)
            return True
        self._problem(
            "`;` is missing after this transition", hint='put a label that contains `{` or `;` in quotes: "..."'
        )
        return False

    def _attributes(self, known: tuple[str, ...], types: tuple[str, ...]) -> Attributes | None:
        """The attributes between brackets. Names are not case-sensitive; the last one of a name counts."""
        found: Attributes = {}
        while True:
            self._space()
            if self._eat("]"):
                return found
            if not self._attribute(found, known, types):
                rest = _ATTRIBUTES_REST.match(self.text, self.position)
                if rest is None:
                    return None
                self.position = rest.end()
                return found

    def _attribute(self, found: Attributes, known: tuple[str, ...], types: tuple[str, ...]) -> bool:
        word = _WORD.match(self.text, self.position)
        name = word[0].lower() if word else ""
        if word is None or name not in known:
            hint = suggestion(name, known) or f"the attributes here are {', '.join(known)}"
            end = word.end() if word else self.position + 1
            self._problem(f'unknown attribute "{self.text[self.position : end]}"', end=end, hint=hint)
            return False
        self.position = word.end()
        value = True if name == "active" else self._attribute_value(name, types)
        if value is not None:
            found[name] = value
        return value is not None

    def _attribute_value(self, name: str, types: tuple[str, ...]) -> str | float | None:
        self._space()
        if not self._eat("="):
            self._problem(f"the value of `{name}` is missing: `{name}=...`")
            return None
        self._space()
        if name == "type":
            word = _WORD.match(self.text, self.position)
            if word is not None and word[0] in types:
                self.position = word.end()
                return word[0]
            end = word.end() if word else self.position + 1
            hint = suggestion(word[0] if word else "", types) or f"the types are {', '.join(types)}"
            self._problem(f'unknown type "{self.text[self.position : end]}"', end=end, hint=hint)
            return None
        if name == "width":
            number = _WIDTH.match(self.text, self.position)
            if number is None:
                self._problem("`width` must be a number, such as 3.5")
                return None
            self.position = number.end()
            return float(number[0])
        quoted = _QUOTED.match(self.text, self.position)
        if quoted is None or (name == "class" and not _CLASS.fullmatch(quoted[1])):
            kind = "letters, digits, `_`, `-` and spaces in" if name == "class" else "a text in"
            self._problem(f'`{name}` must be {kind} quotes: `{name}="..."`')
            return None
        self.position = quoted.end()
        return quoted[1].replace('\\"', '"')

    def _notes(self) -> list[str]:
        notes: list[str] = []
        self._space()
        while (note := _NOTE.match(self.text, self.position)) is not None:
            notes.append(note[1].strip())
            self.position = note.end()
            self._space()
        return notes

    def _name(self, expected: str) -> str | None:
        if self.text.startswith("/*", self.position):
            self._problem("this comment is not closed", end=self.position + 2, hint="end it with `*/`")
            return None
        found = _QUOTED.match(self.text, self.position)
        if found is not None:
            self.position = found.end()
            return found[1].replace('\\"', '"')
        found = _BARE.match(self.text, self.position)
        if found is None:
            at = self.text[self.position : self.position + 1]
            hint = "this quote is not closed" if at == '"' else 'a name with such a character needs quotes: "..."'
            self._problem(f"{expected} is missing here", hint=hint if at else None)
            return None
        self.position = found.end()
        return found[0]

    def _words(self, unquoted: re.Pattern[str]) -> TextSpan:
        """A text in quotes, or up to the next separator."""
        quoted = _QUOTED.match(self.text, self.position)
        if quoted is not None:
            self.position = quoted.end()
            return TextSpan(quoted[1].replace('\\"', '"'), quoted.start() + 1)
        if self.text.startswith('"', self.position):
            location = self._place(self.position, self.position + 1)
            self.diagnostics.warning("smcat.quote", "this quote is not closed and counts as text", location)
        found = unquoted.match(self.text, self.position)
        assert found is not None  # the patterns match an empty text too
        self.position = found.end()
        return TextSpan(found[0].rstrip(), found.start())

    def _at_arrow(self) -> bool:
        """Whether a transition starts here. Before all declarations `:>` starts activities."""
        found = _ARROW.match(self.text, self.position)
        return found is not None and found[0] != ":>"

    def _space(self) -> None:
        while True:  # ends: each iteration moves past a comment
            found = _SPACE.match(self.text, self.position)
            assert found is not None  # the pattern matches an empty text too
            self.position = found.end()
            # Searching a missing end again for each label would take quadratic time.
            if not self.text.startswith("/*", self.position) or self.position + 2 > self.comments_end:
                return
            self.position = self.text.index("*/", self.position + 2) + 2

    def _eat(self, token: str) -> bool:
        if self.text.startswith(token, self.position):
            self.position += len(token)
            return True
        return False

    def _recover(self) -> None:
        """Move after the next `;` of this body, or before its closing brace."""
        depth = 0
        for found in _SKIPPED.finditer(self.text, self.position):
            if found[0] == "}" and depth == 0:
                self.position = found.start()
                return
            depth += {"{": 1, "}": -1}.get(found[0], 0)
            if found[0] == ";" and depth == 0:
                self.position = found.end()
                return
        self.position = len(self.text)

    def _place(self, start: int, end: int = -1) -> SourceLocation:
        return self.lines.location(start, self.position if end < 0 else end)

    def _problem(self, message: str, *, start: int = -1, end: int = -1, hint: str | None = None) -> None:
        """Report a problem, by default at the cursor."""
        start = self.position if start < 0 else start
        location = self._place(start, max(self.position, start + 1) if end < 0 else end)
        self.diagnostics.error("smcat.syntax", message, location, hint)
        self.problems += 1
        if self.problems >= _PROBLEMS_MAX:
            self._stop("smcat.problems", f"more than {_PROBLEMS_MAX} problems; the remaining text is not read")

    def _stop(self, code: str, message: str) -> None:
        self.diagnostics.error(code, message, self._place(self.position, self.position + 1))
        self.stopped = True
