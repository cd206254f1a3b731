"""Synchronous standbys: how a receipt waits for them when COMMIT alone does not.

Where `synchronous_standby_names` is set, COMMIT returns when a standby has the commit. Two ways lead around that: a
read does not wait for standbys, and the wait of a COMMIT may be cancelled: then only this server has the commit.

Rule 1: a receipt that depends on a read (a key that was used, a record that is our own) is sent after a transaction
that started after the read and waited as any COMMIT does. The write-ahead log has one order: a standby that has this
has everything before it. The transaction runs on the connection of the read, since another may lead to another server,
and once for all keys of one query.
Rule 2: a COMMIT whose wait was cancelled (`pg_cancel_backend`) returns normally, with a warning. The warning is
recorded, and what was written on that connection is confirmed by rule 1 before it is acknowledged.
Rule 3: whether there are synchronous standbys comes with the very answer that is to be confirmed (`WAITS`): a changed
configuration counts immediately, and where there are none, nothing is sent.
Rule 4: a confirmation may take as long as a COMMIT. After that nothing is acknowledged, and the transaction is
cancelled: it has no data, and would otherwise occupy a server process until a standby comes.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakSet

import asyncpg  # type: ignore[import-untyped]  # see `connection`

from interlock.errors import UnavailableError
from interlock.stores.postgres.address import PostgresAddress
from interlock.stores.postgres.connection import ANSWER_SECONDS, Connection, disconnect, sqlstate

UNCONFIRMED = "store.standby"
"""The error code when no standby confirms what the server shows."""

CONFIRM = "SELECT pg_logical_emit_message(true, 'interlock', '')"
"""Writes to the write-ahead log and to no table; every role may, whatever `wal_level` is. It must write: for a
transaction that only has a number (`pg_current_xact_id()`) the server does not wait."""

CONFIRM_SECONDS = ANSWER_SECONDS
"""How long a standby may take: as long as a COMMIT, which waits for the same."""

CANCELLED_IN = "SyncRepWaitForLSN"
"""The server's function that warns of a cancelled wait: its messages are translated, its name is not."""


class Standbys:
    """Which connections of one event loop had a wait cancelled."""

    def __init__(self, address: PostgresAddress) -> None:
        self._address = address
        self._cancelled: WeakSet[Connection] = WeakSet()

    def watch(self, connection: Connection) -> None:
        """Listen to the warnings of a new connection. The driver reports them before the answer they came with."""
        connection.add_log_listener(self._on_warning)

    def forget(self, connection: Connection) -> None:
        """Forget earlier warnings: they concerned another caller."""
        self._cancelled.discard(connection)

    async def settle(self, connection: Connection) -> None:
        """Confirm what a connection wrote, if a wait of it was cancelled. Raises as `confirm`."""
        if connection in self._cancelled:
            await self.confirm(connection)

    async def confirm(self, connection: Connection) -> None:
        """Return when the standbys have everything that this connection has seen. Raises UnavailableError otherwise.

        A lost connection raises the driver's error.
        """
        self.forget(connection)
        try:
            await connection.execute(CONFIRM, timeout=CONFIRM_SECONDS)
        except TimeoutError as error:
            await disconnect(connection)
            raise self._unconfirmed("no standby confirmed the commit in time") from error
        except asyncpg.PostgresError as error:
            if sqlstate(error) != "42501":
                raise
            message = f"{self._address.place} does not allow waiting for its standbys: {error}"
            hint = "run: GRANT EXECUTE ON FUNCTION pg_logical_emit_message TO <user>"
            raise UnavailableError(message, code="store.privilege", hint=hint) from error
        if connection in self._cancelled:
            raise self._unconfirmed("the wait for a standby was cancelled")

    def _unconfirmed(self, why: str) -> UnavailableError:
        hint = "retry later with the same key; see synchronous_standby_names and pg_stat_replication"
        return UnavailableError(f"{self._address.place}: {why}", code=UNCONFIRMED, hint=hint)

    def _on_warning(self, connection: Connection, warning: Any) -> None:
        # There are other warnings, some with every commit: when transaction numbers run out, or from a trigger.
        origin = getattr(warning, "server_source_function", None)
        if sqlstate(warning).startswith("01") and origin in {None, CANCELLED_IN}:
            self._cancelled.add(connection)
