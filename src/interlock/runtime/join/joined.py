"""Sends and creations in a transaction of the caller.

Rule 1: it is the code of `send` on another store: the rules of keys, versions, roles and refusals are the same. It runs
once; a lost swap raises ConflictError (`conflict.joined`), because only the caller can repeat its transaction.
Rule 2: nothing of it is in the caches of the runtime before the COMMIT: the next statement may undo it.
Rule 3: for a blocking connection the coroutine is driven in the caller's thread. It never waits for an event loop.
Rule 4: a refused event is recorded outside the transaction, which may be rolled back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, TypeVar, Unpack

from msgspec.structs import replace

from interlock.errors import UnavailableError
from interlock.model.arguments import check_options
from interlock.model.encoding.convert import Model
from interlock.model.journal.entry import Receipt
from interlock.model.journal.work import WorkDelta
from interlock.model.snapshot import Snapshot
from interlock.ports.store import JoinedStore, Joins
from interlock.runtime.direct_calls import drive as drive_directly
from interlock.runtime.entities.announcements import OnWork
from interlock.runtime.entities.entities import Entities
from interlock.runtime.history.removed import missing_entity
from interlock.runtime.join.adapters import Kind
from interlock.runtime.join.after_commit import CommitWatch, JoinedWrite
from interlock.runtime.join.drivers import Adapter
from interlock.runtime.request_checks import (
    CREATE_ARGUMENTS,
    SEND_ARGUMENTS,
    CreateOptions,
    SendOptions,
    check_entity,
    passes_on_to,
)
from interlock.runtime.requests import CallerRequests

T = TypeVar("T")


RequestsOn = Callable[[JoinedStore, OnWork], CallerRequests]
"""Returns the requests of one call on a transaction."""

Call = Callable[[CallerRequests], Awaitable[Receipt]]


class JoinCalls:
    """The calls of a runtime in transactions of callers, from its own event loop or from other threads."""

    def __init__(
        self, entities: Entities, joins: Joins, requests_on: RequestsOn, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.loop = loop
        self._entities = entities
        self._joins = joins
        self._requests_on = requests_on
        self._watch = CommitWatch(joins, entities)

    async def stop(self) -> None:
        """Wait for no transaction any more."""
        await self._watch.stop()

    def is_prepared(self, entity: object) -> bool:
        """Whether `prepare` has nothing to do."""
        if self._entities.process.vault is not None:
            return False  # the data key of the entity may have to be read
        return self._entities.is_prepared(str(entity).partition("/")[0], saves=not self._joins.one_writer)

    async def prepare(self, entity: object) -> None:
        """Read what a call needs of the store apart from the entity, in the runtime's event loop.

        Where the store can write meanwhile, definitions are saved here. On SQLite the caller's transaction saves them.
        """
        if not self.is_prepared(entity):
            await self._entities.prepare(str(entity).partition("/")[0], saves=not self._joins.one_writer)
            await self._entities.prepare_keys(str(entity))

    async def send(self, adapter: Adapter, entity: str, call: Call, *, wait: bool) -> Receipt:
        """Make a call on the transaction of a connection."""
        store = self._joins.joined(adapter.transaction(), wait=wait)
        created: list[WorkDelta] = []
        requests = self._requests_on(store, lambda _, delta: created.append(delta))
        receipt = await call(requests)
        if store.mark is not None:
            lines = tuple(requests.entities.held_lines or ())
            write = JoinedWrite(entity, store.mark, tuple(created), is_reported=False, lines=lines)
            write.is_reported = adapter.on_commit(lambda: self._in_loop(self._watch.committed, write))
            self._in_loop(self._watch.add, write)
        return replace(receipt, joined=True)

    async def lock(self, adapter: Adapter, entities: tuple[str, ...], *, wait: bool) -> None:
        """Lock entities in the transaction of a connection."""
        await self._joins.joined(adapter.transaction(), wait=wait).lock(entities)

    async def state(self, adapter: Adapter, entity: str) -> Snapshot:
        """Return an entity as the transaction of a connection sees it."""
        check_entity(entity)
        store = self._joins.joined(adapter.transaction())
        found = await store.look(entity)
        snapshot = None if found is None else found.snapshot
        if snapshot is None:
            raise await missing_entity(store, entity)
        with suppress(UnavailableError):  # its states can then be asked for
            await self._entities.revisions.on_transaction(store).for_preview(snapshot, needs_functions=False)
        return snapshot

    def _in_loop(self, function: Callable[[JoinedWrite], None], write: JoinedWrite) -> None:
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(function, write)


def _sending(entity: str, event: str | Model, payload: Any, options: SendOptions) -> Call:
    check_options(options, call="send", known=SEND_ARGUMENTS)
    return lambda requests: requests.send(entity, event, payload, **options)


def _creating(entity: str, context: Mapping[str, Any] | Model | None, options: CreateOptions) -> Call:
    check_options(options, call="create", known=CREATE_ARGUMENTS)
    return lambda requests: requests.create(entity, context, **options)


class AsyncJoined:
    """A runtime in the transaction of an asynchronous connection. Returned by `Runtime.join`."""

    def __init__(self, calls: JoinCalls, connection: Any, kind: Kind, *, wait: bool) -> None:
        self._calls = calls
        self._connection = connection
        self._kind = kind
        self._wait = wait

    @passes_on_to(CallerRequests.send)
    async def send(
        self, entity: str, event: str | Model, payload: Any = None, **options: Unpack[SendOptions]
    ) -> Receipt:
        """Send an event to an entity in the caller's transaction. It counts once the caller has committed.

        The arguments are those of `Runtime.send`. Raises what it raises, ConflictError (`conflict.joined`) when another
        transaction was first, and UsageError (`join.*`) when the connection cannot be joined. After an error of
        PostgreSQL, the transaction can only be rolled back.
        """
        return await self._send(entity, _sending(entity, event, payload, options))

    @passes_on_to(CallerRequests.create)
    async def create(
        self, entity: str, context: Mapping[str, Any] | Model | None = None, **options: Unpack[CreateOptions]
    ) -> Receipt:
        """Create an entity in the caller's transaction. The arguments are those of `Runtime.create`."""
        return await self._send(entity, _creating(entity, context, options))

    async def state(self, entity: str) -> Snapshot:
        """Return the entity with what the caller's transaction has written, which others do not see yet.

        It takes no lock: another transaction may change the entity before this one sends to it; `lock` prevents that.
        Raises NotFoundError.
        """
        return await self._on_adapter(lambda adapter: self._calls.state(adapter, entity))

    async def lock(self, *entities: str) -> None:
        """Lock entities in one order, so that two transactions that use several entities never deadlock."""
        await self._on_adapter(lambda adapter: self._calls.lock(adapter, entities, wait=self._wait))

    async def _send(self, entity: str, call: Call) -> Receipt:
        await self._calls.prepare(entity)
        return await self._on_adapter(lambda adapter: self._calls.send(adapter, entity, call, wait=self._wait))

    async def _on_adapter(self, call: Callable[[Adapter], Coroutine[Any, Any, T]]) -> T:
        if not self._kind.runs_sync:
            return await call(self._kind.adapter(self._connection))
        result: T = await self._connection.run_sync(lambda inner: drive(call(self._kind.adapter(inner))))
        return result


class Joined:
    """A runtime in the transaction of a blocking connection. Returned by `BlockingRuntime.join`."""

    def __init__(self, calls: JoinCalls, adapter: Adapter, check: Callable[[], None], *, wait: bool) -> None:
        self._calls = calls
        self._adapter = adapter
        self._check = check
        self._wait = wait

    @passes_on_to(CallerRequests.send)
    def send(self, entity: str, event: str | Model, payload: Any = None, **options: Unpack[SendOptions]) -> Receipt:
        """As `AsyncJoined.send`."""
        return self._send(entity, _sending(entity, event, payload, options))

    @passes_on_to(CallerRequests.create)
    def create(
        self, entity: str, context: Mapping[str, Any] | Model | None = None, **options: Unpack[CreateOptions]
    ) -> Receipt:
        """As `AsyncJoined.create`."""
        return self._send(entity, _creating(entity, context, options))

    def state(self, entity: str) -> Snapshot:
        """As `AsyncJoined.state`."""
        self._check()
        return drive(self._calls.state(self._adapter, entity))

    def lock(self, *entities: str) -> None:
        """As `AsyncJoined.lock`."""
        self._check()
        drive(self._calls.lock(self._adapter, entities, wait=self._wait))

    def _send(self, entity: str, call: Call) -> Receipt:
        self._check()
        if not self._calls.is_prepared(entity):
            asyncio.run_coroutine_threadsafe(self._calls.prepare(entity), self._calls.loop).result()
        return drive(self._calls.send(self._adapter, entity, call, wait=self._wait))


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that waits for nothing, without an event loop."""
    return drive_directly(coroutine, what="a joined call on a blocking connection", code="join.waited")
