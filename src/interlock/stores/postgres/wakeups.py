"""Wake-ups through a PostgreSQL server: coalesced notifications, and a connection that listens.

Rule 1: a notification is never part of a step's transaction: those wait for each other at the server, which took more
than half of the throughput. A process sends at most one in ten milliseconds, after the commits.
Rule 2: the connection that listens is outside the pool, so that a busy pool delays no signal. When it is lost, the
worker looks once as soon as there is another one.
Rule 3: a notification names the tenant and lanes, and the store object that sent it, which ignores it.
Rule 4: whether a worker of this host has died is seen by its lock in a local folder (`wakeup_pipes`); the server only
knows that a connection was lost. On other hosts its claims end with their lease.
Rule 5: a reader that follows the feed listens on a channel for entries, and holds a shared advisory lock on that
connection, which ends with it. A sender that cannot get the lock exclusively for a moment knows that there are readers;
two senders that try at the same moment may notify once without need.
Rule 6: through a pooler in transaction mode nothing arrives; the poll remains. `interlock doctor` tests it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
from collections.abc import Callable, Coroutine
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

import asyncpg  # type: ignore[import-untyped]  # see `connection`

from interlock.errors import InterlockError
from interlock.model.backoff import Backoff
from interlock.model.journal.work import Lane
from interlock.ports.clock import SystemClock
from interlock.ports.wakeups import FOLLOWER_SECONDS, Following, Listening, OnWakeup
from interlock.stores.postgres.address import PostgresAddress
from interlock.stores.postgres.connection import CONNECTION_LOST, Connection, connect, disconnect
from interlock.stores.postgres.pool import ConnectionPool
from interlock.stores.wakeup_pipes import (
    ALL_LANES,
    ENTRIES,
    ReleaseClaims,
    SignalSchedule,
    WakeupPipes,
    decode_lanes,
    encode_lanes,
)

NOTIFY_SECONDS = 0.01
"""The least time between two notifications of a process."""

ARRIVAL_SECONDS = 5.0
"""How long a test waits for its own notification, which takes less than a millisecond."""

NOTIFY = "SELECT pg_notify($1, $2)"

_RECONNECT = Backoff(100, 5_000, jitter=0.5)
"""The wait before the connection that listens is opened again."""

_log = logging.getLogger("interlock.stores")

Pool = Callable[[], ConnectionPool]
"""Returns the connections of the running event loop."""


FOLLOW = "SELECT pg_advisory_lock_shared($1)"
IS_FOLLOWED = "SELECT NOT pg_try_advisory_xact_lock($1)"


def entries_channel_of(address: PostgresAddress) -> str:
    """Return the channel of new entries of a store."""
    return f"interlock_entries_{address.schema}"


def follower_lock_of(address: PostgresAddress) -> int:
    """Return the number of the advisory lock that readers of a tenant's feed hold."""
    name = f"interlock feed {address.schema} {address.tenant}"
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big", signed=True)


def channel_of(address: PostgresAddress) -> str:
    """Return the channel of a store: one for each schema."""
    return f"interlock_work_{address.schema}"


class PostgresWakeups:
    """The signals of one store and tenant on a server, in one process."""

    def __init__(self, address: PostgresAddress, pool: Pool, release: ReleaseClaims) -> None:
        self._address = address
        self._pool = pool
        self._clock = SystemClock()
        self._process = os.getpid()
        self._sender = self._clock.token()[:12]
        self._schedules: dict[asyncio.AbstractEventLoop, SignalSchedule] = {}
        self._sending: set[asyncio.Task[None]] = set()
        self._listeners: set[_Listener | _Follower] = set()
        self._is_followed = False
        self._looked = float("-inf")
        place = blake2b(f"{address.place} {address.schema}".encode(), digest_size=8).hexdigest()
        self._local = WakeupPipes(local_folder(place), address.tenant, release)

    # Sending

    def ring(self, lanes: frozenset[Lane]) -> None:
        """Wake the workers of other processes."""
        self._ring(encode_lanes(lanes))

    def _ring(self, bits: int) -> None:
        loop = asyncio.get_running_loop()
        schedule = self._schedules.get(loop)
        if schedule is None:
            for each in [each for each in self._schedules if each.is_closed()]:
                del self._schedules[each]
            schedule = self._schedules[loop] = SignalSchedule(NOTIFY_SECONDS, self._send)
        schedule.add(bits)

    def ring_entries(self) -> None:
        """Wake the readers of other processes that follow the feed, if there are any."""
        now = asyncio.get_running_loop().time()
        if now >= self._looked + FOLLOWER_SECONDS:
            self._looked = now
            self._start(self._look_for_followers())
        elif self._is_followed:
            self._ring(ENTRIES)

    def _send(self, bits: int) -> None:
        self._start(self._notify(bits))

    def _start(self, sending: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(sending)
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _look_for_followers(self) -> None:
        try:
            async with self._pool().connection() as connection:
                self._is_followed = bool(await connection.fetchval(IS_FOLLOWED, follower_lock_of(self._address)))
        except (InterlockError, asyncpg.PostgresError, *CONNECTION_LOST) as error:
            _log.debug("cannot look for readers of the feed", exc_info=error)  # they poll
        if self._is_followed:
            self._ring(ENTRIES)

    async def _notify(self, bits: int) -> None:
        channels = {channel_of(self._address): bits & ~ENTRIES, entries_channel_of(self._address): bits & ENTRIES}
        try:
            async with self._pool().connection() as connection:
                for channel, own_bits in channels.items():
                    if own_bits:
                        payload = f"{own_bits}:{self._sender}:{self._address.tenant}"
                        await connection.execute(NOTIFY, channel, payload)
        except (InterlockError, asyncpg.PostgresError, *CONNECTION_LOST) as error:
            _log.debug("a wake-up could not be sent", exc_info=error)  # the poll finds the work

    # Listening

    async def listen(self, owner: str, on_wakeup: OnWakeup) -> Listening:
        """Call a function at each signal, until closed."""
        local = await self._local.listen(owner, on_wakeup)
        listener = _Listener(self, owner, on_wakeup, local)
        self._listeners.add(listener)
        return listener

    async def follow(self, on_entries: Callable[[], None]) -> Following:
        """Call a function when another process writes entries, until closed."""
        follower = _Follower(self, on_entries)
        self._listeners.add(follower)
        return follower

    def remove(self, listener: _Listener | _Follower) -> None:
        """Forget a listener that is closed."""
        self._listeners.discard(listener)

    async def receive_forever(self, on_wakeup: OnWakeup, *, entries: bool = False) -> None:
        """Listen, and listen again after a lost connection. The loop is endless on purpose."""
        failures = 0
        while True:
            try:
                connection = await connect(self._address)
            except InterlockError as error:
                level = logging.WARNING if failures == 0 else logging.DEBUG
                _log.log(level, "no wake-ups: cannot listen", extra={"code": error.code, "error": error.message})
            else:
                try:
                    failures = await self._receive(connection, on_wakeup, entries=entries)
                finally:
                    await disconnect(connection)
            await self._clock.sleep_ms(_RECONNECT.wait_ms(failures, self._clock.jitter()))
            failures += 1

    async def _receive(self, connection: Connection, on_wakeup: OnWakeup, *, entries: bool) -> int:
        """Listen on a connection until it is lost; return the number of failures in a row, which is zero."""
        lost = asyncio.Event()
        connection.add_termination_listener(lambda _: lost.set())

        def receive(_connection: Any, _pid: int, _channel: str, payload: str) -> None:
            bits, _, rest = payload.partition(":")
            sender, _, tenant = rest.partition(":")
            if tenant == self._address.tenant and sender != self._sender and bits.isascii() and bits.isdecimal():
                on_wakeup(decode_lanes(int(bits)))

        try:
            if entries:
                await connection.add_listener(entries_channel_of(self._address), receive)
                await connection.execute(FOLLOW, follower_lock_of(self._address))
            else:
                await connection.add_listener(channel_of(self._address), receive)
        except (asyncpg.PostgresError, *CONNECTION_LOST):
            return 1
        on_wakeup(ALL_LANES)  # what was signalled while this process did not listen
        await lost.wait()
        return 0

    async def arrive(self) -> bool:
        """Whether a notification arrives within `ARRIVAL_SECONDS`: not through a pooler in transaction mode."""
        arrived, token = asyncio.Event(), self._clock.token()
        connection = await connect(self._address)
        try:
            await connection.add_listener(
                channel_of(self._address), lambda *given: arrived.set() if token in given[3] else None
            )
            async with asyncio.timeout(ARRIVAL_SECONDS), self._pool().connection() as other:
                await other.execute(NOTIFY, channel_of(self._address), f"0:{token}:")
                await arrived.wait()
        except (TimeoutError, asyncpg.PostgresError, *CONNECTION_LOST):
            return False
        finally:
            await disconnect(connection)
        return True

    async def close(self) -> None:
        """Send what waits, and end what is in progress."""
        if os.getpid() != self._process:
            return  # everything belongs to the process that was forked
        schedule = self._schedules.pop(asyncio.get_running_loop(), None)
        if schedule is not None:
            schedule.flush()
        if self._sending:
            await asyncio.gather(*self._sending)
        for each in tuple(self._listeners):
            await each.close()
        await self._local.close()


class _Listener:
    """One worker that listens."""

    def __init__(self, wakeups: PostgresWakeups, owner: str, on_wakeup: OnWakeup, local: Listening | None) -> None:
        self.owner = owner
        self._wakeups = wakeups
        self._local = local
        self._task = asyncio.get_running_loop().create_task(wakeups.receive_forever(on_wakeup))

    @property
    def held_file(self) -> str | None:
        """The file that is locked while the worker runs."""
        return None if self._local is None else self._local.held_file

    async def close(self) -> None:
        """Stop listening, and sign off."""
        self._wakeups.remove(self)
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        if self._local is not None:
            await self._local.close()


class _Follower:
    """One reader that follows the feed."""

    def __init__(self, wakeups: PostgresWakeups, on_entries: Callable[[], None]) -> None:
        self._wakeups = wakeups
        self._task = asyncio.get_running_loop().create_task(
            wakeups.receive_forever(lambda _: on_entries(), entries=True)
        )

    async def close(self) -> None:
        """Stop following."""
        self._wakeups.remove(self)
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task


def local_folder(name: str) -> Path:
    """Return the path, without its suffix, of the folder where the workers of this host and user hold their locks."""
    return Path(tempfile.gettempdir()) / f"interlock-{os.getuid()}-{name}"
