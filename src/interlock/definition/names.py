"""Keys, ids and kinds from names of other formats."""

from __future__ import annotations

import re

_NOT_IN_KEY = re.compile(r"[^\w-]+")
_NOT_IN_ID = re.compile(r"[\s,*=#]+")


def clean_key(text: str) -> str:
    """The text as a key: letters, digits, `_` and `-`, no `_` at either end; empty if nothing remains."""
    return _NOT_IN_KEY.sub("_", text).strip("_")


def key_from_text(text: str, default: str = "state") -> str:
    """The text if it is a valid key, otherwise a key made from it, or the default."""
    return text if text and not _NOT_IN_KEY.search(text) else clean_key(text) or default


def id_from_text(text: str) -> str:
    """The text as an id: dotted words, in which white space and the characters `, * = #` become `_`."""
    parts = [_NOT_IN_ID.sub("_", part) for part in text.split(".")]
    return ".".join(part for part in parts if part) or "state"


def kind_from_source(source: str) -> str:
    """The kind of a chart that does not name one: its file name up to the first dot."""
    return clean_key(source.replace("\\", "/").rsplit("/", 1)[-1].split(".", 1)[0]) or "chart"
