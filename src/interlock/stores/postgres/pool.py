"""The connections of one event loop: opened when needed, at most so many, used by one caller at a time.

Rule 1: a connection that broke, or whose caller went away in the middle, is never used again; and when one broke, those
that lie idle are let go as well, since a server that was restarted broke them all.
Rule 2: a question that only reads, or does no harm when done twice, is asked once more on a fresh connection; what else
writes is its caller's to repeat.
Rule 3: a connection that is being made is made, also when whoever asked has gone away meanwhile: the next one has it.
Cut off in the middle, the driver would lose an error that nobody could take, and the loop complain of it.
Rule 4: a block ends when what it wrote is committed as promised, also on standbys that a commit waits for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import asyncpg  # type: ignore[import-untyped]  # see postgres_connect

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
    """What joins one event loop with the server."""

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
        """A connection for the block. Raises UsageError or UnavailableError when none can be had.

        Raises UnavailableError behind it when a commit in it was not waited for to the end, and no standby confirms it.
        """
        async with self._free:
            connection = await self._taken()
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
            except BaseException:  # its caller went away: what the server still says is not for the next one
                connection.terminate()
                raise
            finally:
                self._used.discard(connection)
                self._give_back(connection)

    async def ask_with_retry(self, question: Callable[[Connection], Awaitable[T]]) -> T:
        """The answer to a question that may be asked twice. Raises the driver's error if it is about the question."""
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
        """Take leave of the server on all connections; those in use end with their block."""
        self._closed = True
        if self._making:
            await asyncio.wait(tuple(self._making))
        while self._idle:
            await disconnect(self._idle.pop())

    def abandon(self) -> None:
        """Let go of everything although the loop is gone; the server notices that nobody is there."""
        self._closed = True
        for connection in (*self._idle, *self._used):
            try:
                connection.terminate()
            except RuntimeError:  # "Event loop is closed": then its sockets are closed with it
                continue
        self._idle.clear()

    async def _taken(self) -> Connection:
        if self._closed:
            raise UnavailableError("the store is closed", code="store.closed")
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        made = self._unclaimed.pop() if self._unclaimed else self._begun()  # one more would be one too many
        try:
            return await asyncio.shield(made)
        except asyncio.CancelledError:
            self._unclaimed.append(made)
            made.add_done_callback(self._keep)
            raise

    def _begun(self) -> asyncio.Task[Connection]:
        made = self.loop.create_task(self._made())
        self._making.add(made)
        made.add_done_callback(self._making.discard)
        return made

    async def _made(self) -> Connection:
        connection = await connect(self.address)
        self.standbys.watch(connection)
        return connection

    def _keep(self, made: asyncio.Task[Connection]) -> None:
        """A connection that nobody waits for any more is for the next one."""
        if made not in self._unclaimed:
            return
        self._unclaimed.remove(made)
        if not made.cancelled() and made.exception() is None:
            self._give_back(made.result())

    def _give_back(self, connection: Connection) -> None:
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
