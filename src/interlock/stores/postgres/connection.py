"""Connections to a PostgreSQL server: how they are opened, what they promise, and what their errors mean to a caller.

Rule 1: a server that does not flush, or that only follows another, is refused, at each new connection: after a failover
it may be another one.
Rule 2: nothing is left on the server's side of a connection: no setting or lock outlives a transaction, so none is
reset.
Rule 3: a plan must not depend on how full a table was when it was made. Scanning tables and joining by loops are
switched off on our connections (lookups are written so that nothing else is possible), and so is compiling plans, which
the costs of what is switched off would set off.
Rule 4: warnings are heard, whatever a user's own settings are: one of them says that a commit was not waited for to the
end (`postgres_standbys`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol, TypeVar, cast

import asyncpg  # type: ignore[import-untyped]  # it ships no types: `Connection` below says what we use of it

from interlock.errors import InterlockError, InternalError, UnavailableError, UsageError
from interlock.stores.postgres.address import PostgresAddress
from interlock.stores.sql.database import Questions

T = TypeVar("T")

SERVER_MIN = 140_000
"""The oldest server whose statements we use, as `server_version_num` writes it."""

CONNECT_SECONDS = 5.0
"""How long a connection may take to be made: a server that is farther away than this is not there."""

ANSWER_SECONDS = 15.0
"""How long an answer may take. The server itself gives a statement up after 10; beyond that the network is silent."""

CLOSE_SECONDS = 2.0
"""How long taking leave of the server may last."""

LOSING = frozenset({"off", "local", "remote_write"})
"""What a setting says that lets a commit return before it is flushed, here and on synchronous standbys."""

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

CONNECTION_LOST = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)
"""What is raised when a connection breaks, besides the server's own last words (classes 08 and 57P0)."""

SELECT_PROMISES = """
    SELECT current_setting('server_version_num')::integer, current_setting('server_encoding'),
           current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit'),
           pg_is_in_recovery()"""


class Transaction(Protocol):
    """What we use of the driver's transactions: they end with their block."""

    async def __aenter__(self) -> object: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None: ...


class Connection(Protocol):
    """What we use of the driver's connections."""

    def add_log_listener(self, heard: Callable[[Any, Any], None]) -> None:
        """Tell of warnings, each with the connection."""

    async def execute(
        self,
        query: str,
        *values: Any,
        timeout: float | None = None,  # noqa: ASYNC109  # so the driver calls it
    ) -> str:
        """Run a statement, or several when there are no values; in `ANSWER_SECONDS` unless it says otherwise."""

    async def fetch(self, query: str, *values: Any) -> list[Any]:
        """All rows."""

    async def fetchrow(self, query: str, *values: Any) -> Any:
        """The first row, or None."""

    async def fetchval(self, query: str, *values: Any) -> Any:
        """The first value of the first row, or None."""

    def transaction(self) -> Transaction:
        """A transaction that ends with its block."""

    def is_closed(self) -> bool:
        """Whether it broke, or was closed."""

    def terminate(self) -> None:
        """Let go at once."""

    async def close(self) -> None:
        """Take leave of the server."""


async def connect(address: PostgresAddress) -> Connection:
    """A connection that can be trusted with a promise. Raises UsageError or UnavailableError, saying which is not."""
    try:
        made = await asyncpg.connect(
            address.dsn,
            timeout=CONNECT_SECONDS,
            command_timeout=ANSWER_SECONDS,
            server_settings=SETTINGS | {"search_path": address.schema, "application_name": address.application_name},
        )
    except (asyncpg.PostgresError, ValueError, *CONNECTION_LOST) as error:
        raise _unreachable(error, address) from error
    connection = cast("Connection", made)
    try:
        _check(await connection.fetchrow(SELECT_PROMISES), address)
    except CONNECTION_LOST as error:
        connection.terminate()
        raise _unreachable(error, address) from error
    except BaseException:
        connection.terminate()
        raise
    return connection


async def disconnect(connection: Connection) -> None:
    """Take leave of the server, in a bounded time; a statement that was given up is called off there."""
    try:
        async with asyncio.timeout(CLOSE_SECONDS):
            await connection.close()
    except (asyncpg.PostgresError, *CONNECTION_LOST):
        connection.terminate()


def _check(found: Any, address: PostgresAddress) -> None:
    version, encoding, fsync, full_page_writes, synchronous_commit, follows = found
    if version < SERVER_MIN:
        message = f"{address.place} is PostgreSQL {version // 10_000}: {SERVER_MIN // 10_000} is needed"
        raise UsageError(message, code="postgres.version")
    if encoding != "UTF8":
        hint = "CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0"
        raise UsageError(f"{address.place} keeps texts as {encoding}", code="postgres.encoding", hint=hint)
    if follows:
        message = f"{address.place} follows another server and takes no writes"
        raise UnavailableError(message, code="postgres.recovery", hint="name the primary")
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
        message = f"{address.place} can lose what it acknowledged: {' and '.join(off)} must be on"
        raise UsageError(message, code="postgres.unsafe", hint="set it to on; for tests only: ?unsafe=1")


async def run_questions(connection: Connection, questions: Questions[T]) -> T:
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
    """The server's code for an error; empty when it is not the server's."""
    return getattr(error, "sqlstate", None) or ""


def is_lost(error: BaseException) -> bool:
    """Whether the connection is gone, so that nobody knows what became of a statement under way."""
    code = sqlstate(error)
    return code.startswith(("08", "57P0")) or (isinstance(error, CONNECTION_LOST) and not code)


def is_retryable(error: BaseException) -> bool:
    """Whether the statement was undone for the sake of others, and may be sent again: a deadlock, a lock not had."""
    code = sqlstate(error)
    return code.startswith("40") or code == "55P03"


def is_bad_value(error: BaseException) -> bool:
    """Whether a value cannot be kept as it is: out of range, against a constraint, beyond a limit."""
    return sqlstate(error).startswith(("22", "23", "54"))


def translate_error(error: BaseException, address: PostgresAddress) -> InterlockError:
    """The error as one of ours, by what the caller should do next."""
    if isinstance(error, InterlockError):
        return error
    if is_lost(error):
        return _unreachable(error, address)
    code = sqlstate(error)
    if code.startswith("40") or code in {"55P03", "57014"}:
        return UnavailableError(f"{address.place} was busy with others for too long", code="store.busy")
    if code == "53100":
        return UnavailableError(f"no room left at {address.place}", code="store.full", hint="free some space")
    if code.startswith("53"):
        return UnavailableError(f"{address.place} is at its limits: {error}", code="store.busy")
    if code == "25006":
        message = f"{address.place} takes no writes"
        return UnavailableError(message, code="postgres.recovery", hint="name the primary")
    if code == "42501":
        hint = f"the user must own schema `{address.schema}`, or may create it"
        return UnavailableError(f"{address.place} does not allow it: {error}", code="store.privilege", hint=hint)
    if code.startswith("58"):
        return UnavailableError(f"the disk failed under {address.place}: {error}", code="store.io")
    return InternalError(f"PostgreSQL said no to a statement of ours: {error!r}", code="store.statement")


def _unreachable(error: BaseException, address: PostgresAddress) -> InterlockError:
    """Why there is no connection; the driver's texts name hosts, users and databases, never a password."""
    if isinstance(error, InterlockError):
        return error
    code = sqlstate(error)
    if code.startswith("28"):
        hint = "check user and password, and pg_hba.conf"
        return UsageError(f"{address.place} does not let us in: {error}", code="postgres.password", hint=hint)
    if code == "3D000":
        return UsageError(f"there is no such database: {error}", code="postgres.database", hint="createdb makes one")
    if isinstance(error, asyncpg.ClientConfigurationError):
        return UsageError(f"the address does not do: {error}", code="url.malformed")
    if isinstance(error, asyncpg.TargetServerAttributeNotMatched):
        return UnavailableError(f"no server of {address.place} takes writes", code="postgres.recovery")
    if isinstance(error, asyncio.TimeoutError):
        return UnavailableError(f"{address.place} does not answer in time", code="store.timeout")
    if code in {"57P03", "53300"}:
        return UnavailableError(f"{address.place} takes no connection now: {error}", code="store.busy")
    what = str(error) or type(error).__name__
    return UnavailableError(f"no connection to {address.place}: {what}", code="store.connection", hint="is it running?")
