"""Parsed text with places, and what the parsers of all formats share: limits, numbers, positions and paths.

Rule 1: the size of a text is checked and the text decoded here, before any parser reads it.
Rule 2: the digits of a number are counted before it is converted; the standard conversion is quadratic in them.
Rule 3: paths are for people and therefore short: values may be 96 levels deep under keys of any length.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from interlock.errors import Place
from interlock.model.diagnostics import Diagnostics
from interlock.model.limits import DEFINITION_BYTES_MAX, INTEGER_BITS_MAX, INTEGER_DIGITS_MAX

Scalar = None | bool | int | float | str


@dataclass(frozen=True, slots=True)
class Node:
    """A scalar, a list of nodes, or a mapping of nodes with the place of each key.

    `is_exact`: the place is that of the value itself. Otherwise it is that of a surrounding text, such as an attribute.
    """

    value: Scalar | list[Node] | dict[str, Node]
    place: Place
    keys: dict[str, Place] = field(default_factory=dict)
    is_exact: bool = True

    @classmethod
    def within(cls, value: Any, place: Place) -> Node:
        """The node of plain JSON that was written inside a place."""
        if isinstance(value, dict):
            inner = {key: cls.within(each, place) for key, each in value.items()}
            return cls(inner, place, dict.fromkeys(inner, place), is_exact=False)
        if isinstance(value, list):
            return cls([cls.within(each, place) for each in value], place, is_exact=False)
        return cls(value, place, is_exact=False)

    def plain(self) -> Any:
        """The value as plain JSON, without places."""
        if isinstance(self.value, dict):
            return {key: each.plain() for key, each in self.value.items()}
        if isinstance(self.value, list):
            return [each.plain() for each in self.value]
        return self.value


_PATH_LENGTH_MAX = 200
_PATH_KEY_LENGTH_MAX = 60
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+")
_LINE_BREAK = re.compile(r"\r\n|\r|\n")
_SURROGATE = re.compile("[\ud800-\udfff]")


def decode_source(
    text: str | bytes,
    *,
    language: str,
    source: str,
    diagnostics: Diagnostics,
    bytes_max: int = DEFINITION_BYTES_MAX,
) -> str | None:
    """The text without a byte order mark; None, and a diagnostic, if it is too large or not UTF-8."""
    if len(text) > bytes_max:
        _too_large(language, source, diagnostics, bytes_max)
        return None
    if isinstance(text, bytes):
        try:
            text = text.decode()
        except UnicodeDecodeError as error:
            message = f"the text is not UTF-8: byte {error.start} cannot be decoded"
            diagnostics.error(f"{language}.encoding", message, Place(source), "save the file as UTF-8")
            return None
    elif (lone := _SURROGATE.search(text)) is not None:
        message = f"the text cannot be encoded as UTF-8: character {lone.start()} is a lone surrogate"
        diagnostics.error(f"{language}.encoding", message, Place(source))
        return None
    elif len(text.encode()) > bytes_max:
        _too_large(language, source, diagnostics, bytes_max)
        return None
    return text.removeprefix("\ufeff")


def _too_large(language: str, source: str, diagnostics: Diagnostics, bytes_max: int) -> None:
    message = f"the text is larger than {bytes_max:,} bytes"
    diagnostics.error(
        f"{language}.size", message, Place(source), "split the chart, and `invoke` one part from the other"
    )


def lone_surrogate(text: str) -> bool:
    """Whether a decoded string contains a lone surrogate, which cannot be encoded as UTF-8."""
    return _SURROGATE.search(text) is not None


def parse_integer(digits: str, base: int = 10) -> int | str:
    """The integer of the digits (with a sign), or a sentence why it is refused."""
    if len(digits) > INTEGER_DIGITS_MAX:
        return f"a number has more than {INTEGER_DIGITS_MAX} digits"
    number = int(digits, base)
    if number.bit_length() > INTEGER_BITS_MAX:
        return f"an integer has more than {INTEGER_BITS_MAX} bits"
    return number


def parse_float(text: str) -> float | str:
    """The number of a decimal text, or a sentence why it is refused."""
    if len(text) > INTEGER_DIGITS_MAX:
        return f"a number has more than {INTEGER_DIGITS_MAX} digits"
    number = float(text)
    return number if isfinite(number) else "a number must be finite"


def key_path(parent: str, key: str) -> str:
    """The path of a mapping's value: `states.paid`, `on[order.canceled]`."""
    if len(parent) > _PATH_LENGTH_MAX:
        return f"{parent.removesuffix('…')}…"
    if len(key) > _PATH_KEY_LENGTH_MAX:
        key = f"{key[:_PATH_KEY_LENGTH_MAX]}…"
    elif _PLAIN_KEY.fullmatch(key):
        return f"{parent}.{key}" if parent else key
    return f"{parent}[{key}]"


def item_path(parent: str, index: int) -> str:
    """The path of a list's item: `entry[0]`."""
    return key_path(parent, "") if len(parent) > _PATH_LENGTH_MAX else f"{parent}[{index}]"


class SourceLines:
    """Turns offsets of a text into places."""

    __slots__ = ("source", "starts")

    def __init__(self, text: str, source: str) -> None:
        self.source = source
        self.starts = [0, *(each.end() for each in _LINE_BREAK.finditer(text))]

    def place(self, start: int, end: int, path: str = "") -> Place:
        """The place from one offset to another, the end not included."""
        line, end_line = bisect_right(self.starts, start), bisect_right(self.starts, end)
        column, end_column = start - self.starts[line - 1] + 1, end - self.starts[end_line - 1] + 1
        return Place(self.source, line, column, end_line, end_column, path)
