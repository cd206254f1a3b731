"""The load: clients that each keep one connection, send an event, wait for its receipt, and send the next.

    python -m bench.http.load < question.json

Rule 1: it is lean, because it shares the machine with what it measures: one process, one loop, no library between
it and the socket, every request made of two ready parts. Its own CPU time is reported next to the server's.
Rule 2: every answer is read and checked. An unexpected answer ends the run: an error is not fast.
Rule 3: a request has a key, and is sent again with the same key if the connection breaks before the answer. Until then
it is in doubt: the server may have stored it.
Rule 4: it ends when every request that was sent is answered, so that nothing is in doubt at the end.

It prints a line after half of the time or of the answers, and the measures as JSON at the end.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from array import array
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from bench.durable.order import tree_cpu_s

HALF = "half"
PATIENCE_S = 30.0
"""Time limit of one answer, and of a server that restarts."""

AGAIN_S = 0.02
"""Time between two attempts to connect."""

SEPARATOR = b"\r\n\r\n"
LENGTH = b"content-length:"
HOT = "parcel/hot-"


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What to do: how many clients send for how long, or until how many answers, whichever is first.

    Each client has its own entity; every `hot_every`th of its events goes to one of the `hot` shared ones.
    `name` is the prefix of every key, so that two loads on one store share none.
    """

    port: int
    server_pid: int
    bearer: str
    name: str
    clients: int
    seconds: float
    warm_seconds: float = 0.0
    answers: int | None = None
    hot: int = 4
    hot_every: int = 8
    resends: bool = False
    """Whether a broken connection is opened again; otherwise it ends the run."""


class Scan(NamedTuple):
    """An event that was acknowledged: to whom it went, under which key, and what the receipt said."""

    entity: str
    key: str
    version: int
    outcome: str


class Answer(msgspec.Struct, kw_only=True):
    """What was found: how long answers took, of all, of those for clients' own entities and for shared ones.

    `scans` are the receipts; they are only kept when connections may break.
    `back_s`: from the first broken connection to the first receipt for what was sent again.
    """

    answers: int
    wall_s: float
    server_cpu_s: float
    own_cpu_s: float
    latencies_ms: dict[str, float]
    own_latencies_ms: dict[str, float] = {}
    hot_latencies_ms: dict[str, float] = {}
    doubts: list[tuple[str, str]] = []
    back_s: float | None = None
    scans: list[Scan] = []


class Said(msgspec.Struct):
    """The part of a receipt that is looked at; a greeting has none of it."""

    outcome: str = "applied"
    version: int = 0


KEPT = (0.5, 0.9, 0.99, 0.999, 1.0)
"""The shares of the latencies that are reported."""


class WrongAnswerError(Exception):
    """The server answered something else, or not at all."""


def own_entity(client: int) -> str:
    """The entity that one client alone sends to."""
    return f"parcel/own-{client}"


def hot_entity(number: int) -> str:
    """An entity that all clients send to."""
    return f"{HOT}{number}"


class Client(asyncio.Protocol):
    """One connection, over and over: send, wait, note."""

    def __init__(self, load: Load, number: int) -> None:
        self._load = load
        self._number = number
        self._sent = 0
        self._entity, self._key, self._request = "", "", b""
        self._began = 0.0
        self._is_doubtful = False
        self._transport: asyncio.Transport | None = None
        self._received = b""
        shared = (hot_entity(each) for each in range(load.question.hot))
        self._heads = {entity: _head(entity, load.question) for entity in (own_entity(number), *shared)}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send what is still unanswered, or the first event."""
        assert isinstance(transport, asyncio.Transport)
        self._transport, self._received = transport, b""
        if self._is_doubtful:
            transport.write(self._request)
        else:
            self.send()

    def send(self) -> None:
        """The next event."""
        assert self._transport is not None
        question = self._load.question
        self._sent += 1
        if question.hot and self._sent % question.hot_every == 0:
            self._entity = hot_entity((self._number + self._sent // question.hot_every) % question.hot)
        else:
            self._entity = own_entity(self._number)
        self._key = f"{question.name}-{self._number}-{self._sent}"
        body = b'{"event":"parcel.scanned","payload":{"place":"Oslo"},"key":"%b"}' % self._key.encode()
        self._request = b"%b%d%b%b" % (self._heads[self._entity], len(body), SEPARATOR, body)
        self._began = time.perf_counter()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Note the answer once it is whole."""
        received = self._received = self._received + data if self._received else data
        end = received.find(SEPARATOR)
        if end < 0:
            return
        place = received.find(LENGTH, 0, end)
        if place < 0:
            self._load.fail(f"an answer without a length: {received[:80]!r}")
            return
        line_end = received.find(b"\r\n", place)
        length = int(received[place + len(LENGTH) : line_end])
        if len(received) < end + len(SEPARATOR) + length:
            return
        self._received = b""
        self._answered(received, received[end + len(SEPARATOR) :])

    def _answered(self, received: bytes, body: bytes) -> None:
        if not received.startswith(b"HTTP/1.1 200 "):
            self._load.fail(f"{received[:12]!r} to {self._key}: {body[:160]!r}")
            return
        try:
            said = msgspec.json.decode(body, type=Said)
        except msgspec.DecodeError as error:
            self._load.fail(f"no receipt for {self._key}: {error}")
            return
        if said.outcome != "applied" and not (self._is_doubtful and said.outcome == "duplicate"):
            self._load.fail(f"{said.outcome} to {self._key}")
            return
        took = None if self._is_doubtful else time.perf_counter() - self._began
        self._is_doubtful = False
        self._load.note(Scan(self._entity, self._key, said.version, said.outcome), took)
        self._request = b""
        if self._load.is_over:
            self._load.left(self)
        else:
            self.send()

    def connection_lost(self, exc: Exception | None) -> None:
        """Doubt what is unanswered, and come back."""
        if self._transport is None or not self._request:
            return
        self._transport = None
        if not self._load.question.resends:
            self._load.fail(f"the server broke a connection: {exc}")
            return
        if not self._is_doubtful:
            self._is_doubtful = True
            self._load.doubt(self._entity, self._key)
        self._load.connect(self)

    def close(self) -> None:
        """Let go of the connection."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.close()


class Load:
    """All clients, and what they found."""

    def __init__(self, question: Question, half: Callable[[], None]) -> None:
        self.question = question
        self.is_over = False
        self._half: Callable[[], None] | None = half
        self._own_latencies, self._hot_latencies = array("d"), array("d")
        self._scans: list[Scan] = []
        self._doubts: list[tuple[str, str]] = []
        self._answers = 0
        self._broke: float | None = None
        self._back_s: float | None = None
        self._clients: set[Client] = set()
        self._connecting: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[None] = self._loop.create_future()

    async def run(self) -> Answer:
        """Send for the given time, and return the answer."""
        try:
            return await self._run()
        finally:
            for task in self._connecting:
                task.cancel()
            for client in self._clients:
                client.close()

    async def _run(self) -> Answer:
        question = self.question
        for number in range(question.clients):
            client = Client(self, number)
            self._clients.add(client)
            self.connect(client)
        if question.warm_seconds:
            await self._until(question.warm_seconds)
            self._answers, self._own_latencies, self._hot_latencies = 0, array("d"), array("d")
        cpu_s, own_s, start_s = tree_cpu_s([question.server_pid]), time.process_time(), time.perf_counter()
        halving = self._loop.call_later(question.seconds / 2, self.halve)
        await self._until(question.seconds)
        halving.cancel()
        self.is_over = True
        await asyncio.wait_for(self._done, 2 * PATIENCE_S)
        wall_s = time.perf_counter() - start_s
        own_s = time.process_time() - own_s
        cpu_s = tree_cpu_s([question.server_pid]) - cpu_s
        return Answer(
            answers=self._answers,
            wall_s=wall_s,
            server_cpu_s=cpu_s,
            own_cpu_s=own_s,
            latencies_ms=shares(self._own_latencies + self._hot_latencies),
            own_latencies_ms=shares(self._own_latencies),
            hot_latencies_ms=shares(self._hot_latencies),
            doubts=self._doubts,
            back_s=self._back_s,
            scans=self._scans,
        )

    async def _until(self, seconds: float) -> None:
        """Wait so long, or until everything is over, which a failure is as well."""
        await asyncio.wait([self._done], timeout=seconds)
        if self._done.done():
            self._done.result()

    def halve(self) -> None:
        """Say that half is over, once."""
        if self._half is not None:
            self._half()
            self._half = None

    def connect(self, client: Client) -> None:
        """Connect a client, however long the server takes to be there."""
        task = self._loop.create_task(self._connected(client))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _connected(self, client: Client) -> None:
        until = self._loop.time() + PATIENCE_S
        while True:
            try:
                await self._loop.create_connection(lambda: client, "127.0.0.1", self.question.port)
            except OSError as error:
                if self._loop.time() > until or not self.question.resends:
                    self.fail(f"no connection: {error}")
                    return
                await asyncio.sleep(AGAIN_S)
            else:
                return

    def note(self, scan: Scan, took_s: float | None) -> None:
        """An event was acknowledged. The latency of a repeated event is not counted."""
        self._answers += 1
        if took_s is not None:
            (self._hot_latencies if scan.entity.startswith(HOT) else self._own_latencies).append(took_s)
        if self.question.resends:
            self._scans.append(scan)
            if took_s is None and self._broke is not None and self._back_s is None:
                self._back_s = time.perf_counter() - self._broke
        wanted = self.question.answers
        if wanted is not None and 2 * self._answers >= wanted:
            self.halve()
            self.is_over = self.is_over or self._answers >= wanted

    def doubt(self, entity: str, key: str) -> None:
        """Note that an event may or may not be stored."""
        self._doubts.append((entity, key))
        if self._broke is None:
            self._broke = time.perf_counter()

    def left(self, client: Client) -> None:
        """A client has no more requests to send."""
        client.close()
        self._clients.discard(client)
        if not self._clients and not self._done.done():
            self._done.set_result(None)

    def fail(self, reason: str) -> None:
        """End the run: what was measured up to now counts for nothing."""
        if not self._done.done():
            self._done.set_exception(WrongAnswerError(reason))


def shares(latencies_s: array[float]) -> dict[str, float]:
    """Return the reported shares of the latencies, in milliseconds."""
    ordered = sorted(latencies_s)
    if not ordered:
        return {}
    return {str(share): 1e3 * ordered[min(len(ordered) - 1, int(share * len(ordered)))] for share in KEPT}


def _head(entity: str, question: Question) -> bytes:
    """A request up to the number of its bytes."""
    lines = [
        f"POST /api/v1/send/{entity} HTTP/1.1",
        f"Host: 127.0.0.1:{question.port}",
        f"Authorization: Bearer {question.bearer}",
        "Content-Type: application/json",
        "Content-Length: ",
    ]
    return "\r\n".join(lines).encode()


def main() -> None:
    """Read the question, send, and print the answer."""
    question = msgspec.json.decode(sys.stdin.buffer.read(), type=Question)
    gc.disable()  # nothing here is a cycle, and a pause of ours would be a latency of the server

    async def run() -> Answer:
        return await Load(question, lambda: print(HALF, flush=True)).run()

    print(msgspec.json.encode(asyncio.run(run())).decode(), flush=True)


if __name__ == "__main__":
    main()
