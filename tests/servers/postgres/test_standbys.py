"""Receipts of a server that waits for a standby: none goes out for what no standby has, however it was found.

In all tests but one the standby never comes: where the server waits for it, COMMIT waits until it is told to wait for
none. In the last one it comes, and takes over.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import asyncpg  # type: ignore[import-untyped]  # it ships no types
import pytest

from interlock.errors import UnavailableError, UsageError
from interlock.ports.store import Appended, Duplicate
from interlock.stores.postgres import standbys, statistics, writer
from interlock.stores.postgres.opening import open_store
from interlock.stores.postgres.standbys import Standbys
from interlock.stores.postgres.store import PostgresStore
from interlock.testing.store_suite.samples import Life
from interlock.testing.store_suite.subject import journal, kept
from tests.servers.postgres.scene import effect, ordered, taken
from tests.support.eventually import eventually
from tests.support.postgres_server import Server, private_server

WAITING = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query LIKE $1 AND pid <> ALL ($2::int[])"
EMIT = "SELECT oid::regprocedure::text FROM pg_proc WHERE proname = 'pg_logical_emit_message'"
CONFIRMING = "%pg_logical_emit_message%"
_numbers = iter(range(1_000_000))


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server of our own, which by itself tells no client of warnings."""
    with private_server(client_min_messages="error") as started:
        yield started


@pytest.fixture
def url(server: Server) -> str:
    """Where the store of a test lies."""
    return f"{server.url()}?schema=s{next(_numbers)}"


@pytest.fixture
async def store(server: Server, url: str) -> AsyncIterator[PostgresStore]:
    """A store that was opened, and whose connections were made, before the server waited for anybody."""
    opened = await open_store(url)
    yield opened
    await back(server)  # otherwise taking leave would wait as well
    await opened.close()


@pytest.fixture
def confirmed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One word for each time that a standby was waited for by itself."""
    seen: list[str] = []
    real = Standbys.confirm

    async def confirm(self: Standbys, connection: Any) -> None:
        seen.append("waited")
        await real(self, connection)

    monkeypatch.setattr(Standbys, "confirm", confirm)
    return seen


@pytest.fixture(autouse=True)
def _no_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store writes them every second, and that COMMIT would wait for a standby, too."""
    monkeypatch.setattr(statistics, "WRITE_SECONDS", 3_600)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a server needs to come back."""
    monkeypatch.setattr(writer, "TRIES_MAX", 10_000)


@pytest.fixture
def impatient() -> Iterator[pytest.MonkeyPatch]:
    """A standby is not waited for long, until this is undone.

    Long enough for the server of a busy machine to begin to wait: a statement that is called off before the server has
    received it is carried out all the same, and then waits forever.
    """
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(standbys, "CONFIRM_SECONDS", 1.0)
        yield patched


def _set(server: Server, names: str) -> None:
    server.asked(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
    server.asked("SELECT pg_reload_conf()")


@asynccontextmanager
async def looking(server: Server, database: str = "postgres") -> AsyncIterator[Any]:
    """A connection of an administrator who waits for no standby."""
    connection = await asyncpg.connect(server.url(database), server_settings={"synchronous_commit": "local"})
    try:
        yield connection
    finally:
        await connection.close()


async def away(server: Server, standby: str = "nobody") -> None:
    """From now on every commit waits for a standby that is not there; returns when one does."""
    _set(server, standby)
    probe = await asyncpg.connect(server.url())
    try:
        pid = await probe.fetchval("SELECT pg_backend_pid()")
        async with looking(server) as eyes:
            is_waiting = f"SELECT EXISTS ({WAITING} AND pid = {pid})"
            asked = asyncio.ensure_future(probe.execute(standbys.CONFIRM))
            while not await eyes.fetchval(is_waiting, CONFIRMING, []):
                if asked.done():  # the server was quicker than its own news
                    asked = asyncio.ensure_future(probe.execute(standbys.CONFIRM))
                await asyncio.sleep(0.005)
            await eyes.fetchval("SELECT pg_cancel_backend($1)", pid)
            await asked
    finally:
        await probe.close()


async def back(server: Server) -> None:
    """From now on no commit waits for anybody; returns when one did not."""
    _set(server, "")
    probe = await asyncpg.connect(server.url())
    try:
        await probe.execute(standbys.CONFIRM)
    finally:
        await probe.close()


async def until_waiting(
    server: Server, *tasks: asyncio.Future[Any], query: str = "%", besides: tuple[int, ...] = ()
) -> tuple[int, ...]:
    """The processes of the server that wait for a standby, once there are some; none when a task ended before."""
    async with looking(server) as eyes:

        async def found() -> list[tuple[int, ...]] | None:
            if any(each.done() for each in tasks):
                return [()]
            rows = await eyes.fetch(WAITING, query, besides)
            return [tuple(row[0] for row in rows)] if rows else None

        pids: list[tuple[int, ...]] = await eventually(found)
    return pids[0]


async def until_nobody_waits(server: Server) -> None:
    """Wait until no process of the server waits for a standby."""
    async with looking(server) as eyes:

        async def is_quiet() -> bool:
            return not await eyes.fetch(WAITING, "%", [])

        await eventually(is_quiet)


async def born(store: PostgresStore, count: int = 1) -> list[Life]:
    """So many entities with a second entry, under the key `a`."""
    lives = [Life(f"parcel/{each}") for each in range(count)]
    await asyncio.gather(*(kept(store, life.created()) for life in lives))
    await asyncio.gather(*(kept(store, life.stepped(key="a")) for life in lives))
    return lives


def again(life: Life) -> Any:
    """The step under the key `a`, once more, by somebody who knows the entity as it was."""
    other = Life(life.entity)
    other.created()
    return other.stepped(key="a")


async def terminate(server: Server, pids: tuple[int, ...]) -> None:
    """End processes of the server, as an administrator does."""
    async with looking(server) as eyes:
        assert await eyes.fetchval("SELECT bool_and(pg_terminate_backend(pid, 10000)) FROM unnest($1::int[]) pid", pids)


async def cancel(server: Server, pids: tuple[int, ...]) -> None:
    """Call off what processes of the server are doing."""
    async with looking(server) as eyes:
        assert await eyes.fetchval("SELECT bool_and(pg_cancel_backend(pid)) FROM unnest($1::int[]) pid", pids)


async def restart(server: Server, _: tuple[int, ...]) -> None:
    """Stop the server in good order, and start it."""
    await asyncio.to_thread(server.stop)
    await asyncio.to_thread(server.start)


Ending = Callable[[Server, tuple[int, ...]], Awaitable[None]]


# A commit that is cut short


@pytest.mark.parametrize("ending", [terminate, restart, cancel])
@pytest.mark.usefixtures("patient")
async def test_a_step_whose_wait_is_cut_short_is_acknowledged_when_a_standby_has_it(
    store: PostgresStore, server: Server, confirmed: list[str], ending: Ending
) -> None:
    """It is committed and can be read; that a standby has it is waited for anew, and then it is kept, once."""
    (life,) = await born(store)
    await away(server)
    pending = asyncio.ensure_future(store.append(life.stepped(key="b")))
    first = await until_waiting(server, pending, query="%journal%")
    await ending(server, first)
    second = await until_waiting(server, pending, query=CONFIRMING)
    early = pending.done()
    await back(server)
    answer = await pending

    assert (True, True, False) == (bool(first), bool(second), early)
    assert isinstance(answer, Appended)
    assert ["waited"] == confirmed
    assert ["born", "a", "b"] == [each.key for each in await journal(store, "parcel/0")]


@pytest.mark.parametrize("ending", [terminate, cancel])
@pytest.mark.usefixtures("patient")
async def test_a_step_whose_wait_is_cut_short_is_not_acknowledged_while_no_standby_has_it(
    store: PostgresStore, server: Server, confirmed: list[str], impatient: pytest.MonkeyPatch, ending: Ending
) -> None:
    (life,) = await born(store)
    await away(server)
    step = life.stepped(key="b")
    pending = asyncio.ensure_future(store.append(step))
    await ending(server, await until_waiting(server, pending, query="%journal%"))
    with pytest.raises(UnavailableError) as raised:
        await pending
    once = list(confirmed)
    await until_nobody_waits(server)
    await back(server)
    impatient.undo()

    assert ("store.standby", ["waited"]) == (raised.value.code, once)
    assert Duplicate(3) == await store.append(step)


async def test_a_wait_that_is_called_off_again_confirms_nothing(store: PostgresStore, server: Server) -> None:
    (life,) = await born(store)
    await away(server)
    pending = asyncio.ensure_future(store.append(life.stepped(key="b")))
    first = await until_waiting(server, pending, query="%journal%")
    await cancel(server, first)
    await cancel(server, await until_waiting(server, pending, query=CONFIRMING))
    with pytest.raises(UnavailableError) as raised:
        await pending

    assert "store.standby" == raised.value.code


async def test_work_is_not_handed_out_while_no_standby_has_the_claim(store: PostgresStore, server: Server) -> None:
    await ordered(store, effect())
    await away(server)
    pending = asyncio.ensure_future(taken(store))
    await cancel(server, await until_waiting(server, pending, query="%UPDATE work%"))
    second = await until_waiting(server, pending, query=CONFIRMING)
    early = pending.done()
    await back(server)

    assert (True, False, 1) == (bool(second), early, len(await pending))


async def test_other_warnings_delay_nobody(
    store: PostgresStore, server: Server, url: str, confirmed: list[str]
) -> None:
    (life,) = await born(store)
    schema = url.partition("=")[2]
    server.asked(
        f"CREATE FUNCTION {schema}.warn() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE WARNING 'look'; RETURN new; END $$"
    )
    server.asked(
        f"CREATE TRIGGER warn BEFORE INSERT ON {schema}.event_key FOR EACH ROW EXECUTE FUNCTION {schema}.warn()"
    )
    await kept(store, life.stepped(key="b"))

    assert [] == confirmed


class Warned:
    """A warning with this code, from this function of the server."""

    def __init__(self, sqlstate: str, origin: str | None) -> None:
        self.sqlstate = sqlstate
        self.server_source_function = origin


@pytest.mark.parametrize(
    ("code", "origin", "expected"),
    [
        ("01000", "SyncRepWaitForLSN", ["waited"]),
        ("01000", None, ["waited"]),
        ("01000", "SetTransactionIdLimit", []),
        ("00000", "SyncRepWaitForLSN", []),
    ],
)
async def test_a_warning_is_known_by_where_it_comes_from(
    store: PostgresStore, confirmed: list[str], code: str, origin: str | None, expected: list[str]
) -> None:
    """Its text is in the language of the server; and who does not say where it comes from is not trusted."""
    link = store.database.connections().pool
    async with link.connection() as connection:
        link.standbys._on_warning(connection, Warned(code, origin))
    async with link.connection() as same:
        pass  # whoever comes next has nothing to wait for

    assert (expected, True) == (confirmed, connection is same)


async def test_a_warning_is_nothing_to_whoever_uses_the_connection_next(
    store: PostgresStore, confirmed: list[str]
) -> None:
    """Also when the one before failed otherwise, and had nothing left to be confirmed."""
    link = store.database.connections().pool
    used: list[Any] = []

    async def fails() -> None:
        async with link.connection() as connection:
            used.append(connection)
            link.standbys._on_warning(connection, Warned("01000", "SyncRepWaitForLSN"))
            raise UsageError("no", code="append.version")

    with pytest.raises(UsageError):
        await fails()
    async with link.connection() as same:
        pass

    assert ([], [same]) == (confirmed, used)


# A key that is known


async def test_known_keys_are_answered_when_a_standby_has_them(
    store: PostgresStore, server: Server, confirmed: list[str]
) -> None:
    """A read waits for no standby, and so their entries are waited for: once for all that are asked for together."""
    lives = await born(store, 5)
    await away(server)
    pending = asyncio.ensure_future(asyncio.gather(*(store.append(again(life)) for life in lives)))
    waiting = await until_waiting(server, pending)
    early = pending.done()
    await back(server)

    assert (1, False) == (len(waiting), early)
    assert [Duplicate(2)] * 5 == await pending
    assert ["waited"] == confirmed


async def test_a_key_that_is_looked_up_is_known_when_a_standby_has_it(
    store: PostgresStore, server: Server, confirmed: list[str]
) -> None:
    await born(store)
    await away(server)
    alone, unknown = await store.load("parcel/0"), await store.load("parcel/0", key="never")
    none = await store.load("parcel/none", key="a")
    free = list(confirmed)
    pending = asyncio.ensure_future(store.load("parcel/0", key="a"))
    waiting = await until_waiting(server, pending)
    early = pending.done()
    await back(server)

    assert ([], 1, False) == (free, len(waiting), early)
    assert Duplicate(2) == await pending
    assert (2, 2, None) == (getattr(alone, "version", 0), getattr(unknown, "version", 0), none)


async def test_a_wait_that_is_lost_begins_anew_with_its_question(store: PostgresStore, server: Server) -> None:
    """The next connection may lead to another server: what the last one showed is asked for there, and waited for."""
    await born(store)
    await away(server)
    pending = asyncio.ensure_future(store.load("parcel/0", key="a"))
    first = await until_waiting(server, pending)
    await terminate(server, first)
    second = await until_waiting(server, pending, besides=first)
    early = pending.done()
    await back(server)

    assert (1, False) == (len(second), early)
    assert Duplicate(2) == await pending


async def test_a_known_key_that_no_standby_has_is_not_acknowledged(
    store: PostgresStore, server: Server, impatient: pytest.MonkeyPatch
) -> None:
    (life,) = await born(store)
    await away(server)
    with pytest.raises(UnavailableError) as appended:
        await store.append(again(life))
    with pytest.raises(UnavailableError) as loaded:
        await store.load("parcel/0", key="a")
    await until_nobody_waits(server)
    await back(server)
    impatient.undo()

    assert ("store.standby", "store.standby") == (appended.value.code, loaded.value.code)
    assert (Duplicate(2), Duplicate(2)) == (await store.append(again(life)), await store.load("parcel/0", key="a"))


async def test_where_no_standby_is_waited_for_a_known_key_costs_nothing(
    store: PostgresStore, confirmed: list[str]
) -> None:
    lives = await born(store, 3)
    answers = await asyncio.gather(*(store.append(again(life)) for life in lives))

    assert ([Duplicate(2)] * 3, Duplicate(2)) == (answers, await store.load("parcel/0", key="a"))
    assert [] == confirmed


# Rights


@pytest.mark.usefixtures("impatient")
async def test_an_ordinary_user_may_wait_for_a_standby_unless_it_was_taken_away(server: Server) -> None:
    name = f"narrow{next(_numbers)}"
    server.asked(f"CREATE ROLE {name} LOGIN PASSWORD 'guest'")
    server.asked(f"CREATE DATABASE {name} OWNER {name}")
    store = await open_store(f"postgresql://{name}:guest@127.0.0.1:{server.port}/{name}")
    told: list[UnavailableError] = []
    try:
        await born(store)
        await away(server)
        for _ in range(2):
            with pytest.raises(UnavailableError) as raised:
                await store.load("parcel/0", key="a")
            told.append(raised.value)
            async with looking(server, name) as other:
                for (function,) in await other.fetch(EMIT):
                    await other.execute(f"REVOKE EXECUTE ON FUNCTION {function} FROM PUBLIC")
    finally:
        await back(server)
        await store.close()

    assert ["store.standby", "store.privilege"] == [each.code for each in told]
    assert "GRANT EXECUTE ON FUNCTION pg_logical_emit_message" in (told[1].hint or "")


# A standby that takes over


class Follower(Server):
    """A standby of another server, as that is now; it begins to follow when it is started."""

    def __init__(self, leader: Server) -> None:
        super().__init__()
        shutil.rmtree(self._data)
        self._run(
            self._program("pg_basebackup"),
            "--pgdata",
            self._data,
            "--dbname",
            f"{leader.url()}?application_name=follower",
            "--write-recovery-conf",
            "--checkpoint=fast",
            "--no-sync",
        )

    def _is_ready(self) -> bool:
        notes = self.folder / "data" / "postmaster.pid"
        return super()._is_ready() or (notes.exists() and "standby" in notes.read_text(encoding="utf-8"))


@pytest.mark.slow
@pytest.mark.usefixtures("patient")
async def test_a_standby_that_takes_over_has_what_was_acknowledged() -> None:
    """The wait is cut short while it is away; once it is back the receipt goes out, and the first server is lost."""
    async with AsyncExitStack() as ends:
        leader = ends.enter_context(private_server())
        follower = Follower(leader)
        ends.callback(follower.remove)
        store = await open_store(leader.url())
        ends.push_async_callback(store.close)
        (life,) = await born(store)
        await away(leader, "follower")
        pending = asyncio.ensure_future(store.append(life.stepped(key="b")))
        await terminate(leader, await until_waiting(leader, pending, query="%journal%"))
        waiting = await until_waiting(leader, pending, query=CONFIRMING)
        early = pending.done()
        await asyncio.to_thread(follower.start)
        answer = await pending
        await asyncio.to_thread(leader.stop, immediate=True)
        follower.asked("SELECT pg_promote()")
        heir = await open_store(follower.url())
        ends.push_async_callback(heir.close)
        known, entries = await heir.load("parcel/0", key="b"), await journal(heir, "parcel/0")

    assert (True, False, Appended) == (bool(waiting), early, type(answer))
    assert (Duplicate(3), ["born", "a", "b"]) == (known, [each.key for each in entries])
