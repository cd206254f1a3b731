"""The comments of a definition, which a rewrite in canonical form would lose."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

from interlock.definition.vocabulary.chart import SCHEMA_LINE
from interlock.definition.yaml.parse import LOADER
from interlock.errors import SourceLocation

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
