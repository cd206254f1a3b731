"""Indexes on context fields: which exist in a store, how they are built online and removed.

Rule 1: the set of indexed fields is a property of the store: a step writes the keys of all of them, also when the chart
of its entity does not declare them. Otherwise an entity of an older revision would be found by an old value.
Rule 2: from its declaration on, every step keeps an index; `build_index` adds the entities that were there before. An
index of a kind without entities is ready immediately.
Rule 3: building and removal run in parts and can be interrupted and repeated at any point.
"""

from __future__ import annotations

from typing import Literal, Protocol

from msgspec import Struct

from interlock.errors import UsageError
from interlock.model.diagnostics import suggestion
from interlock.model.encoding.index_key import PLAIN_FORMS, IndexedField, IndexForm

IndexState = Literal["building", "ready", "dropping"]


class IndexStatus(Struct, frozen=True):
    """An index: the field of a kind, how its values are read, and `done` entities so far while it is built."""

    kind: str
    field: str
    form: IndexForm
    state: IndexState
    done: int = 0
    cursor: str = ""


class FieldIndexes(Protocol):
    """The indexes on context fields of a store."""

    async def declare_indexes(self, fields: tuple[IndexedField, ...]) -> None:
        """Create the indexes that are missing. Every step that starts afterwards keeps them, in every process."""

    async def indexes(self) -> tuple[IndexStatus, ...]:
        """Return all indexes, by kind and field."""

    async def build_index(self, kind: str, field: str, *, limit: int) -> IndexStatus | None:
        """Add the next entities, at most `limit`; return the index afterwards, or None when it does not exist."""

    async def drop_index(self, kind: str, field: str, *, limit: int) -> IndexStatus | None:
        """Stop keeping an index, and delete at most `limit` of its rows; return it until it is removed, then None."""


def check_searchable(kind: str, field: str, status: IndexStatus | None, known: tuple[str, ...] = ()) -> IndexStatus:
    """Return the index that a condition uses. Raises UsageError when it does not exist or is not complete."""
    if status is None:
        hint = suggestion(field, known) or f"declare it with `index: true` in the chart of `{kind}`"
        raise UsageError(f"`{kind}` has no index on the field `{field}`", code="index.unknown", hint=hint)
    if status.state == "building":
        message = f"the index on `{kind}.{field}` is being built: {status.done:,} entities so far"
        hint = f"`interlock db index build {kind} {field}` continues it"
        raise UsageError(message, code="index.building", hint=hint)
    if status.state == "dropping":
        message = f"the index on `{kind}.{field}` is being removed"
        raise UsageError(message, code="index.dropping", hint=f"`interlock db index drop {kind} {field}` continues it")
    return status


def same_keys(form: str, other: str) -> bool:
    """Return whether values have the same keys in both forms."""
    return form == other or (form in PLAIN_FORMS and other in PLAIN_FORMS)
