"""One run of retention: find what is old enough and needed by nothing, copy it to the archive, record it, remove it.

The order for each entity is: verify the whole journal, copy it to the archive and read its end back, call the hook,
record the batch, and only then let the store write its tombstone (or base) and remove rows.

Rule 1: a run may be killed at any point, and the next one continues: what the store has started is finished first
(`Retention.unfinished`), and a copy that is in the archive already is not made again.
Rule 2: one process at a time runs, under the lease `retention`, which it extends with each batch. Two would do no harm:
the store checks again, and each removes an entity once.
Rule 3: senders go first. After each batch the run waits as long as the batch took, or keeps to a rate.
Rule 4: an entity that cannot be verified, copied or judged stays, and the result says why. The run continues.
Rule 5: a dry run checks the same, and writes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from hashlib import blake2b
from math import isfinite, isnan

from msgspec import Struct

from interlock.errors import (
    CompactedError,
    ConflictError,
    CorruptionError,
    InterlockError,
    UnavailableError,
    UsageError,
)
from interlock.model.limits import CONFLICT_RETRIES_MAX, RETENTION_BATCH, RETENTION_PAGES, RETENTION_ROWS
from interlock.model.personal_token import KEY_FIELD
from interlock.model.snapshot import Snapshot
from interlock.operate.retention.needs import (
    last_free_version,
    load_uncached,
    oldest_unread_ms,
    on_hold,
    why_needed,
)
from interlock.operate.retention.record import RetentionRecord
from interlock.operate.retention.rules import RetentionReport, RetentionResult, RetentionRule
from interlock.ports.leases import Lease
from interlock.ports.reading.paging import pages
from interlock.ports.store import ENDED_STATES, PAGE_MAX, EntityQuery, EntityRow, Store
from interlock.ports.trust.retention import JournalBase, Removal, Retention, Tombstone
from interlock.runtime.history.archive import copy_journal, month
from interlock.runtime.history.replay import replay
from interlock.runtime.history.retention_records import Removed
from interlock.runtime.history.verify import verify_entity
from interlock.runtime.runtime import Runtime

LEASE = "retention"
LEASE_MS = 15_000
"""How long a run that was killed keeps others away. It is extended with each batch, and while a run waits."""

LIVING = "living"
"""The folder of an archive with the removed entries of entities that were alive; each month has another."""

OpenArchive = Callable[[str, str], Awaitable[tuple[Store, str]]]
"""From the address of an archive and a folder in it, such as `2026-08`: the store there, and its address."""

BeforePrune = Callable[["Pruning"], Awaitable[None]]
"""Called for each entity that is about to be pruned, before its tombstone is written. It may be called again for the
same entity after a kill, and must then do nothing. If it raises, the entity stays."""


class Pruning(Struct, frozen=True):
    """An entity that is about to be pruned: its tombstone, and its last snapshot."""

    tombstone: Tombstone
    snapshot: Snapshot


class _Candidate(Struct, frozen=True):
    tombstone: Tombstone
    snapshot: Snapshot


class _Compaction(Struct, frozen=True):
    base: JournalBase
    newest: Snapshot


class RetentionRun:
    """One run over the entities of these rules.

    `rate` is the number of entities per second that is not exceeded. None: after each batch the run waits as long as
    the batch took. `open_archive` opens the archives that rules name, and owns them. `before_prune` is the hook for
    what else must be destroyed with an entity; the key of its personal data is. `who` and `reason` are recorded. A run
    that was killed keeps others away for `lease_ms`.

    Raises UsageError for a store that removes nothing (`retention.store`), an invalid rate, and an archive that cannot
    be opened.
    """

    def __init__(
        self,
        runtime: Runtime,
        rules: Sequence[RetentionRule],
        *,
        dry_run: bool = False,
        rate: float | None = None,
        open_archive: OpenArchive | None = None,
        before_prune: BeforePrune | None = None,
        who: str = "",
        reason: str | None = None,
        lease_ms: int = LEASE_MS,
    ) -> None:
        if runtime.store.retention is None:
            hint = "use memory:, file:, sqlite: or postgresql:"
            raise UsageError("this store removes nothing", code="retention.store", hint=hint)
        if rate is not None and (isnan(rate) or not rate > 0):
            raise UsageError(f"rate={rate!r:.40} is not a positive number", code="retention.rate", hint="such as 500")
        if open_archive is None and any(each.archive is not None for each in rules):
            raise UsageError("the run cannot open archives", code="retention.archive", hint="pass `open_archive`")
        self.report = RetentionReport.empty()
        self.record = RetentionRecord(runtime, tuple(rules), who=who or "interlock", reason=reason)
        self._runtime = runtime
        self._store: Retention = runtime.store.retention
        self._rules = tuple(rules)
        self._dry_run = dry_run
        self._rate = rate
        self._open_archive = open_archive
        self._before_prune = before_prune
        self._owner = runtime.clock.token()
        self._lease: Lease | None = None
        self._lease_ms = lease_ms
        self._saved: dict[str, set[tuple[str, str]]] = {}
        self._now_ms = 0
        self._unread_ms: int | None = None

    async def run(self) -> AsyncIterator[RetentionResult]:
        """Yield the result for each entity that is old enough.

        Raises UnavailableError while another process runs (`retention.running`), and when the store does not respond.
        """
        self._now_ms = self._runtime.clock.now_ms()
        if not self._dry_run:
            await self._extend_lease()
        try:
            if not self._dry_run:
                await self._finish_earlier()
            self._unread_ms = await oldest_unread_ms(self._runtime)
            for rule in self._rules:
                if rule.ended_ms is not None:
                    async for result in self._prune_kind(rule, self._now_ms - rule.ended_ms):
                        self.report.add(result)
                        yield result
                if rule.entries_ms is not None:
                    async for result in self._compact_kind(rule, self._now_ms - rule.entries_ms):
                        self.report.add(result)
                        yield result
            if not self._dry_run:
                await self.record.finish(self.report)
                while await self._store.reclaim(pages=RETENTION_PAGES):
                    await self._extend_lease()
                    await asyncio.sleep(0)
        finally:
            if self._lease is not None and self._runtime.store.leases is not None:
                await self._runtime.store.leases.release_lease(self._lease)

    async def _extend_lease(self) -> None:
        leases, now_ms = self._runtime.store.leases, self._runtime.clock.now_ms()
        if leases is None:
            return
        self._lease = await leases.acquire_lease(
            LEASE, owner=self._owner, now_ms=now_ms, until_ms=now_ms + self._lease_ms
        )
        if self._lease is None:
            message = "another process runs retention on this store"
            raise UnavailableError(
                message, code="retention.running", hint="wait for it; a dead one loses its lease after some seconds"
            )

    async def _finish_earlier(self) -> None:
        """Finish what a killed process has started."""
        seen: set[str] = set()
        while entities := set(await self._store.unfinished(limit=RETENTION_BATCH)) - seen:
            seen |= entities
            for entity in sorted(entities):
                await self._remove(await self._store.remove_rest(entity, rows=RETENTION_ROWS), entity)
            await self._extend_lease()

    async def _remove(self, removal: Removal, entity: str) -> Removal:
        """Continue until nothing is left; return the total."""
        rows = removal.rows
        while not removal.is_done:
            await asyncio.sleep(0)  # the steps of others have their turn
            removal = await self._store.remove_rest(entity, rows=RETENTION_ROWS)
            rows += removal.rows
        return Removal(rows, is_done=True, version=removal.version, blocked=removal.blocked)

    async def _pace(self, entities: int, took_ms: float) -> None:
        """Rule 3."""
        wait_ms = took_ms if self._rate is None else entities * 1_000 / self._rate - took_ms
        while isfinite(wait_ms) and wait_ms > 0:
            await self._runtime.clock.sleep_ms(min(wait_ms, self._lease_ms / 3))
            await self._extend_lease()
            wait_ms -= self._lease_ms / 3

    # Ended entities

    async def _prune_kind(self, rule: RetentionRule, before_ms: int) -> AsyncIterator[RetentionResult]:
        for state in await self._end_states(rule.kind):
            query = EntityQuery(kind=rule.kind, state=state, entered_before_ms=before_ms, limit=PAGE_MAX)
            async for page in pages(self._runtime.store.find, query):
                rows = [each for each in page.rows if each.ended is not None and _is_first(each, state)]
                for start in range(0, len(rows), RETENTION_BATCH):
                    batch = [each for each in rows[start : start + RETENTION_BATCH] if each.changed_ms < before_ms]
                    started_ms = self._runtime.clock.now_ms()
                    for result in await self._prune_batch(rule, batch):
                        yield result
                    if not self._dry_run:
                        await self._extend_lease()
                        await self._pace(len(batch), self._runtime.clock.now_ms() - started_ms)
                    await asyncio.sleep(0)

    async def _end_states(self, kind: str) -> list[str]:
        """The states in which entities of any revision end: final states, and how entities end without one."""
        charts = [self._runtime.charts.for_new_entity(kind).chart]
        for edition in await self._runtime.revisions.editions(kind):
            try:
                charts.append(await self._runtime.revisions.chart(kind, edition.revision))
            except UnavailableError:
                continue  # its entities cannot be verified here, so they stay
        found = {each.id: None for chart in charts for each in chart.states if each.type == "final"}
        return [*found, *(name for name in ENDED_STATES.values())]

    async def _prune_batch(self, rule: RetentionRule, rows: list[EntityRow]) -> list[RetentionResult]:
        judged = await asyncio.gather(*(self._judge(rule, each) for each in rows))
        results = [each for each in judged if isinstance(each, RetentionResult)]
        candidates = [each for each in judged if isinstance(each, _Candidate)]
        if self._dry_run:
            return results + [
                RetentionResult(each.tombstone.entity, "would_prune", each.tombstone.version) for each in candidates
            ]
        if candidates:
            removed = (
                Removed(each.tombstone.entity, each.tombstone.version, each.tombstone.head) for each in candidates
            )
            await self.record.add("prune", removed, self.report)
            results += await asyncio.gather(*(self._prune_one(each) for each in candidates))
        return results

    async def _judge(self, rule: RetentionRule, row: EntityRow) -> _Candidate | RetentionResult | None:
        """Return what is to be pruned, or why the entity stays; None if it was removed already."""
        runtime, entity = self._runtime, row.entity
        try:
            snapshot = await load_uncached(runtime, entity)
            if snapshot is None:
                return None
            if self._unread_ms is not None and row.changed_ms >= self._unread_ms:
                return _kept(row, "unread by a projection")
            reason = await why_needed(runtime, snapshot)
            if reason is not None:
                return _kept(row, reason)
            found = await verify_entity(runtime.store, runtime.revisions, entity)
            if found.problem is not None:
                return _kept(row, f"{found.problem.code}: {found.problem.message}")
            archive = found.archive
            version, head = await self._store.tip(entity)
            if version != snapshot.version or (archive is None and head != found.head):
                return _kept(row, "changed")
            if archive is None and rule.archive is not None and not self._dry_run:
                archive = await self._copy(rule.archive, snapshot, version, head, folder=month(row.changed_ms))
            tombstone = Tombstone(entity, snapshot.version, head, self._now_ms, archive)
            if not self._dry_run:
                await self._destroy_key(snapshot)
                if self._before_prune is not None:
                    await self._before_prune(Pruning(tombstone, snapshot))
        except (CompactedError, ConflictError, CorruptionError) as error:
            return _kept(row, f"{error.code}: {error.message}")
        except InterlockError as error:
            await runtime.store.kinds()  # raises if the store as a whole does not respond
            return _kept(row, f"{error.code}: {error.message}")
        return _Candidate(tombstone, snapshot)

    async def _destroy_key(self, snapshot: Snapshot) -> None:
        """Destroy the key of an entity's personal data, so that no copy of its journal shows it. A child has none."""
        kid, runtime = snapshot.context.get(KEY_FIELD), self._runtime
        if not isinstance(kid, str) or snapshot.parent is not None:
            return
        if runtime.vault is not None:
            await runtime.vault.destroy(kid)
        elif runtime.store.data_keys is not None:
            await runtime.store.data_keys.destroy_key(kid, now_ms=self._now_ms)

    async def _copy(self, address: str, snapshot: Snapshot, version: int, head: str, *, folder: str) -> str:
        """Copy a journal up to a version, unless the archive has it; return the address. Raises ConflictError."""
        assert self._open_archive is not None
        base = await self._store.journal_base(snapshot.entity)
        target, where = await self._open_archive(address, folder if base is None else LIVING)
        saved = self._saved.setdefault(where, set())
        copied = await copy_journal(
            self._runtime.store, self._runtime.revisions, snapshot.entity, version, target, saved
        )
        if copied != head:
            message = f"the hash of the archived copy of `{snapshot.entity}` differs"
            raise ConflictError(message, code="archive.head")
        return where

    async def _prune_one(self, candidate: _Candidate) -> RetentionResult:
        tombstone = candidate.tombstone
        try:
            removal = await self._store.prune(tombstone, rows=RETENTION_ROWS)
            if removal.blocked is not None:
                return RetentionResult(tombstone.entity, "kept", tombstone.version, reason=removal.blocked)
            removal = await self._remove(removal, tombstone.entity)
        except InterlockError as error:
            await self._runtime.store.kinds()
            return RetentionResult(tombstone.entity, "kept", tombstone.version, reason=f"{error.code}: {error.message}")
        self._runtime.entities.snapshots.pop(tombstone.entity, None)
        return RetentionResult(tombstone.entity, "pruned", tombstone.version, removal.rows)

    # Living entities

    async def _compact_kind(self, rule: RetentionRule, before_ms: int) -> AsyncIterator[RetentionResult]:
        query = EntityQuery(kind=rule.kind, by_id=True, limit=PAGE_MAX)
        async for page in pages(self._runtime.store.find, query):
            rows = [each for each in page.rows if each.ended is None and each.created_ms < before_ms]
            rows = [each for each in rows if each.version > rule.entries_min]
            for start in range(0, len(rows), RETENTION_BATCH):
                batch = rows[start : start + RETENTION_BATCH]
                started_ms = self._runtime.clock.now_ms()
                for result in await self._compact_batch(rule, batch, before_ms):
                    yield result
                if not self._dry_run:
                    await self._extend_lease()
                    await self._pace(len(batch), self._runtime.clock.now_ms() - started_ms)
                await asyncio.sleep(0)

    async def _compact_batch(self, rule: RetentionRule, rows: list[EntityRow], before_ms: int) -> list[RetentionResult]:
        judged = await asyncio.gather(*(self._judge_living(rule, each, before_ms) for each in rows))
        results = [each for each in judged if isinstance(each, RetentionResult)]
        found = [each for each in judged if isinstance(each, _Compaction)]
        if self._dry_run:
            return results + [RetentionResult(each.base.entity, "would_compact", each.base.version) for each in found]
        if found:
            removed = (Removed(each.base.entity, each.base.version, each.base.digest) for each in found)
            await self.record.add("compact", removed, self.report)
            results += await asyncio.gather(*map(self._compact_one, found))
        return results

    async def _judge_living(
        self, rule: RetentionRule, row: EntityRow, before_ms: int
    ) -> _Compaction | RetentionResult | None:
        """Return where the journal is to start, or why it stays; None if too few entries are old enough."""
        runtime, entity = self._runtime, row.entity
        try:
            snapshot = await load_uncached(runtime, entity)
            if snapshot is None or snapshot.ended is not None:
                return None
            base = await self._store.journal_base(entity)
            since = 0 if base is None else base.version
            if (
                snapshot.version - since <= rule.entries_min
                or await self._time_ms(entity, since + rule.entries_min) >= before_ms
            ):
                return None
            if await on_hold(runtime, snapshot):
                return _kept(row, "legal hold")
            last, deferred_ms = await last_free_version(runtime, snapshot)
            limits = (before_ms, self._unread_ms, deferred_ms)
            until_ms = min(each for each in limits if each is not None)
            version = await self._last_before(entity, since, min(last, snapshot.version - 1), until_ms)
            if version - since < rule.entries_min:
                return _kept(row, "entries are needed")
            found = await verify_entity(runtime.store, runtime.revisions, entity)
            if found.problem is not None:
                return _kept(row, f"{found.problem.code}: {found.problem.message}")
            new = await self._new_base(entity, base, version)
            if rule.archive is not None and not self._dry_run:
                await self._copy_living(rule.archive, snapshot, new)
        except (CompactedError, ConflictError, CorruptionError) as error:
            return _kept(row, f"{error.code}: {error.message}")
        except InterlockError as error:
            await runtime.store.kinds()
            return _kept(row, f"{error.code}: {error.message}")
        return _Compaction(new, snapshot)

    async def _time_ms(self, entity: str, version: int) -> int:
        (entry,) = await self._runtime.journal(entity, after=version - 1, limit=1)
        return entry.event.time_ms

    async def _last_before(self, entity: str, low: int, high: int, before_ms: int) -> int:
        """Return the last version before a time, between two versions. Times in a journal never decrease."""
        while low < high:
            middle = (low + high + 1) // 2
            if await self._time_ms(entity, middle) < before_ms:
                low = middle
            else:
                high = middle - 1
        return low

    async def _new_base(self, entity: str, base: JournalBase | None, version: int) -> JournalBase:
        """Replay a journal up to a version, and hash the heads of what is removed."""
        after, snapshot = (0, None) if base is None else (base.version, base.snapshot)
        digest, head = blake2b(digest_size=16), ""
        time_ms, created_ms = 0, None if base is None else base.created_ms
        while after < version:
            records = await self._runtime.store.read(entity, after=after, limit=min(PAGE_MAX, version - after))
            if not records:
                raise CorruptionError(f"the journal of `{entity}` ends at version {after}", code="journal.short")
            snapshot = await replay(self._runtime.revisions, entity, snapshot, (each.entry for each in records))
            for each in records:
                digest.update(each.head.encode())
            created_ms = records[0].entry.event.time_ms if created_ms is None else created_ms
            after, head, time_ms = records[-1].version, records[-1].head, records[-1].entry.event.time_ms
        assert snapshot is not None
        assert created_ms is not None
        return JournalBase(entity, version, head, snapshot, digest.hexdigest(), time_ms, created_ms, self._now_ms)

    async def _copy_living(self, address: str, snapshot: Snapshot, base: JournalBase) -> None:
        assert self._open_archive is not None
        target, where = await self._open_archive(address, LIVING)
        saved = self._saved.setdefault(where, set())
        copied = await copy_journal(
            self._runtime.store, self._runtime.revisions, snapshot.entity, base.version, target, saved
        )
        if copied != base.head:
            message = f"the hash of the archived copy of `{snapshot.entity}` differs"
            raise ConflictError(message, code="archive.head")

    async def _compact_one(self, found: _Compaction) -> RetentionResult:
        base, newest = found.base, found.newest
        try:
            removal = await self._store.compact(base, newest=newest, rows=RETENTION_ROWS)
            for _ in range(CONFLICT_RETRIES_MAX):  # its senders continue meanwhile
                fresh = await load_uncached(self._runtime, base.entity) if removal.blocked == "changed" else None
                if fresh is None or fresh.version == newest.version:
                    break
                newest = fresh
                removal = await self._store.compact(base, newest=newest, rows=RETENTION_ROWS)
            if removal.blocked is not None:
                return RetentionResult(base.entity, "kept", base.version, reason=removal.blocked)
            removal = await self._remove(removal, base.entity)
        except InterlockError as error:
            await self._runtime.store.kinds()
            return RetentionResult(base.entity, "kept", base.version, reason=f"{error.code}: {error.message}")
        return RetentionResult(base.entity, "compacted", base.version, removal.rows)


def _kept(row: EntityRow, reason: str) -> RetentionResult:
    return RetentionResult(row.entity, "kept", row.version, reason=reason)


def _is_first(row: EntityRow, state: str) -> bool:
    """Whether this is the one of its states under which an ended entity is taken: it may be in several."""
    return state in ENDED_STATES.values() or row.configuration[0] == state
