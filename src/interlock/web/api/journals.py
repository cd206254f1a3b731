"""The journal of an entity, a page at a time.

Rule: entries are verified by the store. Behind one that does not follow from the one before, none are shown.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from interlock.errors import CorruptionError, NotFoundError
from interlock.runtime.request_checks import check_entity
from interlock.web.api.views import EntryView, entry_view, masks
from interlock.web.errors import damage_text
from interlock.web.http.endpoint import Endpoint, RequestContext

ENTRIES_MAX = 200

JOURNAL_BYTES_MAX = 1_048_576
"""Bytes of the entries of one answer: an entry may have a quarter of it, and a page asks for a hundred."""


class JournalQuery(Struct, frozen=True):
    """Entries after a version, or the last ones before one."""

    after: Annotated[int, Meta(ge=0)] | None = None
    before: Annotated[int, Meta(ge=1)] | None = None
    limit: Annotated[int, Meta(ge=1, le=ENTRIES_MAX)] = 50


class Damage(Struct, frozen=True):
    """The first entry that does not follow from the one before."""

    version: int
    message: str


class JournalView(Struct, frozen=True):
    """Entries in order, fewer than asked for when they are long. `archived` says where those are that are no longer
    here; behind a damage none are shown.
    """

    entries: tuple[EntryView, ...]
    latest: int
    archived: str | None = None
    damage: Damage | None = None


async def journal(asked: RequestContext) -> JournalView:
    """Entries of an entity, verified."""
    entity, query = asked.path("entity"), asked.query
    kind = check_entity(entity)
    asked.console.check_kind(asked.person, kind)
    runtime = asked.console.runtime
    latest = await runtime.state(entity)
    last = latest.version if query.before is None else min(latest.version, query.before - 1)
    after = max(0, last - query.limit) if query.after is None else query.after
    limit = query.limit if query.after is not None else max(0, last - after)
    damage = None
    try:
        entries = await runtime.journal(entity, after=after, limit=limit) if limit else ()
    except NotFoundError as error:
        if error.code != "journal.archived":
            raise
        return JournalView((), latest.version, error.message)
    except CorruptionError:
        proof = await runtime.verify(entity)
        problem = proof.problem
        if problem is None:  # somebody has just put it right
            raise
        sound = min(limit, proof.entries - after)
        entries = await runtime.journal(entity, after=after, limit=sound) if sound > 0 else ()
        message = damage_text(problem.code, problem.message)
        damage = Damage(proof.entries + 1 if problem.version is None else problem.version, message)
    hidden = masks(runtime.charts.for_revision(kind, latest.revision).chart, asked.person)
    views = [entry_view(each, hidden, asked.may_see_entity) for each in entries]
    return JournalView(_bounded(views, is_newest=query.after is None), latest.version, None, damage)


def _bounded(views: list[EntryView], *, is_newest: bool) -> tuple[EntryView, ...]:
    """As many entries as one answer may hold, at least one: the last of them, or the first."""
    found: list[EntryView] = []
    room = JOURNAL_BYTES_MAX
    for each in reversed(views) if is_newest else views:
        room -= len(msgspec.json.encode(each))
        if room < 0 and found:
            break
        found.append(each)
    return tuple(reversed(found)) if is_newest else tuple(found)


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/journal/{entity:path}",
        summary="Entries of an entity",
        handler=journal,
        query=JournalQuery,
        answer=JournalView,
    ),
)
