"""Tokens: what is stored in place of a personal value.

    {"$personal": "<base64url of: version byte | id of the data key | sealed value>"}

A token is an ordinary JSON value. The kernel, the stores and the buses copy and compare it like any other; only
`trust.sealing` makes and opens tokens.

Rule 1: a sender cannot give a token: the key is reserved in everything that comes from outside (`reserved_problem`).
Otherwise a sender could put a token that it has seen into a field which is shown to it.
Rule 2: the empty token means a value that was erased before it was stored. No key opens it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

TOKEN_KEY = "$personal"  # noqa: S105 - the name of a key, not a secret
"""The only key of a token."""

ERASED: dict[str, Any] = {TOKEN_KEY: ""}
"""The token of an erased value."""

KEY_FIELD = "_personal"
"""The name in the context under which an entity with personal data has the id of its data key (ADR 0135).

While the entity has its key: the id. After an erasure: `{"kid": <id>, "erased_ms": <time>}`.
"""

QUOTED_KEY = b'"$personal"'
"""What the JSON of a value contains if the key is in it, perhaps as a text: only then it is searched."""


def is_token(value: Any) -> bool:
    """Whether a value is a token."""
    return type(value) is dict and len(value) == 1 and type(value.get(TOKEN_KEY)) is str


def tokens_in(value: Any) -> Iterator[dict[str, Any]]:
    """Every token in a JSON value, at any depth. Without recursion, because the value may be deep."""
    level = [value]
    while level:
        each = level.pop()
        kind = type(each)
        if kind is dict:
            if is_token(each):
                yield each
            else:
                level += each.values()
        elif kind is list or kind is tuple:
            level += each


def contains_token(value: Any) -> bool:
    """Whether there is a token in a JSON value, at any depth."""
    return next(tokens_in(value), None) is not None


def reserved_problem(value: Any) -> str | None:
    """Return that a value from outside has the reserved key, or None. As a text it is allowed."""
    level = [value]
    while level:
        each = level.pop()
        if type(each) is dict:
            if TOKEN_KEY in each:
                return f"the key `{TOKEN_KEY}` is reserved for sealed personal data"
            level += each.values()
        elif type(each) is list:
            level += each
    return None
