"""Reading as another user: what `Runtime.state`, `journal`, `watch` and the others answer with `reader=`.

Rule 1: the chart of the newest version decides what a reader sees of a whole entity. Without that chart, only a reader
        with the right to see everything gets an answer.
Rule 2: versions that a reader gives and gets are visible ones. Those of the journal are found by bisection, because the
        number of unseen entries never falls.
Rule 3: an entity that the reader may not see is unknown, with the same error.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from interlock.errors import NotFoundError, UnavailableError, UsageError
from interlock.kernel.explain import Candidate
from interlock.kernel.step import Kernel
from interlock.model.charts.chart import Chart
from interlock.model.journal.entry import Entry
from interlock.model.snapshot import Snapshot
from interlock.model.visible import MASK, VisibleSnapshot
from interlock.ports.delivery import CHART_MISSING_CODES
from interlock.ports.reading.statistics import StateCount
from interlock.ports.store import ENDED_STATES, PAGE_MAX, EntityPage, EntityQuery, EntityRow
from interlock.runtime.charts.registry import unknown_kind
from interlock.runtime.entities.permissions import Reader
from interlock.runtime.history.replay import At, entries_after, parse_moment, state_at
from interlock.runtime.reading.field_walk import find_by_walk, find_conditions, meets, read_snapshot, walk
from interlock.runtime.reading.visible_lists import complete_counts, visible_query
from interlock.runtime.request_checks import check_principal, unknown_entity
from interlock.trust.visibility import Lens, VisibleEntry, lens_for

if TYPE_CHECKING:
    from interlock.runtime.entities.entities import Entities

EntryWatch = Callable[[int], AsyncGenerator[Entry, None]]


class ReaderViews:
    """Reads the entities of one runtime for readers."""

    def __init__(self, entities: Entities) -> None:
        self._entities = entities
        self._revisions = entities.revisions
        self._store = entities.store

    async def lens(self, snapshot: Snapshot, reader: Reader) -> Lens:
        """Return the lens of a reader on an entity. Raises NotFoundError if the reader sees no such entity."""
        checked = check_principal(reader, now_ms=self._entities.clock.now_ms()) or {}
        try:
            chart = await self._revisions.chart(snapshot.kind, snapshot.revision)
        except UnavailableError as error:
            if error.code in CHART_MISSING_CODES:  # nothing says what is hidden
                raise unknown_entity(snapshot.entity) from None
            raise
        lens = lens_for(chart, checked)
        if lens.shown(snapshot) is None:
            raise unknown_entity(snapshot.entity)
        return lens

    async def state(self, entity: str, reader: Reader, at: At | None) -> VisibleSnapshot:
        """As `Runtime.state`."""
        latest, _ = await self._entities.load_snapshot(entity)
        lens = await self.lens(latest, reader)
        found = latest if at is None else await self._at(lens, latest, at)
        visible = await self._visible(lens, found)
        if visible is None:
            raise unknown_entity(entity)
        return visible

    async def _visible(self, lens: Lens, snapshot: Snapshot) -> VisibleSnapshot | None:
        """Return an entity as the reader sees it, with personal data opened."""
        shown, vault = lens.shown(snapshot), self._entities.process.vault
        if shown is None or vault is None:
            return lens.snapshot(snapshot)
        return lens.snapshot(snapshot, shown=await vault.open_snapshot(shown))

    async def _at(self, lens: Lens, latest: Snapshot, at: At) -> Snapshot:
        """Return the snapshot at a visible version or at a time. Raises NotFoundError."""
        wanted = parse_moment(at)
        if wanted.version is not None:
            version = await self._journal_version(lens, latest, wanted.version)
            if version is None:
                raise NotFoundError(f"`{latest.entity}` has no entry at version {at}", code="entity.not_then")
            at = version
        loaded = await self._entities.load(latest.entity)
        if not lens.hides:
            return await state_at(self._store, self._revisions, latest.entity, loaded, at)
        try:
            found = await state_at(self._store, self._revisions, latest.entity, loaded, at)
            records = await self._store.read(latest.entity, after=found.version - 1, limit=1)
        except NotFoundError:
            found, records = None, ()
        if found is not None and found.sight is not None and records:  # a replay counts what is older, too
            found = replace(found, sight=replace(found.sight, unseen=records[0].entry.unseen))
        if found is None or found.version < lens.first(latest) or lens.shown(found) is None:
            where = f"version {wanted.version}" if wanted.version is not None else f"{at}"
            raise NotFoundError(f"`{latest.entity}` has no entry at {where}", code="entity.not_then")
        return found

    async def journal(self, entity: str, reader: Reader, after: int, limit: int | None) -> tuple[VisibleEntry, ...]:
        """As `Runtime.journal`, by visible versions."""
        latest, _ = await self._entities.load_snapshot(entity)
        lens = await self.lens(latest, reader)
        found: list[VisibleEntry] = []
        start = await self._start(lens, latest, after)
        if start is None:
            return ()
        version, before = start
        while limit is None or len(found) < limit:  # ends with the journal
            page = await entries_after(self._store, entity, after=version, limit=PAGE_MAX)
            opened = [await self._opened(each) for each in page if each.version <= latest.version]
            seen = lens.entries(opened, before)
            found += seen
            before = seen[-1].after if seen else before
            if len(page) < PAGE_MAX:
                break
            version = page[-1].version
        return tuple(found if limit is None else found[:limit])

    async def watch(
        self, entity: str, reader: Reader, after: int, entries: EntryWatch
    ) -> AsyncGenerator[VisibleEntry, None]:
        """As `Runtime.watch`, by visible versions. `entries` watches the journal after a version."""
        latest, _ = await self._entities.load_snapshot(entity)
        lens = await self.lens(latest, reader)
        start = await self._start(lens, latest, after)
        if start is None:  # after the newest version: it may come later
            start = latest.version, ()
        version, before = start
        async for entry in entries(version):
            if entry.revision != latest.revision:  # it was moved meanwhile
                latest, _ = await self._entities.load_snapshot(entity)
                lens = await self.lens(latest, reader)
            visible = lens.entry(entry, before)
            if visible is not None:
                before = visible.after
                if visible.version > after:
                    yield visible

    async def shown(self, entity: str, reader: Reader) -> tuple[Kernel, Snapshot, Lens]:
        """As `Runtime.shown`."""
        snapshot, _ = await self._entities.load_snapshot(entity)
        lens = await self.lens(snapshot, reader)
        shown = lens.shown(snapshot)
        assert shown is not None
        return await self._revisions.for_preview(shown, needs_functions=False), shown, lens

    async def can(self, entity: str, reader: Reader) -> tuple[Candidate, ...]:
        """As `Runtime.can`: the answer of the cover, without transitions of hidden states and without values."""
        kernel, shown, lens = await self.shown(entity, reader)
        found = kernel.candidates(shown)
        if lens.mask is None:
            return found
        return tuple(
            replace(each, values={}, error=None) for each in found if not lens.hides_transition(each.transition)
        )

    async def visible_counts(self, kind: str, reader: Reader) -> tuple[StateCount, ...] | None:
        """As `Runtime.visible_counts`."""
        checked = check_principal(reader, now_ms=self._entities.clock.now_ms()) or {}
        charts = await self._charts(kind)
        lenses = [lens_for(each, checked) for each in charts]
        if not any(each.hides for each in lenses):
            return None
        if all(each.hides and not each.is_closed for each in lenses):
            counts = await complete_counts(self._store, kind, charts)
            if counts is not None:
                return tuple(each for each in counts.visible if each.state)
        await self.check_kind(kind, reader)
        return None

    async def check_kind(self, kind: str, reader: Reader) -> None:
        """Raise NotFoundError, as for an unknown kind, where lists and counts would show hidden states to a reader."""
        checked = check_principal(reader, now_ms=self._entities.clock.now_ms()) or {}
        if any(lens_for(each, checked).hides for each in await self._charts(kind)):
            visible = []
            for name in self._revisions.charts.kinds():
                if not any(lens_for(each, checked).hides for each in await self._charts(name)):
                    visible.append(name)  # noqa: PERF401 - awaits
            raise unknown_kind(kind, visible)

    async def _charts(self, kind: str) -> tuple[Chart, ...]:
        """Return the charts of a kind that this process or the store has. Raises as `Revisions.chart` does."""
        found = [each.chart for each in self._revisions.charts.revisions(kind).values()]
        if self._store.definitions is not None:
            for edition in await self._store.definitions.list_definitions(kind):
                if not any(each.is_revision(edition.revision) for each in found):
                    found.append((await self._revisions.for_reading(kind, edition.revision)).chart)
        return tuple(found)

    async def list(self, query: EntityQuery, reader: Reader, *, asked: EntityQuery) -> EntityPage | None:
        """Return a page for a reader; None where they see lists as they are, but for masked fields.

        `asked` is the query of the reader, without the conditions of the chart's `read`.

        If a chart covers its hidden states, the list comes from the rows that the store keeps for others. Where these
        are not complete, and with conditions on fields, entities are read one by one in the order of their ids, and
        filtered by what the reader sees. Raises as `check_kind` does if the chart does not cover them; UsageError for a
        hidden state or tag, as for one that is unknown, and for a condition on a masked field, as if it had no index.
        """
        checked = check_principal(reader, now_ms=self._entities.clock.now_ms()) or {}
        charts = await self._charts(query.kind)
        lenses = {each.revision: lens_for(each, checked) for each in charts}
        masked = frozenset(name for lens in lenses.values() if lens.mask is not None for name in lens.mask.fields)
        for path in asked.where or ():
            if path.partition(".")[0] in masked:
                raise UsageError(f"`{path[:80]}` of `{query.kind}` has no index", code="index.unknown")
        if not any(each.hides for each in lenses.values()):
            if not masked:
                return None
            self._check_names(query, charts, lenses)
            return masked_page(await self._find(query), masked)
        if any(each.is_closed for each in lenses.values()):
            await self.check_kind(query.kind, reader)
        self._check_names(query, charts, lenses)
        conditions = await find_conditions(self._revisions, query)
        rows = EntityQuery(kind=query.kind, by_id=True, prefix=query.prefix, after=query.after, limit=query.limit)
        hides_all = all(each.hides for each in lenses.values())
        if hides_all and not query.where and await complete_counts(self._store, query.kind, charts) is not None:
            rows = visible_query(query)

        async def shown(row: EntityRow) -> EntityRow | None:
            snapshot = await read_snapshot(self._store, self._revisions, row.entity)
            if snapshot is None:
                return None
            try:
                lens = await self.lens(snapshot, checked)
            except NotFoundError:
                return None
            found = lens.row(snapshot, row, await self._visible(lens, snapshot))
            if found is None or not found.matches(query) or not meets(conditions, found.context):
                return None
            return found.row if query.context else replace(found.row, context=None)

        return await walk(self._store, rows, shown)

    async def _find(self, query: EntityQuery) -> EntityPage:
        if (query.where or query.context) and self._store.field_indexes is None:
            return await find_by_walk(self._store, self._revisions, query)
        return await self._store.find(query)

    def _check_names(self, query: EntityQuery, charts: tuple[Chart, ...], lenses: Mapping[str, Lens]) -> None:
        """Raise UsageError for a state or a tag that is unknown to the reader."""
        seen = [each for chart in charts for each in chart.states[1:] if lenses[chart.revision].names((each.id,))]
        names = {"state": (query.state, {*(each.id for each in seen), *ENDED_STATES.values()})}
        names["tag"] = (query.tag, {tag for each in seen for tag in each.tags})
        for what, (name, known) in names.items():
            if name is not None and name not in known:
                hint = f"its {what}s are {', '.join(sorted(known)[:20]) or 'none'}"
                message = f"unknown {what} `{name[:80]}` in chart `{query.kind}`"
                raise UsageError(message, code=f"{what}.unknown", hint=hint)

    async def _opened(self, entry: Entry) -> Entry:
        vault = self._entities.process.vault
        return entry if vault is None else await vault.open_entry(entry)

    async def _start(self, lens: Lens, latest: Snapshot, after: int) -> tuple[int, tuple[str, ...]] | None:
        """Return the version of the journal after which to read, and where it led; None if there is nothing yet."""
        first = lens.first(latest)
        if after == 0 or not lens.hides:
            return max(after, first - 1), ()
        version = await self._journal_version(lens, latest, after)
        if version is None:
            return None
        records = await self._store.read(latest.entity, after=version - 1, limit=1)
        return version, records[0].entry.after if records else ()

    async def _journal_version(self, lens: Lens, latest: Snapshot, visible: int) -> int | None:
        """Return the version in the journal of a visible version; None if the reader has no such version."""
        if visible > lens.version_of(latest) or visible < 1:
            return None
        unseen = latest.sight.unseen if lens.hides and latest.sight is not None else 0
        if unseen == 0:
            return visible if visible >= lens.first(latest) else None
        low, high = max(visible, lens.first(latest)), min(visible + unseen, latest.version)
        while low < high:  # the first entry that is at least this visible version: halves each time
            middle = (low + high) // 2
            records = await self._store.read(latest.entity, after=middle - 1, limit=1)
            if not records:
                return None
            low, high = (middle + 1, high) if lens.version(records[0].entry) < visible else (low, middle)
        records = await self._store.read(latest.entity, after=low - 1, limit=1)
        return low if records and lens.version(records[0].entry) == visible else None


def masked_page(page: EntityPage, masked: frozenset[str]) -> EntityPage:
    """Return a page with these fields of each context masked."""
    if not masked:
        return page
    rows = []
    for row in page.rows:
        context = {name: MASK if name in masked else value for name, value in (row.context or {}).items()}
        rows.append(row if row.context is None else replace(row, context=context))
    return replace(page, rows=tuple(rows))
