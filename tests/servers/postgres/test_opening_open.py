"""Opening a PostgreSQL store: addresses, servers that are refused, and what errors mean to a caller."""

from __future__ import annotations

from typing import Any

import asyncpg  # type: ignore[import-untyped]  # it ships no types
import pytest

from interlock.errors import (
    InterlockError,
    InternalError,
    UnavailableError,
    UsageError,
)
from interlock.stores.postgres import connection as postgres_connect
from interlock.stores.postgres.address import parse_address
from interlock.stores.postgres.opening import open_store
from interlock.testing.store_suite.samples import Life
from interlock.testing.store_suite.subject import kept
from tests.support.missing import error_without
from tests.support.postgres_server import asked, database_or_skip, private_server, store_or_skip

SECRET = "hunter2-never-shown"


@pytest.fixture
def url() -> str:
    """Where the store of a test lies."""
    return store_or_skip()


# Addresses


def test_an_address_says_what_it_means() -> None:
    given = parse_address(
        "postgres://ada:pw@db.example:6432/orders?tenant=a&commit=one&connections=4&sslmode=require&unsafe=1"
    )

    assert ("a", "interlock", "one", 4, True) == (
        given.tenant,
        given.schema,
        given.commit,
        given.connections,
        given.unsafe,
    )
    assert "postgres://ada:pw@db.example:6432/orders?sslmode=require" == given.dsn
    assert "db.example:6432/orders" == given.place


def test_of_several_servers_the_one_that_writes_is_wanted() -> None:
    """A standby is passed over, unless the address says otherwise."""
    many = parse_address(f"postgresql://u:{SECRET}@one:5432,two:5433/orders")

    assert "one:5432,two:5433/orders" == many.place
    assert many.dsn.endswith("/orders?target_session_attrs=read-write")
    assert parse_address("postgresql://a,b/d?target_session_attrs=primary").dsn.endswith(
        "?target_session_attrs=primary"
    )


@pytest.mark.parametrize(
    ("url", "code"),
    [
        (f"postgresql://u:{SECRET}@h/d?shema=x", "url.option"),
        (f"postgresql://u:{SECRET}@h/d?schema=Drop%20It", "url.option"),
        (f"postgresql://u:{SECRET}@h/d?schema=pg_mine", "url.option"),
        (f"postgresql://u:{SECRET}@h/d?schema=", "url.option"),
        (f"postgresql://u:{SECRET}@h/d?commit=never", "url.option"),
        (f"postgresql://u:{SECRET}@h/d?connections=0", "url.option"),
        (f"postgresql://u:{SECRET}@h/d?connections=99999999999999999999", "url.option"),
        (f"postgresql://u:{SECRET}@h/d?connections=-1", "url.option"),
        (f"postgresql://u:{SECRET}@h/d?unsafe=yes", "url.option"),
        (f"postgresql://u:{SECRET}@h/d?tenant=a%00b", "url.option"),
        (f"postgresql://u:{SECRET}@h/d?application_name=a%00b", "url.option"),
        (f"postgresql://u:{SECRET}@h/d?tenant", "url.malformed"),
        (f"postgresql://u:{SECRET}@h/d#part", "url.malformed"),
        (f"postgresql://u:{SECRET}@h:99999/d", "url.malformed"),
        (f"postgresql://u:{SECRET}@[::1/d", "url.malformed"),
        (f"mysql://u:{SECRET}@h/d", "url.malformed"),
    ],
)
async def test_an_address_that_is_none_is_refused_without_its_password(url: str, code: str) -> None:
    with pytest.raises(UsageError) as raised:
        await open_store(url)

    assert code == raised.value.code
    assert SECRET not in str(raised.value)
    assert SECRET not in repr(raised.value)


def test_a_shown_address_hides_its_password() -> None:
    """In a traceback or a log there is only the place."""
    assert SECRET not in repr(parse_address(f"postgresql://u:{SECRET}@h/d"))


def test_a_missing_driver_names_the_extra() -> None:
    code = (
        "import asyncio\n"
        "from interlock.stores.postgres.opening import open_store\n"
        "asyncio.run(open_store('postgresql://localhost/x'))"
    )

    name, _, hint = error_without("asyncpg", code=code)
    assert ("MissingExtraError", "pip install 'interlock[postgres]'") == (name, hint)


# Opening


async def _refused(url: str) -> InterlockError:
    with pytest.raises(InterlockError) as raised:
        await open_store(url)
    assert SECRET not in str(raised.value)
    return raised.value


async def test_a_door_that_stays_shut_says_why() -> None:
    url = database_or_skip()
    host = url.rpartition("@")[2].partition("/")[0]
    seen = [
        await _refused(f"postgresql://postgres:{SECRET}@{host}/postgres"),
        await _refused(f"postgresql://nobody:{SECRET}@{host}/postgres"),
        await _refused(url.rpartition("/")[0] + "/missing"),
        await _refused(f"postgresql://postgres:{SECRET}@127.0.0.1:1/x"),
        await _refused(f"postgresql://postgres:{SECRET}@host.invalid/x"),
        await _refused(f"postgresql://postgres:{SECRET}@127.0.0.1:1/x?sslmode=maybe"),
    ]

    assert [
        (UsageError, "postgres.password"),
        (UsageError, "postgres.password"),
        (UsageError, "postgres.database"),
        (UnavailableError, "store.connection"),
        (UnavailableError, "store.connection"),
        (UsageError, "url.malformed"),
    ] == [(type(each), each.code) for each in seen]


async def test_a_user_without_rights_hears_which() -> None:
    url = database_or_skip()
    name = url.rpartition("/")[2]
    asked(url, f"CREATE ROLE {name} LOGIN PASSWORD 'guest'")
    refused = await _refused(f"postgresql://{name}:guest@" + url.rpartition("@")[2])

    assert (UnavailableError, "store.privilege") == (type(refused), refused.code)


@pytest.mark.slow
async def test_a_server_that_does_not_flush_is_refused() -> None:
    """What it acknowledges it can lose; only a test may say that it does not mind."""
    with private_server(fsync="off", full_page_writes="off") as server:
        refused = await _refused(server.url())
        store = await open_store(server.url() + "?unsafe=1")
        await kept(store, Life("parcel/1").created())
        await store.close()

    assert (UsageError, "postgres.unsafe") == (type(refused), refused.code)
    assert "fsync and full_page_writes" in refused.message


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ((130_015, "UTF8", "on", "on", "on", False), "postgres.version"),
        ((180_000, "LATIN1", "on", "on", "on", False), "postgres.encoding"),
        ((180_000, "UTF8", "on", "on", "off", False), "postgres.unsafe"),
        ((180_000, "UTF8", "on", "on", "local", False), "postgres.unsafe"),
        ((180_000, "UTF8", "on", "on", "remote_write", False), "postgres.unsafe"),
        ((180_000, "UTF8", "on", "on", "on", True), "postgres.recovery"),
    ],
)
def test_a_server_that_cannot_keep_the_promise_is_told_apart(answer: tuple[Any, ...], code: str) -> None:
    """Too old, texts in another encoding, commits without a flush here or on standbys, or only following another."""
    with pytest.raises(InterlockError) as raised:
        postgres_connect._check(answer, parse_address("postgresql://h/d"))

    assert code == raised.value.code


async def test_our_connections_wait_for_the_flush_whatever_the_server_says(url: str) -> None:
    """The setting is sent with each connection, so a default that loses commits does no harm."""
    connection = await postgres_connect.connect(parse_address(url))
    found = await connection.fetchval("SHOW synchronous_commit"), await connection.fetchval("SHOW application_name")
    connection.terminate()

    assert ("on", "interlock") == found


# Errors


class Said(Exception):
    """An error of the server with this code."""

    def __init__(self, sqlstate: str) -> None:
        super().__init__(f"the server said {sqlstate}")
        self.sqlstate = sqlstate


@pytest.mark.parametrize(
    ("sqlstate", "error", "code"),
    [
        ("40001", UnavailableError, "store.busy"),
        ("55P03", UnavailableError, "store.busy"),
        ("57014", UnavailableError, "store.busy"),
        ("53100", UnavailableError, "store.full"),
        ("53200", UnavailableError, "store.busy"),
        ("25006", UnavailableError, "postgres.recovery"),
        ("42501", UnavailableError, "store.privilege"),
        ("58030", UnavailableError, "store.io"),
        ("08006", UnavailableError, "store.connection"),
        ("57P03", UnavailableError, "store.busy"),
        ("42P01", InternalError, "store.statement"),
    ],
)
def test_an_error_of_the_server_says_what_to_do_next(sqlstate: str, error: type[InterlockError], code: str) -> None:
    found = postgres_connect.translate_error(Said(sqlstate), parse_address("postgresql://h/d"))

    assert (error, code) == (type(found), found.code)
    assert found is postgres_connect.translate_error(found, parse_address("postgresql://h/d"))
    assert (sqlstate in {"08006", "57P03"}) is postgres_connect.is_lost(Said(sqlstate))


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TimeoutError(), "store.timeout"),
        (ConnectionResetError(), "store.connection"),
        (asyncpg.TargetServerAttributeNotMatched("none"), "postgres.recovery"),
    ],
)
def test_a_server_that_is_not_there_says_how(error: Exception, code: str) -> None:
    found = postgres_connect.translate_error(error, parse_address("postgresql://h/d"))

    assert (UnavailableError, code) == (type(found), found.code)
