"""Plain values to readable YAML text: short values on one line, longer ones in blocks.

Rule 1: every text reads back as the same value by YAML 1.2, and a string never as another type by YAML 1.1. The key
        `on` is the only exception: it is a word of the vocabulary, and our keys are strings as written.
Rule 2: a scalar is never wrapped; a text of several lines is a literal block if YAML can represent it so.
Rule 3: `states` is always a block: it is the skeleton that people look for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

from interlock.definition.yaml.parse import is_not_a_string

_WIDTH = 100
_FLOW_DEPTH_MAX = 4
_KEY_LENGTH_MAX = 1_000
"""YAML ends an implicit key after 1,024 characters; longer ones are written with `?`."""

_BLOCK_KEYS = frozenset({"states"})
_LISTED_KEYS = frozenset({"context", "events"})
"""Keys that are blocks at the top level if they have more than one entry, one line for each."""

_PLAIN = re.compile(r"(?!\.\.\.|---)[\w./][\w./+*()<>=@;!$%'-]*(?: [\w./+*()<>=@;!$%'-]+)*")
_ONE_LETTER = frozenset("yYnN")
"""Booleans of YAML 1.1 that PyYAML's own loader leaves out."""

_SPECIAL = re.compile("[^\\x20-\\x7e\\xa1-\\u2027\\u202a-\\ud7ff\\ue000-\\ufefe\\uff00-\\ufffd\\U00010000-\\U0010ffff]")
_ESCAPES = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\0": "\\0"}


def print_yaml(tree: dict[str, Any]) -> str:
    """The text of a mapping, each top-level key on a separate line."""
    return "".join(f"{line}\n" for line in _mapping(tree, 0, top=True))


def scalar_text(value: Any) -> str:
    """A scalar on one line."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return value if _is_plain(value) else _quoted(value)
        case float():
            text = repr(value)
            # YAML 1.1 requires a point in every float.
            return text if "." in text else text.replace("e", ".0e")
        case _:
            return str(value)


def _is_plain(text: str) -> bool:
    """Whether a string needs no quotes: it has harmless characters only, and no reader parses it as another type."""
    if not _PLAIN.fullmatch(text) or text in _ONE_LETTER or is_not_a_string(text):
        return False
    resolvers = yaml.SafeLoader.yaml_implicit_resolvers.get(text[0], [])
    return not any(pattern.match(text) for _, pattern in resolvers)


def _quoted(text: str) -> str:
    """A string in double quotes, or in single quotes if that saves escapes."""
    if ('"' in text or "\\" in text) and not _SPECIAL.search(text):
        doubled = text.replace("'", "''")
        return f"'{doubled}'"
    escaped = _SPECIAL.sub(_escape, text.replace("\\", "\\\\").replace('"', '\\"'))
    return f'"{escaped}"'


def _escape(match: re.Match[str]) -> str:
    sign = match[0]
    code = ord(sign)
    return _ESCAPES.get(sign) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


def _key_text(key: str) -> str:
    return key if key == "on" else scalar_text(key)


def _flow(value: Any, depth: int = 0) -> str | None:
    """The value on one line; None if it would be too deep to read, or contains a part that needs its own lines."""
    if isinstance(value, dict):
        if depth >= _FLOW_DEPTH_MAX or any(key in _BLOCK_KEYS for key in value):
            return None
        parts = []
        for key, each in value.items():
            inner, text = _flow(each, depth + 1), _key_text(key)
            if inner is None or len(text) > _KEY_LENGTH_MAX:
                return None
            parts.append(f"{text}: {inner}")
        return "{" + ", ".join(parts) + "}"
    if isinstance(value, list):
        if depth >= _FLOW_DEPTH_MAX:
            return None
        items = []
        for each in value:
            item = _flow(each, depth + 1)
            if item is None:
                return None
            items.append(item)
        return "[" + ", ".join(items) + "]"
    return None if isinstance(value, str) and _literal(value) is not None else scalar_text(value)


def _literal(text: str) -> list[str] | None:
    """Header and lines of a literal block; None if the text must be quoted instead."""
    body = text.removesuffix("\n")
    lines = body.split("\n")
    if len(lines) == 1 or any(each != each.strip() or not each or _SPECIAL.search(each) for each in lines):
        return None
    return ["|" if body != text else "|-", *lines]


def _value(prefix: str, value: Any, indent: int, *, block: bool = False) -> Iterator[str]:
    """The lines of a value after `key:` or `-`, which are in `prefix` with their indentation."""
    short = None if block and value else _flow(value)
    if short is not None and len(prefix) + 1 + len(short) <= _WIDTH:
        yield f"{prefix} {short}"
    elif isinstance(value, dict) and value:
        yield from _nested(prefix, _mapping(value, indent + 2), indent)
    elif isinstance(value, list) and value:
        yield from _nested(prefix, _items(value, indent + 2), indent)
    elif isinstance(value, str) and (literal := _literal(value)) is not None:
        header, *lines = literal
        yield f"{prefix} {header}"
        yield from (" " * (indent + 2) + each for each in lines)
    else:
        yield f"{prefix} {scalar_text(value) if short is None else short}"


def _nested(prefix: str, lines: Iterator[str], indent: int) -> Iterator[str]:
    """A block below its key; after the dash of a list item it starts on the same line."""
    if prefix.endswith("-"):
        yield f"{prefix} {next(lines)[indent + 2 :]}"
    else:
        yield prefix
    yield from lines


def _mapping(value: dict[str, Any], indent: int, *, top: bool = False) -> Iterator[str]:
    for key, each in value.items():
        text = _key_text(key)
        block = key in _BLOCK_KEYS or (top and key in _LISTED_KEYS and len(each) > 1)
        if len(text) > _KEY_LENGTH_MAX:
            yield f"{' ' * indent}? {text}"
            yield from _value(" " * indent + ":", each, indent)
        else:
            yield from _value(f"{' ' * indent}{text}:", each, indent, block=block)


def _items(value: list[Any], indent: int) -> Iterator[str]:
    for each in value:
        yield from _value(" " * indent + "-", each, indent)
