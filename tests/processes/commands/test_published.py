"""A bus and three processes: command line, console and worker. Whichever writes an entry, it is published."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

import interlock
from tests.support.cli import Caller
from tests.support.eventually import eventually_blocking

LAMP = """
interlock: 1
kind: lamp
initial: dark
states:
  dark: {on: {flip: bright}}
  bright: {on: {flip: dark}, after: {50ms: dim}}
  dim: {on: {flip: dark}}
"""
STORE = "sqlite:///lamps.db"
SECRET = "whsec_bm90IGEgc2VjcmV0LCBvbmx5IGZvciB0ZXN0cw=="


class Endpoint:
    """A webhook endpoint of this process, and the messages that it got."""

    def __init__(self) -> None:
        self.messages: list[dict[str, object]] = []
        mine = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                """Accept a message."""
                mine.messages.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(204)
                self.end_headers()

            def log_message(self, format: str, *values: object) -> None:
                """Print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook#private=1"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def ids(self) -> list[object]:
        """The ids of the messages, in the order of their arrival."""
        return [each["id"] for each in self.messages]

    def close(self) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    """An endpoint that ends with the test."""
    opened = Endpoint()
    yield opened
    opened.close()


@pytest.fixture
def project(folder: Path) -> Path:
    """A project with a lamp and no store yet."""
    (folder / "lamp.yaml").write_text(LAMP, encoding="utf-8")
    (folder / "interlock.toml").write_text(f'store = "{STORE}"\ncharts = ["lamp.yaml"]\n', encoding="utf-8")
    return folder


@contextmanager
def running(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A command as a process, and the first line that it prints to either stream."""
    command = [sys.executable, "-m", "interlock", *arguments]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "INTERLOCK_WEBHOOK_SECRET": SECRET}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def test_entries_of_the_command_line_the_console_and_the_worker_are_published_once(
    project: Path, endpoint: Endpoint, call: Caller
) -> None:
    with running("run", "--bus", endpoint.url) as (worker, ready), running("serve", "--port", "0") as (_, link):
        assert "running" in ready
        assert 0 == call("create", "lamp/1").code
        base, _, token = link.partition("/#login=")
        with httpx.Client(base_url=base) as client:
            csrf = client.post("/api/v1/login", json={"secret": token}, headers={"Origin": base}).json()["csrf"]
            headers = {"Origin": base, "X-Interlock-CSRF": csrf}
            sent = client.post("/api/v1/send/lamp/1", json={"event": "flip"}, headers=headers)
        eventually_blocking(lambda: len(endpoint.messages) >= 3)  # the timer of the worker is the third
        assert 0 == call("send", "lamp/1", "flip").code
        eventually_blocking(lambda: len(endpoint.messages) >= 4)
        worker.send_signal(signal.SIGTERM)
        worker.wait()
    with interlock.connect(STORE, charts=[interlock.loads(LAMP)]) as lamps:
        entries = [(each.version, each.after) for each in lamps.journal("lamp/1")]

    assert 200 == sent.status_code
    assert [(1, ("dark",)), (2, ("bright",)), (3, ("dim",)), (4, ("dark",))] == entries
    assert ["lamp/1/1", "lamp/1/2", "lamp/1/3", "lamp/1/4"] == [str(each).rpartition("/")[0] for each in endpoint.ids()]
    assert len(set(endpoint.ids())) == len(endpoint.ids())


def test_the_setting_is_shown_without_secrets_and_can_be_turned_off(project: Path, call: Caller) -> None:
    assert 0 == call("create", "lamp/0").code
    before = call("db", "messages", "--json")
    lamp = interlock.loads(LAMP)
    with interlock.connect(STORE, charts=[lamp], bus="nats://ada:secret@127.0.0.1:1?stream=lamps"):
        pass
    on = call("db", "messages")
    assert 0 == call("create", "lamp/1").code
    off = call("db", "messages", "--off", "--json")
    assert 0 == call("create", "lamp/2").code
    waiting = call("effects", "ls", "--lane", "message")

    assert ({"published": False, "bus": None}, {"published": False, "bus": None}) == (
        json.loads(before.out),
        json.loads(off.out),
    )
    assert "nats://127.0.0.1:1" in on.out
    assert "secret" not in on.out
    assert [True, False] == [f"lamp/{each}/1/" in waiting.out for each in (1, 2)]
