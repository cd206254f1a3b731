"""A server process under attack, with a normal client at the same time.

    python -m tests.hostile.http_exhaustion            the long form: prints latencies, memory and the size of the log

The client sends requests with an API key, alternately over a persistent and over a new connection.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import interlock
from interlock.trust.api_keys import key_digest

ROOT = Path(__file__).parents[2]
KEY = "ilk_of_a_normal_client"
CHART = "interlock: 1\nkind: lamp\ninitial: off\nstates: {off: {on: {flip: on}}, on: {on: {flip: off}}}\n"
HANG_S = 60
"""After this long without an answer the client counts a failure: a net, not a measured time."""


@dataclass(slots=True)
class Server:
    """`interlock serve` as a process."""

    process: subprocess.Popen[str]
    port: int
    log: Path

    def memory(self, name: str) -> int:
        """A line of the process's status, such as VmRSS or VmHWM (the most it ever was), in bytes."""
        for each in Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii").splitlines():
            if each.startswith(f"{name}:"):
                return int(each.split()[1]) * 1_024
        raise AssertionError(name)

    def processor_s(self) -> float:
        """Seconds of processor time that it has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def descriptors(self) -> int:
        """How many descriptors it has open."""
        return sum(1 for _ in Path(f"/proc/{self.process.pid}/fd").iterdir())


@contextmanager
def serving(
    folder: Path, *, descriptors: int | None = None, rights: Sequence[str] = ("read",), chart: str = CHART
) -> Iterator[Server]:
    """A server on a store in this folder, within this limit of descriptors. The rights are those of `KEY`."""
    (folder / "lamp.yaml").write_text(chart, encoding="utf-8")
    keys = folder / "keys.toml"
    table = f'id = "ada"\nsha256 = "{key_digest(KEY)}"\nroles = ["clerk"]\nrights = {json.dumps(list(rights))}\n'
    keys.write_text(f"[[key]]\n{table}", encoding="utf-8")
    keys.chmod(0o600)
    store = f"sqlite:///{folder}/lamps.db"
    with interlock.open(store, charts=[interlock.loads(chart)]).blocking() as lamps:
        lamps.create("lamp/a")
    command = [sys.executable, "-m", "interlock", "serve", store, "--chart", "lamp.yaml", "--port", "0"]
    command += ["--key-file", "keys.toml"]
    if descriptors is not None:
        command = ["/bin/sh", "-c", f'ulimit -n {descriptors}; exec "$@"', "sh", *command]
    log = folder / "serve.log"
    with log.open("w") as errors:
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address, log.read_text(encoding="utf-8")
        yield Server(process, int(address.rpartition(":")[2]), log)
    finally:
        process.kill()
        process.communicate()


@dataclass(slots=True)
class NormalClient:
    """A client with a key that sends requests while the server is under attack."""

    port: int
    took_s: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    reconnects: int = 0
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        assert self._thread is not None
        self._thread.join()

    def _ask(self) -> None:
        kept = self._connection()
        while True:
            ended = self._over.is_set()  # asked once more after the attack
            started = time.perf_counter()
            try:
                self._answer(kept)
            except (OSError, http.client.HTTPException):
                self.reconnects += 1  # a server may close a connection between two requests
                kept.close()
                kept = self._connection()
                self._guarded("kept", kept)
            self.took_s.append(time.perf_counter() - started)
            started = time.perf_counter()
            fresh = self._connection()
            self._guarded("fresh", fresh)
            fresh.close()
            self.took_s.append(time.perf_counter() - started)
            if ended:
                kept.close()
                return
            self._over.wait(0.01)

    def _connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=HANG_S)

    def _guarded(self, name: str, connection: http.client.HTTPConnection) -> None:
        try:
            self._answer(connection)
        except (OSError, http.client.HTTPException) as error:
            self.failures.append(f"{name}: {error!r}")

    def _answer(self, connection: http.client.HTTPConnection) -> None:
        connection.request("GET", "/api/v1/kinds", headers={"Authorization": f"Bearer {KEY}"})
        response = connection.getresponse()
        response.read()
        if response.status != 200:
            self.failures.append(f"status {response.status}")

    def percentile(self, part: float) -> float:
        """The time within which this part of all answers came."""
        ordered = sorted(self.took_s)
        return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def attacked(server: Server, attack: str, *, processes: int, **bounds: float) -> list[dict[str, int]]:
    """Run the attackers; return the report of each."""
    given = [text for name, value in bounds.items() for text in (f"--{name}", str(value))]
    command = [sys.executable, "-m", "tests.hostile.http_attacks", attack, str(server.port), *given]
    running = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    try:
        return [json.loads(each.communicate()[0]) for each in running]
    finally:
        for each in running:
            each.kill()
            each.wait()


LONG: tuple[tuple[str, dict[str, Any], int | None], ...] = (
    ("heads", {"processes": 2, "seconds": 15}, None),
    ("line", {"processes": 2, "seconds": 15}, None),
    ("half_open", {"processes": 2, "seconds": 40, "connections": 550}, None),
    ("half_open", {"processes": 2, "seconds": 40, "connections": 550}, 1_024),
    ("idle", {"processes": 2, "seconds": 20, "connections": 600}, 256),
    ("churn", {"processes": 2, "seconds": 15, "connections": 600}, 256),
    ("half_bodies", {"processes": 2, "seconds": 60, "connections": 550}, None),
    ("trailers", {"processes": 2, "seconds": 10}, None),
    ("pipeline", {"processes": 2, "seconds": 10}, None),
)


def main() -> None:
    """Run every attack in its long form and print what it cost."""
    parser = argparse.ArgumentParser()
    parser.add_argument("attacks", nargs="*")
    parser.add_argument("--bytes", type=int, default=2**40)
    given = parser.parse_args()
    for attack, bounds, descriptors in LONG:
        if given.attacks and attack not in given.attacks:
            continue
        with tempfile.TemporaryDirectory() as folder, serving(Path(folder), descriptors=descriptors) as server:
            with NormalClient(server.port) as client:
                before, used = server.memory("VmRSS"), server.processor_s()
                done = attacked(server, attack, bytes=given.bytes, **bounds)
                used = server.processor_s() - used
            grown = (server.memory("VmHWM") - before) / 1e6
            total = {name: sum(each[name] for each in done) for name in ("opened", "sent", "closed")}
            print(
                f"{attack} (descriptors {descriptors or 'default'}): {total['opened']} connections, "
                f"{total['sent'] / 1e6:.0f} MB sent, {total['closed']} closed by the server\n"
                f"  client: {len(client.took_s)} answers, p50 {client.percentile(0.5) * 1e3:.1f} ms, "
                f"p99 {client.percentile(0.99) * 1e3:.1f} ms, max {max(client.took_s) * 1e3:.1f} ms, "
                f"{client.reconnects} reconnects, failures {len(client.failures)} {client.failures[:2]}\n"
                f"  server: memory grew by {grown:.1f} MB, processor {used:.1f} s, "
                f"log {server.log.stat().st_size} bytes, {server.descriptors()} descriptors",
                flush=True,
            )


if __name__ == "__main__":
    main()
