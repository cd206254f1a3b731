"""Synchronous standbys: what a server shows before they have it, and how a receipt waits for them all the same.

Where `synchronous_standby_names` is set, COMMIT returns when a standby has the commit. Two ways lead past that: a read
waits for no standby, and a COMMIT that is waiting may be cut short, and is then committed on this server only.

Rule 1: a receipt that rests on a read (a key that is known, a record that is our own) goes out after a transaction that
began behind the read and waited as any COMMIT does. The log is one line: who has that has all before it. It runs on the
connection of the read, since another may lead to another server, and once for all keys of one question.
Rule 2: a COMMIT whose wait was called off (`pg_cancel_backend`) returns as if all were well, with a warning beside it.
The warning is heard, and before anybody hears of what was written on that connection, it is confirmed by rule 1.
Rule 3: whether there are such standbys comes with the very answer that is to be confirmed (`WAITS`): a server that was
set up otherwise meanwhile is believed at once, and where there are none, nothing is sent.
Rule 4: it may take as long as a COMMIT. Then nothing is acknowledged, and the transaction is called off: it holds no
data, and left alone it would keep a process of the server for as long as no standby comes.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakSet

import asyncpg  # type: ignore[import-untyped]  # see postgres_connect

from interlock.errors import UnavailableError
from interlock.stores.postgres.address import PostgresAddress
from interlock.stores.postgres.connection import ANSWER_SECONDS, Connection, disconnect, sqlstate

UNCONFIRMED = "store.standby"
"""The code of the error when no standby confirms what the server shows."""

CONFIRM = "SELECT pg_logical_emit_message(true, 'interlock', '')"
"""Writes to the log and to no table; everybody may, whatever `wal_level` is. It must write: for a transaction that has
a number and no more (`pg_current_xact_id()`) the server waits for nobody."""

CONFIRM_SECONDS = ANSWER_SECONDS
"""How long a standby may take: as long as an answer to a COMMIT, which waits for the same."""

CALLED_OFF_IN = "SyncRepWaitForLSN"
"""The server's function that warns of a wait that was called off: its texts are translated, its names are not."""


class Standbys:
    """What the connections of one event loop know of standbys."""

    def __init__(self, address: PostgresAddress) -> None:
        self._address = address
        self._called_off: WeakSet[Connection] = WeakSet()

    def watch(self, connection: Connection) -> None:
        """Hear the warnings of a new connection. The driver tells them before it gives the answer they came with."""
        connection.add_log_listener(self._heard)

    def forget(self, connection: Connection) -> None:
        """Begin anew: whoever used the connection before was told."""
        self._called_off.discard(connection)

    async def settle(self, connection: Connection) -> None:
        """Let what a connection wrote be confirmed, if a wait of its was called off. Raises as `confirm`."""
        if connection in self._called_off:
            await self.confirm(connection)

    async def confirm(self, connection: Connection) -> None:
        """Return when the standbys have all that this connection has seen. Raises UnavailableError when they do not.

        A connection that is lost meanwhile raises the driver's error.
        """
        self.forget(connection)
        try:
            await connection.execute(CONFIRM, timeout=CONFIRM_SECONDS)
        except TimeoutError as error:
            await disconnect(connection)
            raise self._unconfirmed("no standby confirms what it has, in time") from error
        except asyncpg.PostgresError as error:
            if sqlstate(error) != "42501":
                raise
            message = f"{self._address.place} does not let us wait for its standbys: {error}"
            hint = "GRANT EXECUTE ON FUNCTION pg_logical_emit_message TO the user"
            raise UnavailableError(message, code="store.privilege", hint=hint) from error
        if connection in self._called_off:
            raise self._unconfirmed("waiting for a standby was called off")

    def _unconfirmed(self, why: str) -> UnavailableError:
        hint = "send again later with the same key; see synchronous_standby_names and pg_stat_replication"
        return UnavailableError(f"{self._address.place}: {why}", code=UNCONFIRMED, hint=hint)

    def _heard(self, connection: Connection, warning: Any) -> None:
        # Others warn as well, some with every commit: when numbers of transactions run out, or from a trigger.
        origin = getattr(warning, "server_source_function", None)
        if sqlstate(warning).startswith("01") and origin in {None, CALLED_OFF_IN}:
            self._called_off.add(connection)
