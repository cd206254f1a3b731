"""The texts of the vocabulary: names, events, targets and durations (V6, V7).

Rule 1: patterns are written for JSON Schema, with its classes for letters (L) and digits (N) of any script.
Rule 2: reserved names (`model.event`) match these patterns: the dialect decides whether they are allowed.
"""

from __future__ import annotations

from dataclasses import replace

from interlock.definition.shapes import Text
from interlock.model.limits import NAME_BYTES_MAX

_WORD = r"[\p{L}\p{N}_-]+"
_PART = r"[^\s.,*=#]+"
_EVENT = rf"{_PART}(?:\.{_PART})*"
_DESCRIPTOR = rf"(?:\*|{_EVENT}(?:\.\*?)?)"
_PATH = rf"{_WORD}(?:\.{_WORD})*"
_UNIT_HINT = "write a whole number with a unit, such as 30s or 1h30m"

DURATION_PATTERN = r"(?=[0-9])(?:[0-9]{1,12}d)?(?:[0-9]{1,12}h)?(?:[0-9]{1,12}m)?(?:[0-9]{1,12}s)?(?:[0-9]{1,12}ms)?"

TEXT = Text()
TEXT_VALUE = Text(value=True)
NAME = Text(
    what="a name",
    pattern=r"[^=][\s\S]*",
    code="name.invalid",
    hint="a name is not empty and does not start with =",
)
NAME_VALUE = replace(NAME, value=True)
"""A name in a place where an expression is allowed: a literal leading `=` is written `\\=`."""
NAME_OR_EXPRESSION = Text(what="a name or an expression", pattern=r"[\s\S]+", code="name.invalid", value=True)
EXPRESSION = Text(
    what="an expression",
    pattern=r"=[\s\S]*",
    code="value.expression",
    hint='an expression starts with "="',
    value=True,
)

KEY = Text(what="a name of letters, digits, _ and -", pattern=_WORD, code="name.invalid", bytes_max=NAME_BYTES_MAX)
KIND = Text(
    what="a dotted name of letters, digits, _ and -", pattern=_PATH, code="name.invalid", bytes_max=NAME_BYTES_MAX
)
ID = Text(
    what="a dotted name without white space, comma, * or =",
    pattern=_EVENT,
    code="name.invalid",
    bytes_max=NAME_BYTES_MAX,
)
FIELD = Text(what="a field name without white space or dot", pattern=r"[^\s.]+", code="name.invalid")
FIELD_PATH = Text(what="a field, or a dotted path to one", pattern=r"[^\s.]+(?:\.[^\s.]+)*", code="name.invalid")
EVENT = Text(
    what="an event: dotted tokens without white space, comma, * or =",
    pattern=_EVENT,
    code="name.invalid",
    bytes_max=NAME_BYTES_MAX,
)
EVENT_OR_EXPRESSION = Text(
    what="an event or an expression", pattern=_EVENT, code="name.invalid", expression=True, bytes_max=NAME_BYTES_MAX
)
DESCRIPTORS = Text(
    what="an event descriptor",
    pattern=rf"\s*{_DESCRIPTOR}(?:\s*,\s*{_DESCRIPTOR})*\s*",
    code="name.invalid",
    hint="write it like `paid`, `payment.*`, `a, b.*` or `*`",
)
TARGET = Text(
    what="a target",
    pattern=rf"#{_EVENT}|\.?{_PATH}",
    code="name.invalid",
    hint="write it like `paid`, `live.power`, `.child` or `#id`",
)
DAY = Text(what="a day", pattern=r"[0-9]{4}-[0-9]{2}-[0-9]{2}", code="removed.day", hint="write it like 2027-01-31")
ARCHIVE = Text(
    what="the address of a folder",
    pattern=r"file:///[^\s?#]+",
    code="retention.archive",
    hint="write it like file:///var/archive/orders",
)
DURATION = Text(what="a duration", pattern=DURATION_PATTERN, code="duration.invalid", hint=_UNIT_HINT)
DELAY = Text(
    what="a duration or an expression",
    pattern=DURATION_PATTERN,
    code="duration.invalid",
    hint=_UNIT_HINT,
    expression=True,
)
BACKOFF = Text(
    what="a duration or a range of durations",
    pattern=rf"{DURATION_PATTERN}(?:\.\.{DURATION_PATTERN})?",
    code="duration.invalid",
    hint="write it like 1s or 1s..30s",
)
