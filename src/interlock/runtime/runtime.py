"""The runtime: load, step, append, retry, on any store.

1. Load the snapshot at version n, or take it from the cache: a stale one costs one conflict, never a wrong step.
2. Step it. The step is pure, so repeating it is harmless.
3. Append, conditional on version n, one entry with everything that the step caused, and the work it creates.
4. On conflict, go back to 1 with a fresh snapshot, after a capped exponential backoff with full jitter.
5. A worker runs the effects after the append; their keys are in the entry.
6. Results come back as events, through `EntitySender.deliver`.

`entities.sender` does all this, after `requests` has checked the arguments; this module is what callers use.
"""

from __future__ import annotations

import asyncio
import os
import platform
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, Unpack, cast, overload

from msgspec.structs import replace

from interlock.effects.lanes import StopReport
from interlock.effects.waiting import first_of
from interlock.errors import CorruptionError, UnavailableError, UsageError
from interlock.kernel.explain import Candidate
from interlock.kernel.step import Kernel
from interlock.model.arguments import check_options
from interlock.model.encoding.convert import Model
from interlock.model.encoding.index_key import IndexForm
from interlock.model.journal.entry import Entry, Receipt
from interlock.model.keys import OwnKey
from interlock.model.snapshot import Snapshot
from interlock.model.visible import VisibleSnapshot
from interlock.ports.admission import AdmissionGate, DrainableGate
from interlock.ports.clock import Clock, wait_to_poll
from interlock.ports.fork import after_fork, keep_forever
from interlock.ports.reading.field_indexes import IndexStatus
from interlock.ports.reading.journal_feed import FeedEntry
from interlock.ports.reading.projections import ProjectionStatus, Projector
from interlock.ports.reading.statistics import StateCount
from interlock.ports.store import (
    EntityPage,
    EntityQuery,
    JoinedStore,
    Store,
    check_capabilities,
)
from interlock.ports.tracer import Tracer
from interlock.ports.trust.authorizer import Authorizer
from interlock.runtime.admission import Admission
from interlock.runtime.charts.registry import ChartRegistry
from interlock.runtime.charts.upgrades import UpgradePolicy, UpgradePreview
from interlock.runtime.entities.announcements import OnWork
from interlock.runtime.entities.entities import Entities
from interlock.runtime.entities.permissions import Permissions, Reader
from interlock.runtime.entities.transition_log import open_transition_log
from interlock.runtime.history.replay import At, entries_after, state_at
from interlock.runtime.history.verify import Verification, verify_entity, verify_store
from interlock.runtime.reading.entity_counts import count_by_state, oldest_ages
from interlock.runtime.reading.feed import EntryWaiter, check_kinds, feed_of, follow_feed
from interlock.runtime.reading.field_walk import declared_forms, declared_indexes, find_by_walk
from interlock.runtime.reading.projection import ProjectionRunner, capabilities, register_projection
from interlock.runtime.reading.query_names import check_query_names
from interlock.runtime.reading.readers import ReaderViews
from interlock.runtime.request_checks import (
    CREATE_ARGUMENTS,
    DRY_RUN_ARGUMENTS,
    SEND_ARGUMENTS,
    CreateOptions,
    SendOptions,
    check_entity,
    check_principal,
    check_range,
    check_reason,
    passes_on_to,
)
from interlock.runtime.requests import NO_MODELS, CallerRequests, EventModels
from interlock.runtime.shutdown import DRAIN_MS as SIGNAL_DRAIN_MS
from interlock.runtime.shutdown import DrainReport, until_signal
from interlock.runtime.vault import PersonalVault
from interlock.runtime.work_ringer import WorkRinger
from interlock.trust.audit import AuditRecorder
from interlock.trust.visibility import Lens, VisibleEntry, VisibleReceipt

if TYPE_CHECKING:
    from interlock.evolve.refold import RefoldReport
    from interlock.runtime.erasure import Erasure
    from interlock.runtime.holds.operator import Hold, HoldOperator, ResumedTimers
    from interlock.runtime.join.connections import AsyncConnection, AsyncpgConnection
    from interlock.runtime.join.joined import AsyncJoined, JoinCalls
    from interlock.runtime.trials.shadow_run import ShadowedChart, ShadowRun

Projecting = TypeVar("Projecting", bound=Projector)

JsonPayload: TypeAlias = str | int | float | bool | Sequence[Any] | None
"""A payload that is neither a mapping nor a model. Most payloads are mappings, so that fields can be added."""

DRAIN_MS = 10_000
"""How long running work may take to finish when a runtime closes."""


class Runtime:
    """Creates, steps and reads entities of some charts on one store."""

    def __init__(
        self,
        store: Store,
        charts: ChartRegistry,
        clock: Clock,
        gate: AdmissionGate | None = None,
        *,
        messages: bool = False,
        models: Mapping[str, EventModels] = NO_MODELS,
        upgrade: UpgradePolicy = "pinned",
        authorizer: Authorizer | None = None,
        vault: PersonalVault | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        check_capabilities(store)
        self.store = store
        self.charts = charts
        self.clock = clock
        self.gate = gate
        self.models = models
        self.drain_ms = DRAIN_MS
        self.audit = AuditRecorder(store.audit, clock)
        self.entities = Entities.open(
            store, charts, clock, self.audit, messages=messages, upgrade=upgrade, authorizer=authorizer, tracer=tracer
        )
        self.permissions = Permissions(self.entities)
        self.entities.process.vault = self.vault = vault
        self.entities.process.transitions = open_transition_log()
        self.revisions = self.entities.revisions
        if store.engine is not None:
            store.engine.use_charts(charts.kernels())
        self._admission = Admission(gate)
        self._requests = CallerRequests(self.entities, self._admission, models)
        self._views = ReaderViews(self.entities)
        self.sender, self.mover = self._requests.sender, self._requests.mover
        self.ringer: WorkRinger | None = None
        if store.wakeups is not None:
            self.ringer = WorkRinger(store.wakeups, clock)
            self.entities.announcements.on_work(self.ringer.ring_for)
            self.entities.announcements.on_entry = store.wakeups.ring_entries
        self._join_calls: JoinCalls | None = None
        self._close_callbacks: list[Callable[[], Awaitable[object]]] = [self.audit.close]
        self._projections: dict[str, ProjectionRunner] = {}
        self._drain_listeners: list[Callable[[], None]] = []
        self._process = os.getpid()
        after_fork(self, keep_forever)  # finalizers of inherited connections would act on the parent's

    # Writing

    @passes_on_to(CallerRequests.create)
    async def create(
        self, entity: str, context: Mapping[str, Any] | Model | None = None, **options: Unpack[CreateOptions]
    ) -> Receipt:
        """Create an entity. The same key again is `duplicate`; another key is `rejected`, `entity.exists`.

        The context is a mapping or a model. `reason` is kept in the journal. Raises NotFoundError for an unknown kind,
        RejectedError when the chart refuses the context, UsageError when the context has no JSON form, and
        (`key.reused`) when the key belongs to an event of the entity.
        """
        check_options(options, call="create", known=CREATE_ARGUMENTS)
        return await self._requests.create(entity, context, **options)

    @overload
    async def send(
        self,
        entity: str,
        event: str,
        payload: Mapping[str, Any] | Model | JsonPayload = None,
        **options: Unpack[SendOptions],
    ) -> Receipt: ...

    @overload
    async def send(self, entity: str, event: Model, **options: Unpack[SendOptions]) -> Receipt: ...

    @overload
    async def send(
        self,
        entity: str,
        event: str | Model,
        payload: Mapping[str, Any] | Model | JsonPayload = None,
        *,
        reader: Reader,
        **options: Unpack[SendOptions],
    ) -> VisibleReceipt: ...

    async def send(
        self,
        entity: str,
        event: str | Model,
        payload: Any = None,
        *,
        key: str | None = None,
        expected: int | None = None,
        principal: Mapping[str, Any] | None = None,
        trace: str | None = None,
        sent_ms: int | None = None,
        reason: str | None = None,
        reader: Reader | None = None,
        **unknown: Any,
    ) -> Receipt | VisibleReceipt:
        """Send an event to an entity. When the outcome is `applied`, the entry is durable.

        The payload is JSON, or what has a JSON form: a model, a datetime, a Decimal and so on. `reason` says why the
        event is sent, and is kept in the journal. `sent_ms` is when the sender first sent the event. Keys expire after
        `KEY_WINDOW_MS`, 30 days; in files after 10,000 further entries of the entity. With `sent_ms`, an older event
        with an unknown key is `rejected`, `key.expired`, because it may have been applied before. Without it, the event
        is applied again.

        With `reader`, `expected` is a version that this person sees, and so is the receipt. If the chart has hidden
        states that they may not see, its outcome is `accepted` unless the event is refused in every state.

        A mistake of the program raises UsageError: an event that no loaded revision of the kind knows
        (`event.unknown`), a payload that has no JSON form or that no declaration of the event accepts
        (`event.payload`), an unknown argument, a key that belongs to another event (`key.reused`).

        Raises NotFoundError for an unknown entity, ConflictError when `expected` is not its version or other writers
        kept winning, RejectedError when the step is too large to store, UnavailableError when the store cannot confirm
        the write. The entry may then be stored or not: send again with the same key. Without a key, and without
        `dedupe` in the chart, the second send looks like a new event and may be applied twice; read `journal` first, or
        give every event a key.
        """
        if unknown:
            check_options(unknown, call="send", known=(*SEND_ARGUMENTS, "reader"))
        if reader is not None:
            return await self._requests.send_for(
                entity,
                event,
                payload,
                reader=reader,
                key=key,
                expected=expected,
                principal=principal,
                trace=trace,
                sent_ms=sent_ms,
                reason=reason,
            )
        return await self._requests.send(
            entity,
            event,
            payload,
            key=key,
            expected=expected,
            principal=principal,
            trace=trace,
            sent_ms=sent_ms,
            reason=reason,
        )

    async def submit(
        self,
        entity: str,
        event: str,
        payload: Any = None,
        *,
        key: OwnKey,
        expected: int | None = None,
        principal: Mapping[str, Any] | None = None,
        trace: str | None = None,
        sent_ms: int | None = None,
        reason: str | None = None,
    ) -> Receipt:
        """Send an event under a key that no caller can use: for buses, jobs of the console and reconcilers.

        The event carries `key.name` as its id and key. Raises as `send` does.
        """
        return await self._requests.submit(
            entity,
            event,
            payload,
            key=key,
            expected=expected,
            principal=principal,
            trace=trace,
            sent_ms=sent_ms,
            reason=reason,
        )

    @overload
    async def dry_run(
        self,
        entity: str,
        event: str | Model,
        payload: Any = None,
        *,
        key: str | None = None,
        principal: Mapping[str, Any] | None = None,
        reader: None = None,
    ) -> Receipt: ...

    @overload
    async def dry_run(
        self,
        entity: str,
        event: str | Model,
        payload: Any = None,
        *,
        key: str | None = None,
        principal: Mapping[str, Any] | None = None,
        reader: Reader,
    ) -> VisibleReceipt: ...

    async def dry_run(
        self,
        entity: str,
        event: str | Model,
        payload: Any = None,
        *,
        key: str | None = None,
        principal: Mapping[str, Any] | None = None,
        reader: Reader | None = None,
        **unknown: Any,
    ) -> Receipt | VisibleReceipt:
        """Return what `send` would answer now, by the same rules. Nothing is written, not even a refusal.

        With `reader`, the answer is made from what this person sees of the entity.
        """
        if unknown:
            check_options(unknown, call="dry_run", known=(*DRY_RUN_ARGUMENTS, "reader"))
        if reader is not None:
            return await self._requests.dry_run_for(entity, event, payload, reader=reader, key=key, principal=principal)
        return await self._requests.dry_run(entity, event, payload, key=key, principal=principal)

    # Writing in a transaction of the caller

    def join(self, connection: AsyncConnection | AsyncpgConnection, /, *, wait: bool = True) -> AsyncJoined:
        """Return what sends and creates in the open transaction of a connection to the store's own database.

        The entry is committed and rolled back with what the caller writes. It runs once: ConflictError
        (`conflict.joined`) asks the caller to repeat the transaction. Receipts are provisional until the COMMIT, and
        workers are notified of new work after it. With `wait=False`, a locked entity raises ConflictError immediately.

        Raises UsageError (`join.unsupported`) for a connection or a store that cannot be joined.

            async with AsyncSession(engine) as session, session.begin():
                session.add(Payment(order="A-1"))
                (await orders.join(session).send("order/A-1", "pay", key="p-1")).expect()
        """
        from interlock.runtime.join.adapters import kind_of
        from interlock.runtime.join.joined import AsyncJoined

        kind = kind_of(connection, is_async=True)
        return AsyncJoined(self.join_calls(asyncio.get_running_loop()), connection, kind, wait=wait)

    def join_calls(self, loop: asyncio.AbstractEventLoop) -> JoinCalls:
        """Return what makes calls in transactions of callers; `loop` is the event loop of this runtime."""
        if self._join_calls is None:
            from interlock.runtime.join.drivers import unsupported_error
            from interlock.runtime.join.joined import JoinCalls

            authorizer = self.permissions.authorizer
            if authorizer is not None and authorizer.is_async:
                hint = "give an authorizer that decides without waiting"
                raise unsupported_error("a transaction with an asynchronous authorizer", hint)
            if self.store.joins is None:
                raise unsupported_error("a transaction with this store", "use a store in SQLite or PostgreSQL")
            self._join_calls = JoinCalls(self.entities, self.store.joins, self._requests_on, loop)
            self.on_close(self._join_calls.stop)
        return self._join_calls

    def _requests_on(self, store: JoinedStore, on_work: OnWork) -> CallerRequests:
        """Return the requests of one call on a transaction of the caller. They may be made in any thread."""
        assert self._join_calls is not None
        joined = self.entities.on_transaction(store, on_work, self._join_calls.loop)
        return CallerRequests(joined, self._admission.of_any_thread(), self.models)

    # Reading

    @overload
    async def state(self, entity: str, *, at: At | None = None, reader: None = None) -> Snapshot: ...

    @overload
    async def state(self, entity: str, *, at: At | None = None, reader: Reader) -> VisibleSnapshot: ...

    async def state(
        self, entity: str, *, at: At | None = None, reader: Reader | None = None
    ) -> Snapshot | VisibleSnapshot:
        """Return the entity now, or as it was at a version or a time (ISO 8601 with its zone, or an aware datetime).

        With `reader`, as that person may see it: a mapping like a principal, with the rights of the console in
        `rights`; the `read` of the chart decides whether they may. Without it, the caller is the program itself and
        sees everything.

        Raises NotFoundError when the entity did not exist then, its journal is archived, or the reader may not see it;
        DeniedError when the reader may not read the kind. Personal data is opened; where it was erased, each value is
        `{"$personal": ""}`.
        """
        check_entity(entity)
        if reader is not None:
            await self.permissions.check_reader(entity, reader)
            return await self._views.state(entity, reader, at)
        if at is None:
            snapshot, _ = await self.entities.load_snapshot(entity)
        else:
            try:
                loaded = await self.entities.load(entity)
            except CorruptionError:  # the journal shows what was before the damage
                loaded = None
            snapshot = await state_at(self.store, self.revisions, entity, loaded, at)
        return snapshot if self.vault is None else await self.vault.open_snapshot(snapshot)

    @overload
    async def journal(
        self, entity: str, *, after: int = 0, limit: int | None = None, reader: None = None
    ) -> tuple[Entry, ...]: ...

    @overload
    async def journal(
        self, entity: str, *, after: int = 0, limit: int | None = None, reader: Reader
    ) -> tuple[VisibleEntry, ...]: ...

    async def journal(
        self, entity: str, *, after: int = 0, limit: int | None = None, reader: Reader | None = None
    ) -> tuple[Entry, ...] | tuple[VisibleEntry, ...]:
        """Return the entries after a version, in order and verified: all of them, or the first `limit`.

        Read a long journal in parts: `limit=1000`, then again with `after` set to the version of the last entry.
        With `reader`, as that person may see them, by the versions that they see. Raises NotFoundError when the entity
        is unknown or its journal is archived, UsageError for an `after` below 0 or a `limit` below 1.
        """
        check_entity(entity)
        check_range(after, limit)
        if reader is not None:
            await self.permissions.check_reader(entity, reader)
            return await self._views.journal(entity, reader, after, limit)
        found = await entries_after(self.store, entity, after=after, limit=limit)
        if not found:  # no further entries, or no such entity
            await self.entities.load(entity)
        if self.vault is not None:
            return tuple([await self.vault.open_entry(each) for each in found])
        return found

    async def list(self, query: EntityQuery, *, reader: Reader | None = None) -> EntityPage:
        """Return entities by kind, state, age, tag and indexed context fields, page by page.

        With `reader`, the entities that this person may read, found through the index of the owner's field, and as they
        may see them. If they may not see hidden states of the kind, a page may have fewer rows than `limit`, even none,
        and a cursor to continue from; where the store has no lists for them, it is in the order of ids.

        Raises UsageError for anything but a query, for a condition on a field without a complete index, and for a state
        or a tag that neither an entity nor a loaded revision of the kind has; NotFoundError for a kind that has neither
        a chart nor an entity; DeniedError for a reader who gets no lists of the kind.
        """
        if not isinstance(cast("object", query), EntityQuery):
            hint = 'write interlock.EntityQuery(kind="order")'
            raise UsageError(f"expected an EntityQuery, got {query!r:.80}", code="query.malformed", hint=hint)
        asked = query
        narrowed = await self.permissions.narrow(query, reader)
        if narrowed is None:
            return EntityPage(())
        query = narrowed
        if reader is not None and (shown := await self._views.list(query, reader, asked=asked)) is not None:
            return shown
        if (query.where or query.context) and self.store.field_indexes is None:
            page = await find_by_walk(self.store, self.revisions, query)
        else:
            page = await self.store.find(query)
        if not page.rows and query.after is None:
            await check_query_names(self.store, self.charts, query)
        if query.context and self.vault is not None:
            rows = [replace(each, context=await self.vault.open(each.context)) for each in page.rows]
            return replace(page, rows=tuple(rows))
        return page

    async def indexes(self) -> tuple[IndexStatus, ...]:
        """Return the indexes on context fields, by kind and field; where the store has none, those of the charts."""
        if self.store.field_indexes is not None:
            return await self.store.field_indexes.indexes()
        declared = (IndexStatus(each.kind, each.field, each.form, "ready") for each in declared_indexes(self.charts))
        return tuple(sorted(declared, key=lambda each: (each.kind, each.field)))

    async def index_forms(self, kind: str) -> dict[str, IndexForm]:
        """Return how the values of the indexed fields of a kind are read, by field; also where no chart is loaded."""
        if self.store.field_indexes is not None:
            return {each.field: each.form for each in await self.indexes() if each.kind == kind}
        return await declared_forms(self.entities.revisions, kind)

    async def declare_indexes(self) -> None:
        """Create the indexes on context fields that the charts declare and the store lacks; `open` does this.

        Every later step keeps them. Where entities exist already, `interlock db index build` completes them.
        """
        fields = declared_indexes(self.charts)
        if fields and self.store.field_indexes is not None:
            await self.store.field_indexes.declare_indexes(fields)

    @overload
    def watch(
        self, entity: str, *, after: int = 0, poll_ms: int = 1_000, reader: None = None
    ) -> AsyncGenerator[Entry, None]: ...

    @overload
    def watch(
        self, entity: str, *, after: int = 0, poll_ms: int = 1_000, reader: Reader
    ) -> AsyncGenerator[VisibleEntry, None]: ...

    def watch(
        self, entity: str, *, after: int = 0, poll_ms: int = 1_000, reader: Reader | None = None
    ) -> AsyncGenerator[Entry, None] | AsyncGenerator[VisibleEntry, None]:
        """Yield every entry after a version as it is written: immediately in this process, within `poll_ms` in others.

        With `reader`, as that person may see them, by the versions that they see. Raises NotFoundError when the entity
        does not exist yet, at the first entry. Whether they may read the entity is checked again before entries are
        yielded.
        """
        if reader is None:
            return self._watch(entity, after=after, poll_ms=poll_ms)
        return self._watch_for(reader, entity, after=after, poll_ms=poll_ms)

    async def _watch_for(
        self, reader: Reader, entity: str, *, after: int, poll_ms: int
    ) -> AsyncGenerator[VisibleEntry, None]:
        """As `watch`. Whether they may read is checked before the entity is loaded, so it does not say if it exists."""
        check_entity(entity)
        await self.permissions.check_reader(entity, reader)
        watched = self._views.watch(
            entity, reader, after, lambda version: self._watch(entity, after=version, poll_ms=poll_ms, reader=reader)
        )
        async with aclosing(watched) as entries:
            async for each in entries:
                yield each

    async def _watch(
        self, entity: str, *, after: int, poll_ms: int, reader: Reader | None = None
    ) -> AsyncGenerator[Entry, None]:
        check_entity(entity)
        check_range(after)
        exists = False
        await self.permissions.check_reader(entity, reader)
        while not self.entities.is_closed:
            changed = self.entities.announcements.changed(entity)
            try:
                records = await self.store.read(entity, after=after)
                if not (records or exists):  # no further entries, or no such entity
                    await self.entities.load(entity)
            except UnavailableError:
                if self.entities.is_closed:  # it was closed meanwhile
                    return
                raise
            if records and reader is not None:
                await self.permissions.check_reader(entity, reader)
            for record in records:
                after = record.version
                yield record.entry if self.vault is None else await self.vault.open_entry(record.entry)
            exists = True
            if not records:
                await first_of(changed.wait(), wait_to_poll(self.clock, poll_ms))

    async def feed(
        self, *, after: str | None = None, kinds: Sequence[str] | None = None, follow: bool = True
    ) -> AsyncGenerator[FeedEntry, None]:
        """Yield the entries of all entities, or of some kinds: each at least once, those of an entity in order.

        Personal data in them stays sealed: what is copied to another system is not reached by an erasure.

        Store the `cursor` of the last entry that you have handled, and pass it as `after` to continue there, in any
        process. Without it the feed starts with the first entry. With `follow=False` it ends with the last one.

        Raises UsageError for a cursor of another store, and on a store without a feed: a folder that is read-only.
        """
        source, wanted = feed_of(self.store), check_kinds(kinds)
        if not follow:
            async for each in follow_feed(source, after=after, kinds=wanted, waiter=None):
                yield each
            return
        with self.entities.announcements.following() as changed:
            async with EntryWaiter(self.store, self.clock, changed) as waiter:
                try:
                    async for each in follow_feed(source, after=after, kinds=wanted, waiter=waiter):
                        yield each
                        if self.entities.is_closed:
                            return
                except UnavailableError:
                    if not self.entities.is_closed:
                        raise

    def projection(
        self, name: str, *, kinds: Sequence[str] | None = None, batch: int = 500
    ) -> Callable[[Projecting], Projecting]:
        """Fill tables of the program from the feed, in the transaction that moves the position: a decorator.

        The function gets a connection and up to `batch` entries. On SQLite it is a plain function with a
        `sqlite3.Connection`, on PostgreSQL a coroutine function with a connection of asyncpg. It writes, and does not
        commit. Each entry takes effect exactly once in tables of the store's database. One process runs it at a time.
        An error is retried with the same entries; after ten in a row the projection stops, with its error in
        `projections`.

        Raises UsageError for an invalid name, function or batch, and on a store without projections.

            @runtime.projection("open_orders", kinds=["order"])
            def open_orders(connection, entries): ...
        """
        return register_projection(self.entities, name, kinds, batch, self._projections, self.on_close)

    async def projections(self) -> tuple[ProjectionStatus, ...]:
        """Return the projections of the store, by name: position, entries taken, failures, and the last error."""
        projections, _ = capabilities(self.store)
        return await projections.projections()

    async def can(self, entity: str, *, reader: Reader | None = None) -> tuple[Candidate, ...]:
        """Return the transitions that could be taken now, with the verdict of each guard and what it read.

        Of an entity that would move to the newest chart first: those of that chart. With `reader`, those that this
        person may see, without values if the chart has sensitive data.
        """
        check_entity(entity)
        await self.permissions.check_reader(entity, reader)
        if reader is not None:
            return await self._views.can(entity, reader)
        snapshot, last_ms = await self._loaded(entity)
        if self.entities.upgrades.covers(snapshot.kind):
            snapshot, _ = await self.mover.preview_upgrade(snapshot, last_ms)
        return (await self.revisions.for_preview(snapshot, needs_functions=False)).candidates(snapshot)

    async def shown(self, entity: str, reader: Reader) -> tuple[Kernel, Snapshot, Lens]:
        """Return what questions about an entity are to be answered from for a reader: the chart, the snapshot that they
        see instead, and their lens. The snapshot itself is not to be shown. Raises as `state` does.
        """
        check_entity(entity)
        await self.permissions.check_reader(entity, reader)
        return await self._views.shown(entity, reader)

    async def preview_upgrade(self, entity: str) -> UpgradePreview | None:
        """Return whether the next step of an entity would first move it to the newest chart, and if not, why it stays.

        None if its chart is pinned, or it is on the newest chart already.
        """
        snapshot, last_ms = await self._loaded(entity)
        _, preview = await self.mover.preview_upgrade(snapshot, last_ms)
        return preview

    async def _loaded(self, entity: str) -> tuple[Snapshot, int]:
        check_entity(entity)
        return await self.entities.load_snapshot(entity)

    async def counts(self, kind: str, *, reader: Reader | None = None) -> dict[str, int]:
        """Return how many entities of a kind are in each state, compounds included; an empty state has 0.

        With `reader`, as that person sees the entities: see `visible_counts`.

        The numbers come from the store's counters. A store without counters is read page by page.
        Entities that ended without a final state are under `:cancelled` and `:failed`. Raises NotFoundError for a kind
        that has neither a chart nor an entity, DeniedError for a reader who may not read all entities of the kind.
        """
        visible = None if reader is None else await self.visible_counts(kind, reader)
        return await count_by_state(self.store, self.revisions, kind, visible)

    async def ages(self, kind: str, *, reader: Reader | None = None) -> dict[str, int]:
        """Return for how many milliseconds the oldest entity of each state has been in it, compounds included.

        Empty states, and those in which entities have ended, are left out. Each state is one lookup in the store's
        lists; a store without lists is read page by page. Raises as `counts` does.
        """
        counts = await self.counts(kind, reader=reader)
        return await oldest_ages(self.store, self.revisions, kind, counts, now_ms=self.clock.now_ms())

    async def visible_counts(self, kind: str, reader: Reader) -> tuple[StateCount, ...] | None:
        """Return how many entities are in each state as a reader sees them, by revision; None if they see everything.

        An entity in a hidden state counts where it was before. Raises NotFoundError, as for an unknown kind, where the
        store cannot count so: a store of files or of another package without counters, and until an entry of this
        release has been written for each entity of the kind. DeniedError for a reader who may not read all of them.
        """
        await self.permissions.check_counts(kind, reader)
        return await self._views.visible_counts(kind, reader)

    async def verify(self, entity: str) -> Verification:
        """Check every link of an entity's journal and replay every entry. Damage is reported, not raised."""
        check_entity(entity)
        return await verify_entity(self.store, self.revisions, entity)

    async def verify_all(self) -> AsyncGenerator[Verification, None]:
        """Verify all entities of the store, one by one."""
        async for found in verify_store(self.store, self.revisions, now_ms=self.clock.now_ms()):
            yield found

    # Corrections and comparisons

    def shadow(self, chart: ShadowedChart, *, share: float = 0.25) -> ShadowRun:
        """Compare the steps of this process with what a new chart would do with the same events, while they happen.

        The new chart steps in a thread and performs no effect. A send waits for nothing: steps that find the queue full
        are dropped and counted. `share` is the part of a core that the thread uses at most. The result is
        `shadow(...).report()`, and in the console; `await shadow(...).stop()` ends it, as does closing the runtime.
        Steps in transactions of the program (`join`) are not compared.

        Raises UsageError for an invalid share, UnavailableError when the system refuses the thread.
        """
        from interlock.runtime.trials.shadow_run import ShadowRun

        run = ShadowRun(self.entities, self.sender, chart.kernel, share=share, who=f"{platform.node()}:{self._process}")
        run.start()
        run.listen()
        self.on_close(run.stop)
        return run

    async def preview_refold(self, kind: str) -> RefoldReport:
        """Return what the newest chart of a kind would have made of the recorded events of all its entities.

        Each life is folded from its creation, so that an error which accumulates is found. Nothing is written. Raises
        NotFoundError for a kind without a chart.
        """
        from interlock.runtime.trials.refold import RefoldSettings, run_refold

        return await run_refold(self.entities, self.mover, kind, RefoldSettings())

    async def refold(
        self, kind: str, *, reason: str, principal: Mapping[str, Any] | None = None, rate: float | None = None
    ) -> RefoldReport:
        """Correct the context of the entities of a kind to what its newest chart would have made of it.

        An entity is corrected by an entry with the reason `refold` if nothing but its context differs, and no effect
        that was performed. Others are in the report. It may be interrupted and repeated. `reason` and `principal` are
        kept in the journal; `rate` limits the entities per second. Raises as `preview_refold` does, and UsageError for
        an empty reason.
        """
        from interlock.runtime.trials.refold import RefoldSettings, run_refold

        check_reason(reason)
        sender = check_principal(principal, now_ms=self.clock.now_ms())
        settings = RefoldSettings(writes=True, reason=reason, principal=sender, rate=rate)
        with self._admission.admit():
            return await run_refold(self.entities, self.mover, kind, settings)

    # Personal data

    async def preview_erasure(self, entity: str) -> Erasure:
        """Return what `erase` would do, and what it would not reach. Raises as `erase`, except for a living one."""
        from interlock.runtime.erasure import Eraser

        check_entity(entity)
        return await Eraser(self.entities, self.sender).preview(entity)

    async def erase(
        self, entity: str, *, reason: str, principal: Mapping[str, Any] | None = None, live: bool = False
    ) -> Erasure:
        """Erase the personal data of an entity: destroy its data key. With `live`, also of one that has not ended.

        The journal stays as it is. Every copy of a personal value, also in backups, is unreadable without the key;
        `destroyed` of the result says when that is. Other processes stop reading within a minute. An effect that has
        not started and needs the data fails with `personal.erased`; a sender's personal value is refused likewise. May
        be repeated. `reason` and `principal` are kept in the journal.

        Raises NotFoundError; RejectedError for an entity without sealed data (`personal.none`), with the key of its
        parent (`personal.child`) or that has not ended (`personal.live`); UnavailableError (`keyring.missing`).
        """
        from interlock.runtime.erasure import Eraser

        check_entity(entity)
        check_reason(reason)
        sender = check_principal(principal, now_ms=self.clock.now_ms())
        with self._admission.admit():
            return await Eraser(self.entities, self.sender).erase(entity, reason=reason, principal=sender, live=live)

    # Holds

    async def hold(self, entity: str, *, reason: str, principal: Mapping[str, Any] | None = None) -> Hold:
        """Hold an entity: no timer of it fires, no effect starts, and sends raise UnavailableError (`entity.held`).

        A running attempt ends, and its result is kept; what it causes waits. When this returns, every worker follows.
        Raises NotFoundError, RejectedError (`entity.ended`), UsageError (`hold.unsupported`).
        """
        return await self._operator().hold(entity, reason=reason, principal=principal)

    async def resume(
        self,
        entity: str,
        *,
        reason: str | None = None,
        principal: Mapping[str, Any] | None = None,
        timers: ResumedTimers = "deadline",
    ) -> bool:
        """End the hold of an entity; return False if it was not held. Its work is due now.

        `timers`: with `deadline`, timers that came due meanwhile fire now, in order; with `shift`, every timer is later
        by the time of the hold. A timer with `restore` is shifted as downtime shifts it. Raises as `hold`.
        """
        return await self._operator().resume(entity, reason=reason, principal=principal, timers=timers)

    async def hold_kind(self, kind: str, *, reason: str, principal: Mapping[str, Any] | None = None) -> Hold:
        """Hold all entities of a kind, also later ones: `create` raises UnavailableError (`kind.held`).

        It takes a second: then every process knows. Raises NotFoundError for an unknown kind.
        """
        return await self._operator().hold_kind(kind, reason=reason, principal=principal)

    async def resume_kind(
        self,
        kind: str,
        *,
        reason: str | None = None,
        principal: Mapping[str, Any] | None = None,
        timers: ResumedTimers = "deadline",
    ) -> bool:
        """End the hold of a kind, as `resume`. Entities that were held one by one stay held."""
        return await self._operator().resume_kind(kind, reason=reason, principal=principal, timers=timers)

    async def hold_matching(
        self, query: EntityQuery, *, reason: str, principal: Mapping[str, Any] | None = None
    ) -> int:
        """Hold every entity that a query finds now, one by one; return how many. Its limit is ignored."""
        return await self._operator().hold_matching(query, reason=reason, principal=principal)

    async def resume_matching(
        self,
        query: EntityQuery,
        *,
        reason: str | None = None,
        principal: Mapping[str, Any] | None = None,
        timers: ResumedTimers = "deadline",
    ) -> int:
        """End the hold of every entity that a query finds, as `resume`; return how many were held."""
        return await self._operator().resume_matching(query, reason=reason, principal=principal, timers=timers)

    async def holds(self, kind: str | None = None) -> tuple[Hold, ...]:
        """Return what is held, of one kind or of all: first kinds, then entities, at most a thousand of each kind."""
        return await self._operator().holds(kind)

    async def holds_of(self, entity: str) -> tuple[Hold, ...]:
        """Return what holds an entity now: the hold of its kind, and its own. Raises NotFoundError, as `hold`."""
        return await self._operator().holds_of(entity)

    def _operator(self) -> HoldOperator:
        from interlock.runtime.holds.operator import HoldOperator

        return HoldOperator(self)

    # Stopping

    def on_close(self, callback: Callable[[], Awaitable[object]]) -> None:
        """Await a callback when the runtime closes, before the store does. The last one registered comes first."""
        self._close_callbacks.append(callback)

    def on_drain(self, listener: Callable[[], None]) -> None:
        """Call a function as soon as a drain starts."""
        self._drain_listeners.append(listener)

    async def drain(self, timeout_ms: int) -> DrainReport:
        """Accept no new requests, let requests and running work finish in time, requeue unfinished work, and report.

        Sends are refused from now on (`runtime.draining`); reading works until `close`. A lifecycle that other
        processes share drains too.
        """
        self.drain_ms = timeout_ms
        for listener in self._drain_listeners:
            listener()
        started_ms = self.clock.now_ms()
        if isinstance(self.gate, DrainableGate):
            self.gate.drain(timeout=timeout_ms / 1000)  # it starts immediately, in every process
        unanswered, report = await asyncio.gather(
            self._admission.drain(timeout_ms, self.clock), self._run_close_callbacks()
        )
        if isinstance(self.gate, DrainableGate):
            left_ms = min(timeout_ms, max(0, started_ms + timeout_ms - self.clock.now_ms()))
            await self.gate.drain(timeout=left_ms / 1000)
        took_ms = max(0, self.clock.now_ms() - started_ms)
        return DrainReport(report.finished, report.requeued, report.still_running, unanswered, took_ms)

    async def _run_close_callbacks(self) -> StopReport:
        """Await the callbacks, last registered first; return the report of the worker among them."""
        report = StopReport()
        while self._close_callbacks:
            callback, is_done = self._close_callbacks[-1], True
            try:
                result = await callback()
            except asyncio.CancelledError:
                is_done = False  # `close` awaits it again
                raise
            finally:
                if is_done and callback in self._close_callbacks:
                    self._close_callbacks.remove(callback)
            report = result if isinstance(result, StopReport) else report
        return report

    async def run_until_signal(
        self, *, drain_ms: int = SIGNAL_DRAIN_MS, on_signal: Callable[[int], object] = lambda _: None
    ) -> DrainReport:
        """Work until SIGTERM or SIGINT arrives; then drain for `drain_ms` at most, and report.

        A second signal ends the process immediately. `on_signal` is called with the number of the first one. Must be
        called in the main thread.

            async with interlock.open(url, charts=[order]) as orders:
                await orders.run_until_signal()
        """
        return await until_signal(self, drain_ms=drain_ms, on_signal=on_signal)

    async def close(self) -> None:
        """Let running work finish, accept no new requests, and close the store.

        In a forked child it does nothing: the store, the bus and the worker belong to the parent.
        """
        if os.getpid() != self._process:
            return
        try:
            await self._run_close_callbacks()
        finally:
            self.entities.close()
            await self.store.close()
