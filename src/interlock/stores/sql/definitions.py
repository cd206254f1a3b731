"""Definitions in a SQL store.

Rule: sequence numbers are drawn in the transaction that writes the edition, one writer at a time.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from interlock.ports.definitions import (
    Definition,
    Edition,
    StoredDefinition,
    body_digest,
    editions_of_name,
    find_edition,
    next_edition,
    surplus_editions,
)
from interlock.stores.sql.database import Ask, Questions, Statements


def list_editions(sql: Statements, tenant: str, kind: str | None) -> Questions[tuple[Edition, ...]]:
    """Return all editions, of one kind or of all, sorted by kind and sequence."""
    if kind is None:
        rows = yield Ask(sql.definitions, (tenant,))
        aliases = yield Ask(sql.definition_aliases, (tenant,))
    else:
        rows = yield Ask(sql.definitions_of_kind, (tenant, kind))
        aliases = yield Ask(sql.definition_aliases_of_kind, (tenant, kind))
    names: dict[tuple[str, str], list[str]] = {}
    for own, name, revision in aliases:
        names.setdefault((own, revision), []).append(name)
    found = (replace(Edition(*row), names=tuple(sorted(names.get((row[0], row[1]), ())))) for row in rows)
    return tuple(sorted(found, key=lambda each: (each.kind, each.sequence)))


def find_saved(sql: Statements, tenant: str, definition: Definition) -> Questions[Edition | None]:
    """Return the edition of a definition if it is saved whole: its names and its very bytes."""
    found = find_edition((yield from list_editions(sql, tenant, definition.kind)), definition)
    if found is None or (yield from _body(sql, found.digest)) != definition.body:
        return None
    return found


def save_definition(sql: Statements, tenant: str, definition: Definition, now_ms: int) -> Questions[Edition]:
    """Save a definition; return its edition. Runs in one transaction."""
    kind, revision, digest = definition.kind, definition.revision, definition.digest
    if sql.lock_definitions is not None:
        yield Ask(sql.lock_definitions)
    editions = yield from list_editions(sql, tenant, kind)
    saved = next_edition(editions, definition, now_ms=now_ms)
    yield Ask(sql.insert_definition_body, (digest, definition.body))
    yield Ask(
        sql.insert_definition,
        (tenant, kind, revision, digest, saved.sequence, saved.label, saved.saved_ms, saved.written_name),
    )
    for name in definition.names:
        yield Ask(sql.insert_definition_alias, (tenant, kind, name, revision))
    for each in surplus_editions((*editions, saved), revision):
        yield Ask(sql.delete_definition, (tenant, kind, revision, each.digest))
        yield Ask(sql.delete_unused_body, (each.digest,))
    return saved


def read_definitions(sql: Statements, tenant: str, kind: str, name: str) -> Questions[tuple[StoredDefinition, ...]]:
    """Return the revisions that a name means, each with its newest intact edition."""
    found: list[StoredDefinition] = []
    for editions in editions_of_name((yield from list_editions(sql, tenant, kind)), name):
        found.append((yield from _newest_intact(sql, editions)))  # noqa: PERF401 - a comprehension cannot yield
    return tuple(found)


def _newest_intact(sql: Statements, editions: Iterable[Edition]) -> Questions[StoredDefinition]:
    newest = None
    for each in editions:
        body = yield from _body(sql, each.digest)
        if body is not None:
            return StoredDefinition(each, body)
        newest = newest or each
    assert newest is not None  # a revision has an edition
    return StoredDefinition(newest, None)


def _body(sql: Statements, digest: str) -> Questions[bytes | None]:
    rows = yield Ask(sql.definition_body, (digest,))
    body = bytes(rows[0][0]) if rows else b""
    return body if body_digest(body) == digest else None
