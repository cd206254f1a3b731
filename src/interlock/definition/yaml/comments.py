"""The comments of a definition, and how they are carried to a rewrite of it in canonical form.

Rule 1: a comment on its own line belongs to the key or list item that follows; one at the end of a line to the first
key or item of that line. It is found again by its path, whatever the rewrite does to lines and order.
Rule 2: if that path no longer exists, the comment goes to the nearest mapping or list around it. None is
lost. If several would be at the end of one line, each gets a separate line above it.
Rule 3: carrying is stable: a text with carried comments is its own rewrite.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from interlock.definition.source.node import Node
from interlock.definition.vocabulary.chart import SCHEMA_LINE
from interlock.definition.yaml.parse import LOADER, parse_yaml
from interlock.errors import SourceLocation
from interlock.model.diagnostics import Diagnostics

Path = tuple[str | int, ...]
"""Where a key or an item is: the keys and positions that lead to it."""


@dataclass(frozen=True, slots=True)
class _Anchor:
    """The start of a key or of a list item: its line and column, from 1, and its path."""

    line: int
    column: int
    path: Path


_COMMENT = re.compile(r"(?:(?<=[ \t])|^)#.*")


def find_comments(text: str, *, source: str = "<definition>") -> list[SourceLocation]:
    """The places of all comments in a well-formed YAML text, except the schema line."""
    masked = list(text)
    events: Iterator[Any] = yaml.parse(text, Loader=LOADER)
    for event in events:
        if isinstance(event, yaml.ScalarEvent):
            start, end = _content(event, text)
            masked[start:end] = ("\n" if each == "\n" else "x" for each in text[start:end])
    found = []
    for number, line in enumerate("".join(masked).split("\n"), 1):
        match = _COMMENT.search(line.rstrip("\r"))
        if match is not None and (number, match[0]) != (1, SCHEMA_LINE):
            found.append(SourceLocation(source, number, match.start() + 1, number, match.end() + 1))
    return found


def _content(event: Any, text: str) -> tuple[int, int]:
    """The range in which a `#` is not a comment: a scalar, except the header line of a block."""
    start, end = event.start_mark.index, event.end_mark.index
    return (text.find("\n", start, end) + 1 or end, end) if event.style in ("|", ">") else (start, end)


def carry_comments(text: str, rewritten: str) -> str:
    """Return a rewrite of a well-formed text, with the comments of the text."""
    lines = text.split("\n")
    anchors = _anchors(text)
    above: dict[Path, list[str]] = {}
    beside: dict[Path, list[str]] = {}
    below: list[str] = []
    for place in find_comments(text):
        line = lines[place.line - 1].rstrip("\r")
        comment = line[place.column - 1 :].rstrip()
        if comment == SCHEMA_LINE:  # the rewrite has it in its first line
            continue
        if line[: place.column - 1].strip():
            own = [each for each in anchors if each.line <= place.line]
            beside.setdefault(_first_of_line(own, own[-1].line).path if own else (), []).append(comment)
        else:
            following = next((each for each in anchors if each.line > place.line), None)
            (below if following is None else above.setdefault(following.path, [])).append(comment)
    return _with_comments(rewritten, above, beside, below)


def _with_comments(text: str, above: dict[Path, list[str]], beside: dict[Path, list[str]], below: list[str]) -> str:
    anchors = {each.path: each for each in _anchors(text)}
    first = min((each.line for each in anchors.values()), default=1)
    before: dict[int, list[str]] = {}
    after: dict[int, list[str]] = {}
    for paths, found in ((above, before), (beside, after)):
        for path, comments in paths.items():
            anchor = _nearest(anchors, path)
            found.setdefault(first if anchor is None else anchor.line, []).extend(comments)
    result: list[str] = []
    for number, line in enumerate(text.removesuffix("\n").split("\n"), 1):
        indent = line[: len(line) - len(line.lstrip(" "))]
        own, ends = before.get(number, []), after.get(number, [])
        if len(ends) > 1:
            own, ends = [*own, *ends], []
        result += [f"{indent}{each}" for each in own]
        result.append("  ".join([line, *ends]))
    return "".join(f"{each}\n" for each in [*result, *below])


def _nearest(anchors: dict[Path, _Anchor], path: Path) -> _Anchor | None:
    while path and path not in anchors:
        path = path[:-1]
    return anchors.get(path)


def _first_of_line(anchors: Iterable[_Anchor], line: int) -> _Anchor:
    return min((each for each in anchors if each.line == line), key=lambda each: each.column)


def _anchors(text: str) -> list[_Anchor]:
    """Return every key and list item of a well-formed text, in the order of the text."""
    root = parse_yaml(text, source="<definition>", diagnostics=Diagnostics())
    found = [] if root is None else list(_anchors_of(root, ()))
    return sorted(found, key=lambda each: (each.line, each.column))


def _anchors_of(node: Node, path: Path) -> Iterator[_Anchor]:
    if isinstance(node.value, dict):
        for key, value in node.value.items():
            place = node.keys[key]
            yield _Anchor(place.line, place.column, (*path, key))
            yield from _anchors_of(value, (*path, key))
    elif isinstance(node.value, list):
        for number, value in enumerate(node.value):
            yield _Anchor(value.location.line, value.location.column, (*path, number))
            yield from _anchors_of(value, (*path, number))
