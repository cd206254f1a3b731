"""Connections to a PostgreSQL server: how they are opened, what they guarantee, and how errors are translated.

Rule 1: a server that does not flush, or that is a standby, is refused at each new connection: after a failover it may
be another server.
Rule 2: a connection leaves no state on the server: no setting or lock outlives a transaction, so none is reset.
Rule 3: a plan must not depend on how full a table was when it was made. Sequential scans and nested loops are disabled
on our connections (lookups are written so that nothing else is possible), and so is JIT, which the high costs of
disabled plans would trigger.
Rule 4: warnings are received, whatever the settings of the user are: one of them says that the wait of a commit was
cancelled (`standbys`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol, TypeVar, cast

import asyncpg  # type: ignore[import-untyped]  # it ships no types: `Connection` below declares what we use

from interlock.errors import InterlockError, InternalError, UnavailableError, UsageError
from interlock.ports.fork import is_forked
from interlock.stores.postgres.address import PostgresAddress
from interlock.stores.postgres.forked_tls import check_tls
from interlock.stores.sql.database import Questions

T = TypeVar("T")

SERVER_MIN = 140_000
"""The oldest supported server, as `server_version_num` writes it."""

CONNECT_SECONDS = 5.0
"""How long opening a connection may take: a server that is slower counts as unreachable."""

ANSWER_SECONDS = 15.0
"""How long an answer may take. The server itself cancels a statement after 10; beyond that the network is down."""

CLOSE_SECONDS = 2.0
"""How long closing a connection may take."""

LOSING = frozenset({"off", "local", "remote_write"})
"""Values of a setting that let a commit return before it is flushed, here and on synchronous standbys."""

SETTINGS = {
    "synchronous_commit": "on",
    "client_min_messages": "warning",
    "default_transaction_isolation": "read committed",
    "lock_timeout": "2s",
    "statement_timeout": "10s",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_nestloop": "off",
    "jit": "off",
}

LOCK_TIMEOUT = "55P03"
"""The server's code when a lock was not available in time, or at all with NOWAIT."""

OTHER_GENERATION = "IL001"
"""The server's code when the set of indexed fields is not the one that a statement was prepared for."""

CONNECTION_LOST = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)
"""Errors of a connection that broke, besides the server's own (classes 08 and 57P0)."""

SELECT_SETTINGS = """
    SELECT current_setting('server_version_num')::integer, current_setting('server_encoding'),
           current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit'),
           pg_is_in_recovery()"""


SELECT_PLACE = "SELECT to_regnamespace($1) IS NOT NULL, to_regclass('schema_version') IS NOT NULL"
"""Whether the schema exists, and whether it has tables of a store."""


class Transaction(Protocol):
    """The part of the driver's transactions that we use: they end with their block."""

    async def __aenter__(self) -> object: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None: ...


class Fetching(Protocol):
    """Anything that runs a statement and returns its rows."""

    async def fetch(self, query: str, *values: Any) -> list[Any]:
        """Return all rows."""


class Connection(Fetching, Protocol):
    """The part of the driver's connections that we use."""

    def add_log_listener(self, callback: Callable[[Any, Any], None]) -> None:
        """Call a function for each warning, with the connection."""

    async def execute(
        self,
        query: str,
        *values: Any,
        timeout: float | None = None,  # noqa: ASYNC109  # the name that the driver uses
    ) -> str:
        """Run a statement, or several without values; within `ANSWER_SECONDS` unless another timeout is given."""

    async def fetchrow(self, query: str, *values: Any) -> Any:
        """Return the first row, or None."""

    async def fetchval(self, query: str, *values: Any) -> Any:
        """Return the first value of the first row, or None."""

    def transaction(self) -> Transaction:
        """Return a transaction that ends with its block."""

    async def add_listener(self, channel: str, callback: Callable[[Any, int, str, str], None]) -> None:
        """Listen to a channel: call a function with connection, process, channel and payload of each notification."""

    def add_termination_listener(self, callback: Callable[[Any], None]) -> None:
        """Call a function with the connection when it ends."""

    def is_closed(self) -> bool:
        """Return whether it broke, or was closed."""

    def terminate(self) -> None:
        """Close the socket immediately."""

    async def close(self) -> None:
        """Close the connection in an orderly way."""


async def connect(address: PostgresAddress) -> Connection:
    """Open a connection to a server that keeps the guarantees. Raises UsageError or UnavailableError."""
    if is_forked() and address.may_use_tls:
        await check_tls()
    try:
        made = await asyncpg.connect(
            address.dsn,
            timeout=CONNECT_SECONDS,
            command_timeout=ANSWER_SECONDS,
            server_settings=SETTINGS | {"search_path": address.schema, "application_name": address.application_name},
        )
    except (asyncpg.PostgresError, ValueError, *CONNECTION_LOST) as error:
        raise _connection_error(error, address) from error
    connection = cast("Connection", made)
    try:
        _check(await connection.fetchrow(SELECT_SETTINGS), address)
    except CONNECTION_LOST as error:
        connection.terminate()
        raise _connection_error(error, address) from error
    except BaseException:
        connection.terminate()
        raise
    return connection


async def disconnect(connection: Connection) -> None:
    """Close a connection, in a bounded time; a statement in progress is cancelled on the server."""
    try:
        async with asyncio.timeout(CLOSE_SECONDS):
            await connection.close()
    except (asyncpg.PostgresError, *CONNECTION_LOST):
        connection.terminate()


def _check(found: Any, address: PostgresAddress) -> None:
    version, encoding, fsync, full_page_writes, synchronous_commit, is_standby = found
    if version < SERVER_MIN:
        message = f"{address.place} is PostgreSQL {version // 10_000}; expected {SERVER_MIN // 10_000} or newer"
        raise UsageError(message, code="postgres.version")
    if encoding != "UTF8":
        hint = "CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0"
        raise UsageError(
            f"{address.place} has the encoding {encoding}; expected UTF8", code="postgres.encoding", hint=hint
        )
    if is_standby:
        message = f"{address.place} is a standby and does not accept writes"
        raise UnavailableError(message, code="postgres.recovery", hint="use the address of the primary")
    off = [
        name
        for name, value in (
            ("fsync", fsync),
            ("full_page_writes", full_page_writes),
            ("synchronous_commit", synchronous_commit),
        )
        if value in LOSING
    ]
    if off and not address.unsafe:
        message = f"{address.place} can lose acknowledged commits: {' and '.join(off)} must be on"
        raise UsageError(message, code="postgres.unsafe", hint="set it to on; for tests only: ?unsafe=1")


async def run_questions(connection: Fetching, questions: Questions[T]) -> T:
    """Run the questions of a rule on a connection, and return their result. Several rows are sent as arrays."""
    rows: Any = None
    while True:
        try:
            statement, values, many = questions.send(rows)
        except StopIteration as done:
            result: T = done.value
            return result
        if many is None:
            rows = await connection.fetch(statement, *values)
        elif many:
            rows = await connection.fetch(statement, *values, *(list(column) for column in zip(*many, strict=True)))
        else:
            rows = []


# Errors


def sqlstate(error: BaseException) -> str:
    """Return the server's code of an error; empty when it is not from the server."""
    return getattr(error, "sqlstate", None) or ""


def is_lost(error: BaseException) -> bool:
    """Return whether the connection is lost, so that the result of a statement in progress is unknown."""
    code = sqlstate(error)
    return code.startswith(("08", "57P0")) or (isinstance(error, CONNECTION_LOST) and not code)


def is_retryable(error: BaseException) -> bool:
    """Return whether the server undid the statement for other transactions (deadlock, lock timeout): retry it."""
    code = sqlstate(error)
    return code.startswith("40") or code == LOCK_TIMEOUT


def is_bad_value(error: BaseException) -> bool:
    """Return whether a value cannot be stored: out of range, against a constraint, beyond a limit."""
    return sqlstate(error).startswith(("22", "23", "54"))


def translate_error(error: BaseException, address: PostgresAddress) -> InterlockError:
    """Return the error as one of ours, by what the caller should do next."""
    if isinstance(error, InterlockError):
        return error
    if is_lost(error):
        return _connection_error(error, address)
    code = sqlstate(error)
    if code.startswith("40") or code in {LOCK_TIMEOUT, "57014"}:
        return UnavailableError(f"{address.place} was busy for too long", code="store.busy")
    if code == "53100":
        return UnavailableError(f"no space left at {address.place}", code="store.full", hint="free some space")
    if code.startswith("53"):
        return UnavailableError(f"{address.place} has reached a limit: {error}", code="store.busy")
    if code == "25006":
        message = f"{address.place} does not accept writes"
        return UnavailableError(message, code="postgres.recovery", hint="use the address of the primary")
    if code == "42501":
        hint = f"the user must own the schema `{address.schema}`, or be allowed to create it"
        return UnavailableError(f"{address.place} denied a privilege: {error}", code="store.privilege", hint=hint)
    if code.startswith("58"):
        return UnavailableError(f"disk error at {address.place}: {error}", code="store.io")
    return InternalError(f"PostgreSQL rejected a statement of the store: {error!r}", code="store.statement")


def _connection_error(error: BaseException, address: PostgresAddress) -> InterlockError:
    """Return why connecting failed; the driver's texts name hosts, users and databases, never a password."""
    if isinstance(error, InterlockError):
        return error
    code = sqlstate(error)
    if code.startswith("28"):
        hint = "check user and password, and pg_hba.conf"
        return UsageError(f"{address.place} refused the login: {error}", code="postgres.password", hint=hint)
    if code == "3D000":
        return UsageError(
            f"the database does not exist: {error}", code="postgres.database", hint="create it with createdb"
        )
    if isinstance(error, asyncpg.ClientConfigurationError):
        return UsageError(f"invalid address: {error}", code="url.malformed")
    if isinstance(error, asyncpg.TargetServerAttributeNotMatched):
        return UnavailableError(f"no server of {address.place} accepts writes", code="postgres.recovery")
    if isinstance(error, asyncio.TimeoutError):
        return UnavailableError(f"{address.place} did not answer in time", code="store.timeout")
    if code in {"57P03", "53300"}:
        return UnavailableError(f"{address.place} accepts no connections now: {error}", code="store.busy")
    what = str(error) or type(error).__name__
    return UnavailableError(f"no connection to {address.place}: {what}", code="store.connection", hint="is it running?")
