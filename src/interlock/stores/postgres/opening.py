"""Opens a PostgreSQL store by its address.

Rule: the driver `asyncpg` is an extra: it is imported when a store is opened or described, and named when missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from interlock.errors import MissingExtraError
from interlock.stores.postgres.address import parse_address

if TYPE_CHECKING:
    from interlock.stores.postgres.store import PostgresStore


async def open_store(url: str) -> PostgresStore:
    """Open the store of `postgresql://user@host/database`; create its tables, in the schema `interlock`, if needed.

    `?tenant=name` binds the store to a tenant, `?schema=name` sets the schema, `?connections=n` the number of
    connections, `?commit=one|group` fixes what is otherwise chosen by load, `?application_name=` is shown by the
    server, `?unsafe=1` accepts a server that does not flush, and `?migrate=0` refuses an older schema
    instead of upgrading it. The options of libpq, such as `sslmode`, go to the driver.
    Raises UsageError for an invalid address and for a server that does not keep the guarantees, UnavailableError when
    no server answers, MissingExtraError without the driver.
    """
    address = parse_address(url)
    with needing_driver():
        from interlock.stores.postgres.store import PostgresStore
    return await PostgresStore.open(address)


@contextmanager
def needing_driver() -> Iterator[None]:
    """Wrap imports that need the driver. Raises MissingExtraError when it is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "asyncpg":
            raise
        message = "the PostgreSQL store needs the package `asyncpg`"
        raise MissingExtraError(message, code="extra.postgres", hint="pip install 'interlock[postgres]'") from error
