"""The PostgreSQL store by its address.

Rule: the driver `asyncpg` is an extra: it is imported when a store is opened or looked at, and named when it is
missing.
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
    """The store of `postgresql://user@host/database`; makes its tables, in schema `interlock`, when there are none.

    `?tenant=name` binds the handle to a tenant, `?schema=name` puts the tables elsewhere, `?connections=n` allows more
    or fewer, `?commit=one|group` fixes what is otherwise chosen by load, `?application_name=` is what the server calls
    us, `?unsafe=1` takes a server that does not flush. The options of libpq, such as `sslmode`, are the driver's.
    Raises UsageError for an address that is none and for a server that cannot keep the promise, UnavailableError when
    no server answers, MissingExtraError without the driver.
    """
    address = parse_address(url)
    with needing_driver():
        from interlock.stores.postgres.store import PostgresStore
    return await PostgresStore.open(address)


@contextmanager
def needing_driver() -> Iterator[None]:
    """Imports inside need the driver. Raises MissingExtraError when it is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "asyncpg":
            raise
        message = "the PostgreSQL store needs the package `asyncpg`"
        raise MissingExtraError(message, code="extra.postgres", hint="pip install 'interlock[postgres]'") from error
