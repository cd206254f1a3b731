"""A server with a synchronous standby: no receipt is returned for an entry that the standby does not have.

In all tests but one there is no standby, so COMMIT waits until the setting is changed. In the last test the standby
exists, and takes over.
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
from interlock.testing.store_suite.samples import SampleEntity
from interlock.testing.store_suite.subject import append_all, journal
from tests.servers.postgres.work import effect, ordered, taken
from tests.support.eventually import eventually
from tests.support.postgres_server import Server, private_server

WAITING = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query LIKE $1 AND pid <> ALL ($2::int[])"
EMIT = "SELECT oid::regprocedure::text FROM pg_proc WHERE proname = 'pg_logical_emit_message'"
CONFIRMING = "%pg_logical_emit_message%"
_numbers = iter(range(1_000_000))


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A private server, which sends no warnings to clients by default."""
    with private_server(client_min_messages="error") as started:
        yield started


@pytest.fixture
def url(server: Server) -> str:
    """The address of an empty store."""
    return f"{server.url()}?schema=s{next(_numbers)}"


@pytest.fixture
async def store(server: Server, url: str) -> AsyncIterator[PostgresStore]:
    """A store that was opened, with its connections, before the server waited for a standby."""
    opened = await open_store(url)
    yield opened
    await back(server)  # otherwise taking leave would wait as well
    await opened.close()


@pytest.fixture
def confirmed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One item for each separate wait for a standby."""
    seen: list[str] = []
    real = Standbys.confirm

    async def confirm(self: Standbys, connection: Any) -> None:
        seen.append("waited")
        await real(self, connection)

    monkeypatch.setattr(Standbys, "confirm", confirm)
    return seen


@pytest.fixture(autouse=True)
def _no_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turn statistics off: their COMMIT every second would wait for a standby, too."""
    monkeypatch.setattr(statistics, "WRITE_SECONDS", 3_600)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for the server as long as it needs."""
    monkeypatch.setattr(writer, "TRIES_MAX", 10_000)


@pytest.fixture
def impatient() -> Iterator[pytest.MonkeyPatch]:
    """Wait only briefly for a standby.

    The time is long enough for a server on a busy machine to start waiting: a statement that is cancelled before the
    server has received it is executed anyway, and then waits forever.
    """
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(standbys, "CONFIRM_SECONDS", 1.0)
        yield patched


def _set(server: Server, names: str) -> None:
    server.asked(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
    server.asked("SELECT pg_reload_conf()")


@asynccontextmanager
async def looking(server: Server, database: str = "postgres") -> AsyncIterator[Any]:
    """A connection of an administrator that does not wait for a standby."""
    connection = await asyncpg.connect(server.url(database), server_settings={"synchronous_commit": "local"})
    try:
        yield connection
    finally:
        await connection.close()


async def away(server: Server, standby: str = "missing") -> None:
    """Let every commit wait for a missing standby; return when one waits."""
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
    """Let no commit wait for a standby; return when one did not wait."""
    _set(server, "")
    probe = await asyncpg.connect(server.url())
    try:
        await probe.execute(standbys.CONFIRM)
    finally:
        await probe.close()


async def until_waiting(
    server: Server, *tasks: asyncio.Future[Any], query: str = "%", besides: tuple[int, ...] = ()
) -> tuple[int, ...]:
    """Return the backends that wait for a standby once there are some; none if a task ended before."""
    async with looking(server) as eyes:

        async def found() -> list[tuple[int, ...]] | None:
            if any(each.done() for each in tasks):
                return [()]
            rows = await eyes.fetch(WAITING, query, besides)
            return [tuple(row[0] for row in rows)] if rows else None

        pids: list[tuple[int, ...]] = await eventually(found)
    return pids[0]


async def until_none_waits(server: Server) -> None:
    """Wait until no backend waits for a standby."""
    async with looking(server) as eyes:

        async def is_quiet() -> bool:
            return not await eyes.fetch(WAITING, "%", [])

        await eventually(is_quiet)


async def born(store: PostgresStore, count: int = 1) -> list[SampleEntity]:
    """So many entities with a second entry, under the key `a`."""
    lives = [SampleEntity(f"parcel/{each}") for each in range(count)]
    await asyncio.gather(*(append_all(store, sample.create()) for sample in lives))
    await asyncio.gather(*(append_all(store, sample.step(key="a")) for sample in lives))
    return lives


def again(sample: SampleEntity) -> Any:
    """The step under the key `a`, once more, by a caller that has the former snapshot."""
    other = SampleEntity(sample.entity)
    other.create()
    return other.step(key="a")


async def terminate(server: Server, pids: tuple[int, ...]) -> None:
    """Terminate backends, as an administrator does."""
    async with looking(server) as eyes:
        assert await eyes.fetchval("SELECT bool_and(pg_terminate_backend(pid, 10000)) FROM unnest($1::int[]) pid", pids)


async def cancel(server: Server, pids: tuple[int, ...]) -> None:
    """Cancel the statements of backends."""
    async with looking(server) as eyes:
        assert await eyes.fetchval("SELECT bool_and(pg_cancel_backend(pid)) FROM unnest($1::int[]) pid", pids)


async def restart(server: Server, _: tuple[int, ...]) -> None:
    """Restart the server."""
    await asyncio.to_thread(server.stop)
    await asyncio.to_thread(server.start)


Ending = Callable[[Server, tuple[int, ...]], Awaitable[None]]


# A commit that is cut short


@pytest.mark.parametrize("ending", [terminate, restart, cancel])
@pytest.mark.usefixtures("patient")
async def test_a_step_whose_wait_is_cut_short_is_acknowledged_when_a_standby_has_it(
    store: PostgresStore, server: Server, confirmed: list[str], ending: Ending
) -> None:
    """It is committed and can be read; the confirmation of a standby is awaited again, and then it is kept, once."""
    (sample,) = await born(store)
    await away(server)
    pending = asyncio.ensure_future(store.append(sample.step(key="b")))
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
    (sample,) = await born(store)
    await away(server)
    step = sample.step(key="b")
    pending = asyncio.ensure_future(store.append(step))
    await ending(server, await until_waiting(server, pending, query="%journal%"))
    with pytest.raises(UnavailableError) as raised:
        await pending
    once = list(confirmed)
    await until_none_waits(server)
    await back(server)
    impatient.undo()

    assert ("store.standby", ["waited"]) == (raised.value.code, once)
    assert Duplicate(3) == await store.append(step)


async def test_a_wait_that_is_called_off_again_confirms_nothing(store: PostgresStore, server: Server) -> None:
    (sample,) = await born(store)
    await away(server)
    pending = asyncio.ensure_future(store.append(sample.step(key="b")))
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


async def test_other_warnings_delay_no_receipt(
    store: PostgresStore, server: Server, url: str, confirmed: list[str]
) -> None:
    (sample,) = await born(store)
    schema = url.partition("=")[2]
    server.asked(
        f"CREATE FUNCTION {schema}.warn() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE WARNING 'look'; RETURN new; END $$"
    )
    server.asked(
        f"CREATE TRIGGER warn BEFORE INSERT ON {schema}.event_key FOR EACH ROW EXECUTE FUNCTION {schema}.warn()"
    )
    await append_all(store, sample.step(key="b"))

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
        pass  # the next call has nothing to wait for

    assert (expected, True) == (confirmed, connection is same)


async def test_a_warning_does_not_affect_the_next_user_of_the_connection(
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
    pending = asyncio.ensure_future(asyncio.gather(*(store.append(again(sample)) for sample in lives)))
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


async def test_a_lost_wait_starts_again_with_its_query(store: PostgresStore, server: Server) -> None:
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
    (sample,) = await born(store)
    await away(server)
    with pytest.raises(UnavailableError) as appended:
        await store.append(again(sample))
    with pytest.raises(UnavailableError) as loaded:
        await store.load("parcel/0", key="a")
    await until_none_waits(server)
    await back(server)
    impatient.undo()

    assert ("store.standby", "store.standby") == (appended.value.code, loaded.value.code)
    assert (Duplicate(2), Duplicate(2)) == (await store.append(again(sample)), await store.load("parcel/0", key="a"))


async def test_where_no_standby_is_waited_for_a_known_key_costs_nothing(
    store: PostgresStore, confirmed: list[str]
) -> None:
    lives = await born(store, 3)
    answers = await asyncio.gather(*(store.append(again(sample)) for sample in lives))

    assert ([Duplicate(2)] * 3, Duplicate(2)) == (answers, await store.load("parcel/0", key="a"))
    assert [] == confirmed


# Rights


@pytest.mark.usefixtures("impatient")
async def test_an_ordinary_user_may_wait_for_a_standby_unless_it_was_taken_away(server: Server) -> None:
    name = f"narrow{next(_numbers)}"
    server.asked(f"CREATE ROLE {name} LOGIN PASSWORD 'guest'")
    server.asked(f"CREATE DATABASE {name} OWNER {name}")
    store = await open_store(f"postgresql://{name}:guest@127.0.0.1:{server.port}/{name}")
    errors: list[UnavailableError] = []
    try:
        await born(store)
        await away(server)
        for _ in range(2):
            with pytest.raises(UnavailableError) as raised:
                await store.load("parcel/0", key="a")
            errors.append(raised.value)
            async with looking(server, name) as other:
                for (function,) in await other.fetch(EMIT):
                    await other.execute(f"REVOKE EXECUTE ON FUNCTION {function} FROM PUBLIC")
    finally:
        await back(server)
        await store.close()

    assert ["store.standby", "store.privilege"] == [each.code for each in errors]
    assert "GRANT EXECUTE ON FUNCTION pg_logical_emit_message" in (errors[1].hint or "")


# A standby that takes over


class Follower(Server):
    """A standby with a copy of a server; it follows the server when it is started."""

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
        (sample,) = await born(store)
        await away(leader, "follower")
        pending = asyncio.ensure_future(store.append(sample.step(key="b")))
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
