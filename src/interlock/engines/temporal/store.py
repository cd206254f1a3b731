"""Entities on Temporal, from outside: created as workflows, stepped by Updates, read by queries, listed by visibility.

Rule 1: the id of an Update is the key of its event. Temporal answers a repeated id with the first answer, which names
the call that it was for: another call gets `duplicate`.
Rule 2: a query is answered by a worker, so reading needs one. Lists and counts do not.
Rule 3: with a mirror, what is asked about many entities is asked there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

import msgspec
from temporalio.client import (
    Client,
    WorkflowQueryFailedError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from interlock.engines.temporal.address import Address
from interlock.engines.temporal.delivery import carried_definition, definition_of
from interlock.engines.temporal.entity_store import verified
from interlock.engines.temporal.functions import function_hashes
from interlock.engines.temporal.host import LocalDefinitions
from interlock.engines.temporal.search import attributes, quoted
from interlock.engines.temporal.wire import (
    DEFINITION,
    LOOK,
    READ,
    RECEIVE,
    REFUSED,
    SEND,
    TASK_MAX,
    WORKFLOW,
    Answer,
    Call,
    CarriedDefinition,
    Delivered,
    Delivery,
    EntityView,
    MirrorCall,
    Page,
    Settings,
    Start,
    raised,
)
from interlock.errors import ArchivedError, InternalError, UnavailableError, UsageError
from interlock.kernel.step import Kernel
from interlock.model.backoff import Backoff
from interlock.model.entity_id import kind_of
from interlock.model.journal.entry import Receipt
from interlock.model.journal.record import JournalRecord
from interlock.model.limits import ENGINE_LISTED_MAX, LEASE_MS
from interlock.ports.clock import SystemClock
from interlock.ports.definitions import Definition, Edition, StoredDefinition
from interlock.ports.engine import Engine, EngineRequest, EngineWorker
from interlock.ports.reading.statistics import Statistics
from interlock.ports.store import (
    PAGE_MAX,
    Append,
    Appended,
    AppendResult,
    Conflict,
    Duplicate,
    EntityPage,
    EntityQuery,
    EntityRow,
    EntityVerification,
    Itself,
    Loaded,
    Store,
    check_plain,
)
from interlock.ports.trust.audit import AuditLog
from interlock.stores.listing import list_position, page_of, since_ms

_BUSY = frozenset(
    {
        RPCStatusCode.UNAVAILABLE,
        RPCStatusCode.RESOURCE_EXHAUSTED,
        RPCStatusCode.ABORTED,
        RPCStatusCode.DEADLINE_EXCEEDED,
    }
)
"""Answers of a server that is starting, busy, or between two histories of an entity: the same call is made again."""

_TRIES_MAX = 8
_BACKOFF = Backoff(50, 2_000)
_QUERIES_AT_ONCE = 16
"""Queries that a list has in flight: each of them may have to restore a workflow from its history."""

StartWorker = Callable[["TemporalStore", EngineWorker], Awaitable[Callable[[], Awaitable[None]]]]
"""Starts what runs entities in this process, and returns what stops it."""


class TemporalStore(Store):
    """The entities of a namespace."""

    engine = Itself[Engine]()
    verification = Itself[EntityVerification]()
    definitions: _Definitions | None = None

    def __init__(self, client: Client, address: Address, mirror: Store | None, start: StartWorker) -> None:
        self.client = client
        self.address = address
        self.mirror = mirror
        self.clock = SystemClock()
        self.lease_ms = LEASE_MS
        self._known = self.definitions = _Definitions(self)
        self._start_worker = start
        self._charts: tuple[Kernel, ...] = ()
        self._closed = False

    @property
    def statistics(self) -> Statistics | None:
        """Those of the mirror."""
        return None if self.mirror is None else self.mirror.statistics

    @property
    def audit(self) -> AuditLog | None:
        """That of the mirror: Temporal never sees what is refused."""
        return None if self.mirror is None else self.mirror.audit

    # The engine

    def use_charts(self, kernels: tuple[Kernel, ...]) -> None:
        """Name the charts of this process: entities that it creates carry the hashes of their functions."""
        self._charts = kernels

    def functions_of(self, kind: str, revision: str) -> dict[str, str]:
        """Return the hashes of the functions of a chart of this process."""
        found = [each for each in self._charts if each.chart.kind == kind and each.chart.is_revision(revision)]
        return function_hashes(found[-1]) if found else {}

    async def start_worker(self, worker: EngineWorker) -> Callable[[], Awaitable[None]]:
        """Run entities and effects in this process."""
        self.lease_ms = worker.lease_ms
        return await self._start_worker(self, worker)

    async def send(self, entity: str, request: EngineRequest) -> Receipt | None:
        """Step an entity by an event."""
        token = self.clock.token()
        call, update_id = Call(token, request), request.key
        for _ in range(2):
            answer = await self._update(entity, call, update_id)
            if answer is None:
                return None
            if answer.call == token:
                return _receipt(answer)
            if answer.receipt is not None and answer.receipt.outcome in ("applied", "ignored"):
                return None  # a duplicate, if its sender may know: Temporal has not asked the policy
            update_id = f"{request.key}~{token}"  # the key was refused before, and is not used up by that
        raise InternalError("Temporal answered an update that it was not asked", code="engine.answer")

    async def _update(self, entity: str, call: Call, update_id: str) -> Answer | None:
        """Return the answer of a workflow to an Update, also when it refuses it; None when no workflow runs."""
        handle = self.client.get_workflow_handle(entity)

        async def ask() -> Answer | None:
            try:
                answer: Answer = await handle.execute_update(SEND, call, id=update_id, result_type=Answer)
            except WorkflowUpdateFailedError as error:
                cause = error.cause
                if isinstance(cause, ApplicationError) and cause.type == REFUSED:
                    return msgspec.convert(cause.details[0], Answer)
                raise
            return answer

        found: Answer | None = await self._retried(ask, entity)
        return found

    async def receive(self, delivery: Delivery, *, attempt: int) -> Delivered:
        """Hand an event to another entity. For an activity, which is tried again when this raises."""
        handle = self.client.get_workflow_handle(delivery.target)
        try:
            delivered: Delivered = await handle.execute_update(
                RECEIVE, delivery, id=f"{delivery.key}~{attempt}", result_type=Delivered
            )
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise
            return Delivered("unknown" if await self.load(delivery.target) is None else "done")
        return delivered

    async def _retried(self, ask: Callable[[], Awaitable[Any]], entity: str) -> Any:
        """Return an answer of the server; None when it knows no such workflow. Raises UnavailableError."""
        self._check_open()
        reason = ""
        try:
            async with asyncio.timeout(self.address.wait_ms / 1000):
                for attempt in range(_TRIES_MAX):
                    try:
                        return await ask()
                    except RPCError as error:
                        if error.status == RPCStatusCode.NOT_FOUND:
                            return None
                        if "no poller" in error.message:
                            self._raise_unanswered(entity)
                        if "Task in failed state" in error.message:
                            raise _failing(entity) from error
                        if error.status not in _BUSY:
                            raise UnavailableError(
                                f"Temporal refused the call: {error.message}", code="engine.refused"
                            ) from error
                        reason = error.message
                    except WorkflowUpdateRPCTimeoutOrCancelledError as error:
                        task = asyncio.current_task()
                        if task is not None and task.cancelling():  # the SDK hides the cancellation, as by our timeout
                            raise asyncio.CancelledError from error
                        reason = str(error)
                    except WorkflowUpdateFailedError as error:  # the history ended while it was asked
                        reason = str(error.cause)
                    await asyncio.sleep(_BACKOFF.wait_ms(attempt, self.clock.jitter()) / 1000)
        except TimeoutError:
            self._raise_unanswered(entity)
        message = f"Temporal did not confirm the call for `{entity}`: {reason}"
        raise UnavailableError(message, code="engine.unreachable", hint="call again, with the same key")

    def _raise_unanswered(self, entity: str) -> NoReturn:
        queue = self.address.queue_of(kind_of(entity))
        message = f"no worker answered for `{entity}` within {self.address.wait_ms / 1000:g} s"
        hint = f"start a worker for the task queue {queue}, such as `interlock run`; then call again, with the same key"
        raise UnavailableError(message, code="engine.no_worker", hint=hint)

    # The store

    async def append(self, append: Append) -> AppendResult:
        """Create an entity. Every later step is an Update."""
        if append.expected != 0:
            hint = "send an event; what Temporal does not support is listed in docs/guide/temporal.md"
            raise UsageError("an entity on Temporal is stepped by its workflow", code="engine.unsupported", hint=hint)
        entry, entity = append.entry, append.entity
        if self.mirror is not None and await self.mirror.load(entity) is not None:
            found = await self.load(entity, key=entry.key)
            if found is None:
                found = await self.mirror.load(entity, key=entry.key)
            if found is not None:
                return found if isinstance(found, Duplicate) else Conflict(found.version)
        definition = await self._known.of(append.kind, entry.revision)
        address = self.address
        start = Start(
            entity,
            entry.revision,
            carried_definition(definition),
            Settings(
                address.queue,
                lists=address.lists,
                mirrored=self.mirror is not None,
                continue_after=address.continue_after,
                lease_ms=self.lease_ms,
            ),
            entry.event,
            entry.key,
            entry.trace,
            entry.reason_given,
            functions=self.functions_of(append.kind, entry.revision),
        )

        async def ask() -> AppendResult:
            try:
                await self.client.start_workflow(
                    WORKFLOW,
                    start,
                    id=entity,
                    task_queue=address.queue_of(append.kind),
                    task_timeout=TASK_MAX,
                    id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
                    id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                    search_attributes=attributes(
                        append.kind, entry.revision, append.states, append.tags, lists=address.lists
                    ),
                )
            except WorkflowAlreadyStartedError:
                found = await self.load(entity, key=entry.key)
                return found if isinstance(found, Duplicate) else Conflict(0 if found is None else found.version)
            return Appended(1, "")

        result = await self._retried(ask, entity)
        if result is None:
            raise UnavailableError(f"the namespace `{address.namespace}` was removed", code="engine.refused")
        created: AppendResult = result
        return created

    async def view(self, entity: str, key: str | None = None) -> EntityView | None:
        """Return an entity as its workflow has it; None when there is none."""
        handle = self.client.get_workflow_handle(entity)

        async def ask() -> EntityView:
            try:
                found: EntityView = await handle.query(LOOK, key, result_type=EntityView)
            except WorkflowQueryFailedError as error:
                raise UnavailableError(f"`{entity}` cannot be read: {error}", code="engine.refused") from error
            return found

        found: EntityView | None = await self._retried(ask, entity)
        return found

    async def load(self, entity: str, *, key: str | None = None) -> Loaded | Duplicate | None:
        """Return the entity; with `key`, `Duplicate` when that key was used before."""
        found = await self.view(entity, key)
        if found is None:
            return None if self.mirror is None else await self.mirror.load(entity, key=key)
        if found.key_version is not None:
            return Duplicate(found.key_version)
        return Loaded(found.snapshot.version, found.changed_ms, found.snapshot)

    async def read(self, entity: str, *, after: int = 0, limit: int = PAGE_MAX) -> tuple[JournalRecord, ...]:
        """Return the records after a version: those of the mirror, and those that only the workflow has."""
        if limit <= 0:
            return ()
        limit, after = min(limit, PAGE_MAX), max(0, after)
        kept = () if self.mirror is None else await self.mirror.read(entity, after=after, limit=limit)
        if len(kept) == limit:
            return kept
        page = await self._page(entity, after + len(kept), limit - len(kept))
        if page is None:
            return kept
        if page.dropped > after + len(kept):
            raise ArchivedError(entity, page.dropped, "no store: the address of the runtime has no `journal=`")
        first = max(after + len(kept), page.dropped) + 1
        return (*kept, *verified(page.lines, previous=page.previous, version=first))

    async def _page(self, entity: str, after: int, limit: int) -> Page | None:
        handle = self.client.get_workflow_handle(entity)

        async def ask() -> Page:
            try:
                found: Page = await handle.query(READ, args=[after, limit], result_type=Page)
            except WorkflowQueryFailedError as error:
                raise UnavailableError(f"`{entity}` cannot be read: {error}", code="engine.refused") from error
            return found

        found: Page | None = await self._retried(ask, entity)
        return found

    async def find(self, query: EntityQuery) -> EntityPage:
        """Return entities by kind, state, age and tag, oldest in their state first, page by page."""
        check_plain(query)
        if self.mirror is not None:
            return await self.mirror.find(query)
        views = await self._views(await self._matching(query))
        positions = []
        for entity, found in views.items():
            snapshot = found.snapshot
            position = list_position(
                query,
                entity.removeprefix(f"{query.kind}/"),
                revision=snapshot.revision,
                entered_ms=_entered_ms(found),
                active=found.active,
                tags=found.tags,
            )
            if position is not None:
                positions.append((position, entity))
        entities, after = page_of(query, sorted(positions))
        return EntityPage(tuple(_row(views[each]) for each in entities), after)

    async def _matching(self, query: EntityQuery) -> list[str]:
        """Return the ids that visibility has for a query. Raises UsageError when it has too many."""
        conditions = [f"WorkflowType = '{WORKFLOW}'", f"InterlockKind = {quoted(query.kind)}"]
        if self.address.lists:
            if query.state is not None:
                conditions.append(f"InterlockState = {quoted(query.state)}")
            if query.tag is not None:
                conditions.append(f"InterlockTag = {quoted(query.tag)}")
            if query.revision is not None:
                conditions.append(f"InterlockRevision = {quoted(query.revision)}")
        conditions.append("ExecutionStatus != 'ContinuedAsNew'")
        found: dict[str, None] = {}
        async for each in self.client.list_workflows(" AND ".join(conditions)):
            name = each.id.removeprefix(f"{query.kind}/")
            if query.prefix is None or name.startswith(query.prefix):
                found[each.id] = None
            if len(found) > ENGINE_LISTED_MAX:
                message = f"more than {ENGINE_LISTED_MAX:,} entities match; without a mirror each of them is read"
                hint = "add journal=<store> to the address, or narrow the query"
                raise UsageError(message, code="engine.listed", hint=hint)
        return list(found)

    async def _views(self, entities: list[str]) -> dict[str, EntityView]:
        gate = asyncio.Semaphore(_QUERIES_AT_ONCE)

        async def one(entity: str) -> EntityView | None:
            async with gate:
                return await self.view(entity)

        found = await asyncio.gather(*(one(each) for each in entities))
        return {entity: view for entity, view in zip(entities, found, strict=True) if view is not None}

    async def kinds(self) -> tuple[str, ...]:
        """Return the kinds that have entities, as far as visibility shows them."""
        if self.mirror is not None:
            return await self.mirror.kinds()
        found: set[str] = set()
        query = f"WorkflowType = '{WORKFLOW}'"
        while len(found) < ENGINE_LISTED_MAX:
            others = "".join(f" AND InterlockKind != {quoted(each)}" for each in sorted(found))
            async for each in self.client.list_workflows(query + others, limit=1, page_size=1):
                found.add(kind_of(each.id))
                break
            else:
                break
        return tuple(sorted(found))

    async def carried_definition(self, kind: str, name: str) -> CarriedDefinition | None:
        """Return the definition that an entity of a revision carries; None when none is found."""
        query = f"WorkflowType = '{WORKFLOW}' AND InterlockKind = {quoted(kind)} AND InterlockRevision = {quoted(name)}"
        ids = [each.id async for each in self.client.list_workflows(query, limit=1, page_size=1)]
        if not ids:
            return None
        handle = self.client.get_workflow_handle(ids[0])
        found: CarriedDefinition | None = await self._retried(
            lambda: handle.query(DEFINITION, result_type=CarriedDefinition), ids[0]
        )
        return found

    # Verification

    async def entity_names(self) -> None:
        """Return None: `find` lists all entities."""

    async def differences(self, entity: str | None = None) -> tuple[str, ...]:
        """Return how a replay of the recorded histories of an entity, with the charts of this process, differs."""
        if entity is None:
            return ()
        from interlock.engines.temporal.replay import replay_histories

        runs = self.client.list_workflows(f"WorkflowId = {quoted(entity)}")
        histories = [
            await self.client.get_workflow_handle(entity, run_id=each.run_id).fetch_history() async for each in runs
        ]
        reports = await replay_histories(histories, self._charts)
        return tuple(f"a replay of its history differs: {each.problem}" for each in reports if each.problem is not None)

    async def write_mirror(self, call: MirrorCall) -> None:
        """Write entries to the mirror. For an activity."""
        if self.mirror is None:
            raise UnavailableError("this worker has no mirror", code="engine.mirror", hint="use the same address")
        from interlock.engines.temporal.mirror import write

        await write(self.mirror, self, call)

    async def close(self) -> None:
        """Refuse further calls, and close the mirror."""
        self._closed = True
        if self.mirror is not None:
            await self.mirror.close()

    def _check_open(self) -> None:
        if self._closed:
            raise UnavailableError("the store is closed", code="store.closed")


class _Definitions:
    """The definitions of this process, of the mirror, and those that entities carry."""

    def __init__(self, store: TemporalStore) -> None:
        self._store = store
        self._local = LocalDefinitions()

    async def save_definition(self, definition: Definition, *, now_ms: int) -> Edition:
        """Save the definition of a chart of this process, also in the mirror."""
        mirror = self._store.mirror
        if mirror is not None and mirror.definitions is not None:
            await mirror.definitions.save_definition(definition, now_ms=now_ms)
        return await self._local.save_definition(definition, now_ms=now_ms)

    async def read_definitions(self, kind: str, name: str) -> tuple[StoredDefinition, ...]:
        """Return the revisions that a name means."""
        found = await self._local.read_definitions(kind, name)
        mirror = self._store.mirror
        if not found and mirror is not None and mirror.definitions is not None:
            found = await mirror.definitions.read_definitions(kind, name)
        if not found:
            carried = await self._store.carried_definition(kind, name)
            if carried is not None:
                self._local.carry(definition_of(carried))
                found = await self._local.read_definitions(kind, name)
        return found

    async def list_definitions(self, kind: str | None = None) -> tuple[Edition, ...]:
        """Return the editions of the charts of this process, and of the mirror."""
        mirror = self._store.mirror
        if mirror is not None and mirror.definitions is not None:
            return await mirror.definitions.list_definitions(kind)
        return await self._local.list_definitions(kind)

    async def of(self, kind: str, name: str) -> Definition | None:
        """Return the definition of a revision that this process has saved."""
        found = await self._local.read_definitions(kind, name)
        return found[0].definition if len(found) == 1 else None


def _failing(entity: str) -> UnavailableError:
    """Return the error for an entity that the workers cannot run, such as one whose functions they lack."""
    hint = "the log of the worker has the reason; when it is mended, call again with the same key"
    return UnavailableError(f"the workers cannot run `{entity}`", code="engine.failing", hint=hint)


def _receipt(answer: Answer) -> Receipt:
    if answer.error is not None:
        raise raised(answer.error)
    assert answer.receipt is not None
    return answer.receipt


def _entered_ms(found: EntityView) -> int:
    return since_ms(found.active, found.snapshot.configuration, found.created_ms)


def _row(found: EntityView) -> EntityRow:
    snapshot = found.snapshot
    return EntityRow(
        snapshot.entity,
        snapshot.version,
        snapshot.revision,
        snapshot.configuration,
        found.created_ms,
        _entered_ms(found),
        found.changed_ms,
        snapshot.ended,
    )
