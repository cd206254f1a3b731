"""The drain of a server: requests are admitted, refused and waited for, in several worker processes."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from interlock.errors import NotFoundError, UsageError
from interlock.shm.lifecycle.asgi import DrainMiddleware, Message, Receive, Scope, Send, drain_workers, server_name
from interlock.shm.lifecycle.lifecycle import Lifecycle
from interlock.shm.lifecycle.permits import Phase
from interlock.shm.memory.region import MemoryRegion
from tests.processes.shm.processes import Child, Line, Work
from tests.processes.shm.queues import until
from tests.support.eventually import PATIENCE_SECONDS

Start = Callable[[Work], Child]
HTTP: Scope = {"type": "http", "path": "/"}


async def hello(scope: Scope, receive: Receive, send: Send) -> None:
    """An application without a lifespan."""
    assert scope["type"] in {"http", "websocket"}
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


async def request(app: DrainMiddleware, scope: Scope = HTTP) -> list[Message]:
    """Send one request and return the response."""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": f"{scope['type']}.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(dict(scope), receive, send)
    return sent


class Lifespan:
    """The server's side of the lifespan protocol."""

    def __init__(self, app: DrainMiddleware) -> None:
        self.sent: list[str] = []
        self._incoming: asyncio.Queue[Message] = asyncio.Queue()
        self._outgoing: asyncio.Queue[Message] = asyncio.Queue()
        self._task = asyncio.create_task(app({"type": "lifespan"}, self._incoming.get, self._outgoing.put))

    async def exchange(self, what: str) -> str:
        """Send a message and return the type of the answer."""
        await self._incoming.put({"type": f"lifespan.{what}"})
        answer = asyncio.create_task(self._outgoing.get())
        await asyncio.wait({answer, self._task}, return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            return str(answer.result()["type"])
        answer.cancel()
        await self._task
        return "ended"


async def test_requests_pass_while_running_and_are_refused_while_draining() -> None:
    """With status 503, Retry-After and a closed connection."""
    app = DrainMiddleware(hello, name="web")
    assert 200 == (await request(app))[0]["status"]
    report = await app.lifecycle.drain(timeout=PATIENCE_SECONDS)
    start, body = await request(app)

    assert report.closed
    assert 503 == start["status"]
    assert (b"connection", b"close") in start["headers"]
    assert any(name == b"retry-after" for name, _ in start["headers"])
    assert b"shutting down" in body["body"]
    assert [{"type": "websocket.close", "code": 1012, "reason": "draining"}] == await request(
        app, {"type": "websocket"}
    )


async def test_a_drain_waits_for_a_request_in_progress() -> None:
    """New requests are refused meanwhile."""
    release = asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await release.wait()
        await hello(scope, receive, send)

    app = DrainMiddleware(slow, name="web")
    inside = asyncio.create_task(request(app))
    await asyncio.sleep(0)
    assert 1 == app.lifecycle.permits
    drain = asyncio.ensure_future(app.lifecycle.drain(timeout=PATIENCE_SECONDS))
    assert 503 == (await request(app))[0]["status"]
    assert not drain.done()
    release.set()

    assert 200 == (await inside)[0]["status"]
    assert (await drain).closed


async def test_a_failing_request_returns_its_permit() -> None:
    """The server gets the exception."""

    async def failing(scope: Scope, receive: Receive, send: Send) -> None:
        raise ZeroDivisionError

    app = DrainMiddleware(failing, name="web")
    with pytest.raises(ZeroDivisionError):
        await request(app)

    assert 0 == app.lifecycle.permits


def names(directory: Path) -> list[str]:
    """Return the files of a directory."""
    return sorted(path.name for path in directory.iterdir())


async def test_the_lifespan_joins_drains_cleans_up_and_leaves(runtime_directory: Path) -> None:
    """Also for an application without a lifespan; no file is left."""
    runs: list[int] = []
    app = DrainMiddleware(hello, name="web", cleanup=lambda: runs.append(1))
    span = Lifespan(app)
    assert "lifespan.startup.complete" == await span.exchange("startup")
    assert ["web"] == names(runtime_directory)
    assert 200 == (await request(app))[0]["status"]
    assert "lifespan.shutdown.complete" == await span.exchange("shutdown")

    assert app.report is not None
    assert app.report.closed
    assert [1] == runs
    assert [] == names(runtime_directory)


async def test_a_request_that_outlasts_the_shutdown_keeps_its_slot() -> None:
    """After the timeout the worker still counts as alive."""
    release = asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        await release.wait()

    app = DrainMiddleware(slow, name="web", timeout=0.01)
    span = Lifespan(app)
    await span.exchange("startup")
    inside = asyncio.create_task(request(app))
    await asyncio.sleep(0)
    assert "lifespan.shutdown.complete" == await span.exchange("shutdown")

    assert app.report is not None
    assert (False, 1) == (app.report.closed, app.report.permits)
    assert 1 == app.lifecycle.permits
    release.set()
    await inside
    assert Phase.CLOSED is app.lifecycle.phase


async def test_an_application_that_fails_in_its_lifespan_gets_a_default_one() -> None:
    """If it sent no answer."""

    async def deaf(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        raise NotImplementedError

    span = Lifespan(DrainMiddleware(deaf, name="web"))

    assert "lifespan.startup.complete" == await span.exchange("startup")
    assert "lifespan.shutdown.complete" == await span.exchange("shutdown")


async def test_the_applications_own_lifespan_is_served() -> None:
    """Its shutdown comes after the drain, because requests use what it closes."""
    order: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        for word in ("startup", "shutdown"):
            assert f"lifespan.{word}" == (await receive())["type"]
            order.append(word)
            await send({"type": f"lifespan.{word}.complete"})

    span = Lifespan(DrainMiddleware(app, name="web", cleanup=lambda: order.append("cleanup")))

    assert "lifespan.startup.complete" == await span.exchange("startup")
    assert "lifespan.shutdown.complete" == await span.exchange("shutdown")
    assert ["startup", "cleanup", "shutdown"] == order


async def test_an_application_that_fails_to_start_fails() -> None:

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.failed"})
        raise ZeroDivisionError

    span = Lifespan(DrainMiddleware(app, name="web"))
    assert "lifespan.startup.failed" == await span.exchange("startup")
    with pytest.raises(ZeroDivisionError):
        await span._task


async def test_a_worker_that_only_leaves_does_not_drain_the_others() -> None:
    """Servers replace workers while they run."""
    one = DrainMiddleware(hello, name="web", drain_on_shutdown=False)
    two = DrainMiddleware(hello, name="web", drain_on_shutdown=False)
    spans = [Lifespan(one), Lifespan(two)]
    for span in spans:
        await span.exchange("startup")
    assert {0, 1} == {one.lifecycle.slot, two.lifecycle.slot}
    await spans[0].exchange("shutdown")

    assert one.report is None
    assert 200 == (await request(two))[0]["status"]
    assert Phase.RUNNING is two.lifecycle.phase


async def test_a_name_whose_lifecycle_is_closed_can_be_used_again() -> None:
    old = DrainMiddleware(hello, name="web")
    await request(old)
    await old.lifecycle.drain(timeout=PATIENCE_SECONDS)
    new = DrainMiddleware(hello, name="web")

    assert 200 == (await request(new))[0]["status"]
    assert 503 == (await request(old))[0]["status"]


def test_an_invalid_name_is_refused_by_the_constructor() -> None:
    with pytest.raises(UsageError):
        DrainMiddleware(hello, name="a/b")
    with pytest.raises(NotFoundError):
        drain_workers("unknown")


def test_workers_of_one_server_have_one_name(child: Start) -> None:
    """It comes from their parent process."""

    def work(line: Line) -> None:
        line.send(server_name())

    names_seen = {child(work).receive() for _ in range(2)}

    assert 1 == len(names_seen)
    assert {server_name()} != names_seen


def serve_one_request(line: Line) -> None:
    """Run a worker: one slow request, then the shutdown."""

    async def main() -> None:
        async def slow(scope: Scope, receive: Receive, send: Send) -> None:
            assert scope["type"] == "http"
            line.send("inside")
            await asyncio.to_thread(line.recv)
            await hello(scope, receive, send)

        app = DrainMiddleware(slow, name="web", cleanup=lambda: line.send("cleanup"))
        span = Lifespan(app)
        await span.exchange("startup")
        answer = await request(app)
        line.send(answer[0]["status"])
        line.send((await request(app))[0]["status"])
        await span.exchange("shutdown")
        line.send("down")

    asyncio.run(main())


def test_all_workers_drain_together_and_one_cleans_up(child: Start) -> None:
    workers = [child(serve_one_request) for _ in range(3)]
    for each in workers:
        assert "inside" == each.receive()
    watcher = Lifecycle(MemoryRegion.attach("web"))
    drain = watcher.drain(timeout=PATIENCE_SECONDS)
    assert [1, 1, 1] == [each.permits for each in watcher.participants() if each.slot != watcher.slot]
    for each in workers:
        each.send()
    report = drain.wait()
    said = []
    for each in workers:
        while (word := each.receive()) != "down":
            said.append(word)

    assert report.closed
    assert 1 == said.count("cleanup")
    assert 3 == said.count(200)
    assert 3 == said.count(503)
    assert [0, 0, 0] == [each.wait() for each in workers]


def test_a_killed_worker_does_not_block_the_drain(child: Start) -> None:
    workers = [child(serve_one_request) for _ in range(2)]
    for each in workers:
        assert "inside" == each.receive()
    workers[0].kill(reap=False)
    drain = Lifecycle(MemoryRegion.attach("web")).drain(timeout=PATIENCE_SECONDS)
    workers[1].send()  # only now: before the drain its next request would be let in as well
    report = drain.wait()

    assert report.closed
    assert [workers[0].pid] == [each.pid for each in report.reclaimed]


SERVER = """
import asyncio
from interlock.shm.lifecycle.asgi import DrainMiddleware

async def app(scope, receive, send):
    assert scope["type"] == "http"
    if scope["path"] == "/slow":
        await asyncio.sleep(0.5)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})

app = DrainMiddleware(app, name="web", timeout=10)
"""


SERVERS = {
    "uvicorn": ("uvicorn", ["uvicorn", "served:app", "--workers", "2", "--port"]),
    "gunicorn": (
        "uvicorn_worker",
        ["gunicorn", "served:app", "-w", "2", "-k", "uvicorn_worker.UvicornWorker", "--no-control-socket", "-b"],
    ),
}
"""Real servers of two worker processes: the module that must be there, and the command but for the port."""


@pytest.mark.parametrize("server", sorted(SERVERS))
def test_workers_of_a_real_server_share_one_lifecycle(tmp_path: Path, server: str) -> None:
    """Two workers answer; a drain from outside makes both refuse; a signal ends them."""
    module, command = SERVERS[server]
    if find_spec(module) is None:
        pytest.skip(f"NO {module} here: pip install {module.replace('_', '-')} to run this test")
    (tmp_path / "served.py").write_text(SERVER)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = str(port) if server == "uvicorn" else f"127.0.0.1:{port}"
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    started = subprocess.Popen(
        [sys.executable, "-m", *command, place], cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}
    )

    def status() -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    try:
        until(lambda: status() == 200, f"an answer of {server}")
        with Lifecycle(MemoryRegion.attach("web")) as watcher:
            until(lambda: len(watcher.participants()) == 3, "two workers and us")
        assert drain_workers("web").closed
        assert {503} == {status() for _ in range(10)}
    finally:
        started.send_signal(signal.SIGTERM)
        started.wait(PATIENCE_SECONDS)
