"""SQLite and forks: which databases a child may open; it never uses an inherited connection."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from interlock.errors import InterlockError, UsageError
from interlock.model.audit import AuditRow
from interlock.stores.sqlite import files
from interlock.stores.sqlite.connection import open_reader, open_writer
from interlock.stores.sqlite.files import CALLS
from interlock.stores.sqlite.store import SqliteStore
from interlock.testing.store_suite.samples import SampleEntity
from interlock.testing.store_suite.subject import append_all, journal
from tests.support.eventually import PATIENCE_SECONDS
from tests.unit.stores.test_file_identity import _codes, _moved

SECONDS_MAX = 60
"""A child that takes longer hangs, and is ended by an alarm."""

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*fork.*:DeprecationWarning"
)  # about forks with threads, which the tests does


def forked(work: Callable[[], str]) -> str:
    """Run `work` in a forked child; return its result, the code of its error, or its exit."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(SECONDS_MAX)
        try:
            said = work()
        except InterlockError as error:
            said = error.code
        except BaseException as error:  # noqa: BLE001 - nothing may return into the test that was copied
            said = repr(error)
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as heard:
        said = heard.read()
    _, status = os.waitpid(child, 0)
    return said or f"ended with {os.waitstatus_to_exitcode(status)}"


def opened(path: Path) -> str:
    """Open a store, write an entry, read it, and close."""

    async def work() -> str:
        store = SqliteStore(path)
        sample = SampleEntity(f"parcel/{os.getpid()}")
        await append_all(store, sample.create())
        count = len(await journal(store, sample.entity))
        await store.close()
        return f"wrote {count}"

    return asyncio.run(work())


def test_a_child_is_refused_a_database_that_its_parent_has_open(tmp_path: Path) -> None:
    path, link, other_name = tmp_path / "x.db", tmp_path / "link.db", tmp_path / "hard.db"
    store = SqliteStore(path)
    sample = SampleEntity("parcel/1")
    asyncio.run(append_all(store, sample.create()))
    link.symlink_to(path)
    os.link(path, other_name)
    said = [forked(partial(opened, each)) for each in (path, link, other_name)]
    said.append(forked(lambda: str(open_reader(path))))
    asyncio.run(append_all(store, sample.step(key="k")))
    count = len(asyncio.run(journal(store, "parcel/1")))
    asyncio.run(store.close())

    assert (["store.forked"] * 4, 2) == (said, count)


def test_a_grandchild_is_refused_too(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    store = SqliteStore(path)
    said = forked(lambda: forked(lambda: opened(path)))
    asyncio.run(store.close())

    assert "store.forked" == said


def test_a_child_uses_every_other_database(tmp_path: Path) -> None:
    """One that its parent closed before the fork, one that it never had open, and a new one."""
    path, closed, old, new = (tmp_path / f"{name}.db" for name in ("x", "closed", "old", "new"))
    asyncio.run(SqliteStore(closed).close())
    subprocess.run([sys.executable, "-c", f"import sqlite3; sqlite3.connect({str(old)!r}).close()"], check=True)
    store = SqliteStore(path)
    said = [forked(partial(opened, each)) for each in (closed, old, new)]
    own = forked(lambda: forked(lambda: opened(new)))
    asyncio.run(store.close())
    again = forked(lambda: opened(path))

    assert ["wrote 1"] * 5 == [*said, own, again]


def test_a_child_of_a_process_in_the_middle_of_commits_does_not_hang(tmp_path: Path) -> None:
    """No thread is inside SQLite at the fork: none of its mutexes stays locked in the child."""
    store = SqliteStore(tmp_path / "x.db")
    sample, is_over, started = SampleEntity("parcel/1"), threading.Event(), threading.Event()

    async def write() -> None:
        await append_all(store, sample.create())
        number = 0
        while not is_over.is_set():
            await asyncio.gather(store.append(sample.step(key=f"k{number}")), store.load("parcel/1"), store.kinds())
            number += 1
            started.set()

    writing = threading.Thread(target=lambda: asyncio.run(write()))
    writing.start()
    started.wait(SECONDS_MAX)
    said = [forked(partial(opened, tmp_path / f"{each}.db")) for each in range(10)]
    is_over.set()
    writing.join()
    asyncio.run(store.close())

    assert ["wrote 1"] * 10 == said


def test_a_child_refuses_sqlite_when_a_thread_stayed_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "FORK_WAIT_MS_MAX", 20)
    entered, leave = threading.Event(), threading.Event()

    def stay() -> None:
        with CALLS:
            entered.set()
            leave.wait(SECONDS_MAX)

    staying = threading.Thread(target=stay)
    staying.start()
    entered.wait(SECONDS_MAX)
    said = forked(lambda: opened(tmp_path / "x.db"))
    leave.set()
    staying.join()

    assert ("store.forked", "wrote 1") == (said, opened(tmp_path / "x.db"))


def test_threads_wait_during_a_fork_and_continue_when_its_end_was_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = files.Calls()
    monkeypatch.setattr(files, "FORK_WAIT_MS_MAX", 20)
    calls.before_fork()
    done: list[int] = []

    def enter() -> None:
        with calls:
            done.append(1)

    waiting = threading.Thread(target=enter)
    waiting.start()
    waiting.join(SECONDS_MAX)
    with calls:
        done.append(2)

    assert ([1, 2], False) == (done, calls.others_inside())


def test_an_inherited_connection_runs_nothing(tmp_path: Path) -> None:
    """As in the handler of a signal that forks in the middle of a commit: the child runs on in the parent's code."""
    connection = open_writer(tmp_path / "x.db")

    def used() -> str:
        codes = set()
        for use in (
            lambda: connection.execute("SELECT 1"),
            lambda: connection.executemany("SELECT ?", [(1,)]),
            connection.cursor,
            connection.commit,
        ):
            with pytest.raises(UsageError) as caught:
                use()
            codes.add(caught.value.code)
        connection.close()
        return ",".join(codes)

    said = forked(used)
    alive = connection.execute("SELECT 1").fetchone()
    connection.close()

    assert ("store.forked", (1,)) == (said, alive)


LEFT = """
import gc, os, sys
from pathlib import Path
from interlock.stores.sqlite.connection import open_reader, open_writer

path = Path(sys.argv[1])
connections = [open_writer(path), open_reader(path)]
connections[0].execute("CREATE TABLE mine (a)")
connections[1].execute("SELECT count(*) FROM mine").fetchone()
reader, writer = os.pipe()
if os.fork():
    os._exit(0)  # as by kill -9: nothing is closed
os.close(writer)
os.read(reader, 1)  # until the parent has ended
del connections
gc.collect()
sys.exit(0)
"""


def test_a_child_that_exits_does_not_close_what_it_inherited(tmp_path: Path) -> None:
    """SQLite's close would take the log into the file and delete it, by locks that the child does not have."""
    path = tmp_path / "x.db"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", LEFT, str(path)], capture_output=True, timeout=SECONDS_MAX, check=False
    )
    log = path.with_name("x.db-wal")

    assert (0, b"") == (done.returncode, done.stderr)
    assert log.stat().st_size > 0


def test_a_fork_that_ran_no_rules_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.db"
    connection = open_writer(path)

    def unruled() -> str:
        files._inherited.clear()
        files._open[id(connection)] = connection
        monkeypatch.setattr(files, "_process", os.getppid())
        return opened(path)

    said = forked(unruled)
    connection.close()
    gc.collect()

    assert "store.forked" == said


PRIVATE = """
import os, stat, sys
from pathlib import Path

path, modes = Path(sys.argv[1]), set()

def look(event, arguments):
    for each in path.parent.glob("x.db*") if event in ("sqlite3.connect", "sqlite3.connect/handle", "os.chmod") else ():
        modes.add(stat.S_IMODE(each.stat().st_mode))

from interlock.stores.sqlite.connection import open_writer
os.umask(0)
sys.addaudithook(look)
connection = open_writer(path)
modes.update(stat.S_IMODE(each.stat().st_mode) for each in path.parent.glob("x.db*"))
connection.close()
print(sorted(oct(each) for each in modes))
"""


def test_a_new_file_is_private_from_its_first_moment(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PRIVATE, str(tmp_path / "x.db")], capture_output=True, text=True, check=True
    )

    assert "['0o600']\n" == done.stdout


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # of processes with threads; that is what is tested
def test_a_forked_child_must_open_its_own_store(tmp_path: Path) -> None:
    """Its rings would wake its parent's threads, and theirs would wake its own; the parent continues."""
    sample = SampleEntity("parcel/1")
    store = SqliteStore(tmp_path / "x.db")
    asyncio.run(append_all(store, sample.create()))
    row = AuditRow("parcel/1", "a", "denied", "no", 1)

    async def errors() -> list[str]:
        codes = []
        for each in (
            store.append(sample.step(key="k")),
            store.load("parcel/1"),
            store.kinds(),
            store.append_audit((row,)),
        ):
            try:
                await each
            except UsageError as error:
                codes.append(error.code)
        await store.close()
        return codes

    child = os.fork()
    if child == 0:
        signal.alarm(int(PATIENCE_SECONDS))  # ends it, should it wait
        code = 1
        try:
            code = 0 if ["store.forked"] * 4 == asyncio.run(errors()) else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    loaded = asyncio.run(store.load("parcel/1"))
    asyncio.run(store.close())

    assert (0, True) == (os.waitstatus_to_exitcode(status), loaded is not None)


OTHER = """
import asyncio, os, sys
from pathlib import Path
from interlock.stores.sqlite.store import SqliteStore
from interlock.testing.store_suite.samples import SampleEntity

async def main():
    store = SqliteStore(Path(sys.argv[1]))
    sample = SampleEntity("parcel/other")
    await store.append(sample.create())
    await store.append(sample.step(key="k"))
    print("kept", flush=True)
    sys.stdin.readline()
    os._exit(0)  # as by kill -9: the entries are in the log only

asyncio.run(main())
"""


@pytest.mark.parametrize("is_noticed", [True, False])
async def test_closing_a_replaced_database_leaves_the_log_of_its_successor(tmp_path: Path, is_noticed: bool) -> None:
    """The last connection deletes the log by its name, which another file has by now; but SQLite looks first."""
    path = tmp_path / "x.db"
    store = SqliteStore(path)
    sample = SampleEntity("parcel/1")
    await append_all(store, sample.create())
    await store.kinds()  # a connection that reads
    for suffix in ("", "-wal", "-shm"):
        _moved(path.with_name(f"x.db{suffix}"))
    other = await asyncio.create_subprocess_exec(
        sys.executable, "-c", OTHER, str(path), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert other.stdin is not None
    assert other.stdout is not None
    said = await other.stdout.readline()
    if is_noticed:
        await _codes(lambda: store.append(sample.step(key="x")))
    await store.close()
    await other.communicate(b"\n")
    again = SqliteStore(path)
    count = len(await journal(again, "parcel/other"))
    await again.close()

    assert (b"kept\n", 2) == (said, count)
