r"""What every part of the XState reader shares: the states, the findings, and how plain values are taken.

Rule 1: a wrong type is told and read as absent, so that all problems come out at once.
Rule 2: in a value place a string that begins with `=` is an expression of ours, `\=` a literal `=` (the rule of YAML).
XState itself knows no such strings; they come from our writer, or from an author who wants values computed in JSON.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from interlock.definition.codec import read_value
from interlock.definition.source.node import Located
from interlock.definition.xstate.nodes import Node, States
from interlock.errors import Place
from interlock.model.diagnostics import Findings, suggestion
from interlock.model.document.actions import Expression, Value
from interlock.model.document.field import type_name
from interlock.model.duration import format_duration, parse_duration

OLD_KEYS = ("cond", "in", "internal", "data", "activities", "autoForward", "onEntry", "onExit")
"""Keys of XState 4: never guessed, because the meaning of the rest differs too."""


@dataclass(slots=True)
class Source:
    """One definition being read. `four`: it is said to be of XState 4. `assigns`: actions that write the context."""

    findings: Findings
    states: States
    name: str
    four: bool = False
    assigns: frozenset[str] = frozenset()
    ids: dict[str, str] = field(default_factory=dict)

    def error(self, code: str, message: str, place: Place, hint: str | None = None) -> None:
        """Tell what makes the definition unusable."""
        self.findings.error(code, message, place, hint)

    def mapping(self, located: Located, wish: str) -> dict[str, Located] | None:
        """The mapping; None, and a finding, when it is something else."""
        if isinstance(located.value, dict):
            return located.value
        self.wrong(located, wish)
        return None

    def text(self, located: Located | None, wish: str) -> str | None:
        """The text; None when absent, and with a finding when it is something else or empty."""
        if located is None:
            return None
        if isinstance(located.value, str) and located.value:
            return located.value
        self.wrong(located, wish)
        return None

    def description(self, content: dict[str, Located]) -> str | None:
        """What `description` says, be it nothing; None when absent, and with a finding when it is no text."""
        located = content.get("description")
        if located is None:
            return None
        if isinstance(located.value, str):
            return located.value
        self.wrong(located, "a description")
        return None

    def texts(self, located: Located | None, wish: str) -> tuple[str, ...]:
        """One text or a list of them, as a tuple."""
        if located is None:
            return ()
        return tuple(text for each in items(located) if (text := self.text(each, wish)) is not None)

    def wrong(self, located: Located, wish: str) -> None:
        """Tell that a value has the wrong type."""
        self.error("value.type", f"this must be {wish}, not {type_name(located.plain())}", located.place)

    def unknown(self, located: Located, known: Collection[str], what: str) -> None:
        """Warn of keys that mean nothing here; refuse those of XState 4."""
        assert isinstance(located.value, dict)
        for key in located.value:
            place = located.keys.get(key, located.place)
            if key in known:
                continue
            if key in OLD_KEYS and not self.four:
                hint = "read it as format xstate4, or rewrite it for XState 5"
                self.error("xstate.version", f'"{key}" is a key of XState 4', place, hint)
            else:
                message = f'"{key}" means nothing in {what}'
                self.findings.warning("key.unknown", message, place, suggestion(key, known))

    def target(self, node: Node, located: Located) -> Node | None:
        """The state that a target names; None, and a finding, when there is none."""
        text = self.text(located, "a target")
        if text is None:
            return None
        found = self.states.target(node, text)
        if isinstance(found, str):
            self.error("target.unknown", found, located.place)
            return None
        return found


def items(located: Located) -> list[Located]:
    """The items of a list, or the value itself as the only one."""
    return located.value if isinstance(located.value, list) else [located]


def delay_of(source: Source, located: Located) -> Value:
    """A delay: whole milliseconds, a duration, or an expression. A name is refused: JSON brings no delays for it."""
    value = read_value(located)
    if isinstance(value, Expression):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 and value == int(value):
        return format_duration(int(value))
    if isinstance(value, str) and parse_duration(value) is not None:
        return value
    hint = 'write whole milliseconds, a duration such as "30s", or "= expression"'
    if isinstance(value, str):
        source.error(
            "delay.name", f'the delay "{value}" is a name, and JSON cannot say what it means', located.place, hint
        )
    else:
        source.error("delay.type", "a delay must be whole milliseconds", located.place, hint)
    return "0ms"
