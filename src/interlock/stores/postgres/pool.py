"""The connections of one event loop: opened when needed, up to a limit, used by one caller at a time.

Rule 1: a connection that broke, or whose caller was cancelled in the middle, is never used again; and when one broke,
the idle ones are closed as well: a server that was restarted broke them all.
Rule 2: a query that only reads, or has the same effect when repeated, is asked once more on a new connection; other
changes are repeated by their caller.
Rule 3: a connection that is being opened is opened, even when its caller was cancelled meanwhile: the next caller gets
it. If it were cancelled in the middle, the driver would lose an error, and the loop would complain about it.
Rule 4: a block ends when its writes are committed as promised, also on standbys that a commit waits for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import asyncpg  # type: ignore[import-untyped]  # see `connection`

from interlock.errors import InterlockError, UnavailableError
from interlock.stores.postgres.address import PostgresAddress
from interlock.stores.postgres.connection import (
    CONNECTION_LOST,
    Connection,
    connect,
    disconnect,
    is_lost,
    translate_error,
)
from interlock.stores.postgres.standbys import Standbys

T = TypeVar("T")


class ConnectionPool:
    """The connections of one event loop to the server."""

    def __init__(self, address: PostgresAddress) -> None:
        self.address = address
        self.standbys = Standbys(address)
        self.loop = asyncio.get_running_loop()
        self._idle: list[Connection] = []
        self._used: set[Connection] = set()
        self._free = asyncio.Semaphore(address.connections)
        self._making: set[asyncio.Task[Connection]] = set()
        self._unclaimed: list[asyncio.Task[Connection]] = []
        self._closed = False

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Lend a connection for the block. Raises UsageError or UnavailableError when none can be opened.

        Raises UnavailableError after the block when a commit in it was not confirmed by the standbys.
        """
        async with self._free:
            connection = await self._take()
            self._used.add(connection)
            self.standbys.forget(connection)
            try:
                yield connection
                await self.standbys.settle(connection)
            except (asyncpg.PostgresError, InterlockError) as error:
                if is_lost(error):
                    self._drop_all(connection)
                raise
            except CONNECTION_LOST:
                self._drop_all(connection)
                raise
            except BaseException:  # the caller was cancelled: the next one must not get its answer
                connection.terminate()
                raise
            finally:
                self._used.discard(connection)
                self._return(connection)

    async def ask_with_retry(self, question: Callable[[Connection], Awaitable[T]]) -> T:
        """Return the answer to a question that may be asked twice. Raises the driver's error about the question."""
        try:
            async with self.connection() as connection:
                return await question(connection)
        except (asyncpg.PostgresError, *CONNECTION_LOST) as error:
            if not is_lost(error):
                raise
        try:
            async with self.connection() as connection:
                return await question(connection)
        except (asyncpg.PostgresError, *CONNECTION_LOST) as error:
            if not is_lost(error):
                raise
            raise translate_error(error, self.address) from error

    async def close(self) -> None:
        """Close all connections; those in use are closed at the end of their block."""
        self._closed = True
        if self._making:
            await asyncio.wait(tuple(self._making))
        while self._idle:
            await disconnect(self._idle.pop())

    def abandon(self) -> None:
        """Close everything after the loop was closed; the server detects that the connections ended."""
        self._closed = True
        for connection in (*self._idle, *self._used):
            try:
                connection.terminate()
            except RuntimeError:  # the loop is closed, and its sockets with it
                continue
        self._idle.clear()

    async def _take(self) -> Connection:
        if self._closed:
            raise UnavailableError("the store is closed", code="store.closed")
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        made = self._unclaimed.pop() if self._unclaimed else self._start_connecting()  # within the limit
        try:
            return await asyncio.shield(made)
        except asyncio.CancelledError:
            self._unclaimed.append(made)
            made.add_done_callback(self._keep_unclaimed)
            raise

    def _start_connecting(self) -> asyncio.Task[Connection]:
        made = self.loop.create_task(self._connect())
        self._making.add(made)
        made.add_done_callback(self._making.discard)
        return made

    async def _connect(self) -> Connection:
        connection = await connect(self.address)
        self.standbys.watch(connection)
        return connection

    def _keep_unclaimed(self, made: asyncio.Task[Connection]) -> None:
        """Keep a connection whose caller was cancelled for the next one."""
        if made not in self._unclaimed:
            return
        self._unclaimed.remove(made)
        if not made.cancelled() and made.exception() is None:
            self._return(made.result())

    def _return(self, connection: Connection) -> None:
        if connection.is_closed():
            return
        if self._closed:
            connection.terminate()
            return
        self._idle.append(connection)

    def _drop_all(self, broken: Connection) -> None:
        broken.terminate()
        while self._idle:
            self._idle.pop().terminate()
