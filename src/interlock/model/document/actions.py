"""Expressions, values, guards and actions of documents and charts.

Rule 1: these are values; `kernel/` runs them, `definition/` reads and writes them.
Rule 2: a place is not compared, so a chart that was read back from another format compares equal.
Rule 3: lists and mappings inside a value are never changed in place.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from interlock.errors import NO_LOCATION, SourceLocation


@dataclass(frozen=True, slots=True)
class Expression:
    """A text of the expression language, without YAML's leading `=`.

    `inside` is set by the compiler: the meaning of each literal of `In('...')`, as pairs (literal, state id).
    `malformed` is set by it where the dialect accepts a malformed expression: evaluating it fails with this message.
    """

    text: str
    location: SourceLocation = field(default=NO_LOCATION, compare=False)
    inside: tuple[tuple[str, str], ...] = ()
    malformed: str | None = None


Value = Any
"""A literal JSON value that may contain an `Expression` anywhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardName:
    """A registered pure function of (context, event), or of (context, event, arguments) if `arguments` are given."""

    name: str
    arguments: Value = None
    location: SourceLocation = field(default=NO_LOCATION, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardExpression:
    """An expression, true if Python's truth of its value is."""

    expression: Expression
    location: SourceLocation = field(default=NO_LOCATION, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardAll:
    """True if all of its guards are true; stops at the first that is not."""

    guards: tuple[Guard, ...]
    location: SourceLocation = field(default=NO_LOCATION, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardAny:
    """True if one of its guards is true; stops at the first that is."""

    guards: tuple[Guard, ...]
    location: SourceLocation = field(default=NO_LOCATION, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardNot:
    """True if its guard is false."""

    guard: Guard
    location: SourceLocation = field(default=NO_LOCATION, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardIn:
    """True while the state is active. In a document `state` is an id or a target, in a chart an id."""

    state: str
    location: SourceLocation = field(default=NO_LOCATION, compare=False)


Guard = GuardName | GuardExpression | GuardAll | GuardAny | GuardNot | GuardIn


@dataclass(frozen=True, slots=True, kw_only=True)
class Do:
    """Call a handler: becomes a `call` effect. `arguments` is None or a mapping of values, the handler's input."""

    name: str
    arguments: Value = None
    location: SourceLocation = field(default=NO_LOCATION, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assign:
    """Write values to the context, in the order given; each pair is (dotted path of a field, value)."""

    values: tuple[tuple[str, Value], ...]
    location: SourceLocation = field(default=NO_LOCATION, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignCall:
    """Write the result of a registered pure function of (context, event) to the context: a mapping field -> value."""

    name: str
    arguments: Value = None
    location: SourceLocation = field(default=NO_LOCATION, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Raise:
    """Put an event at the end of the internal queue. `event` is a name or an Expression."""

    event: Value
    data: Value = None
    location: SourceLocation = field(default=NO_LOCATION, compare=False)


RestorePolicy = Literal["deadline", "remaining", "restart"]
"""How downtime affects a timer (S39)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """Send an event: an effect, or with `delay` a timer.

    `to`: None or `self`; `internal`; `parent`; an invoke id; SCXML's `#_...`; `kind/id`; or an Expression giving one.
    `delay`: None, a duration text, or an Expression giving one or whole milliseconds. `restore`: how downtime affects
    it.
    """

    event: Value
    to: Value = None
    delay: Value = None
    id: Value = None
    id_location: str | None = None
    data: Value = None
    type: Value = None
    restore: RestorePolicy | None = None
    location: SourceLocation = field(default=NO_LOCATION, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """Cancel this entity's pending timers of a send id."""

    id: Value
    location: SourceLocation = field(default=NO_LOCATION, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Emit:
    """Publish a message through the outbox; `type` is its CloudEvents type."""

    type: Value
    data: Value = None
    location: SourceLocation = field(default=NO_LOCATION, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """Write a log line after the step is stored."""

    label: str | None = None
    value: Value = None
    location: SourceLocation = field(default=NO_LOCATION, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class If:
    """Run the block of the first branch whose guard is true, else `otherwise`."""

    branches: tuple[tuple[Guard, Block], ...]
    otherwise: Block = ()
    location: SourceLocation = field(default=NO_LOCATION, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreach:
    """Run a block once per item of a shallow copy of a list; `item` and `index` are context fields."""

    items: Value
    item: str
    index: str | None = None
    block: Block
    location: SourceLocation = field(default=NO_LOCATION, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """Code of another language; refused unless the caller provides a trusted language for it."""

    text: str
    location: SourceLocation = field(default=NO_LOCATION, compare=False)


Action = Do | Assign | AssignCall | Raise | Send | Cancel | Emit | Log | If | Foreach | Script
Block = tuple[Action, ...]
"""Actions that run together: an error in one skips the remaining actions."""
