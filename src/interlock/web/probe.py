"""`/livez`, `/readyz` and `/metrics` on a port of their own: for Kubernetes, load balancers and Prometheus.

    GET /livez     200 while the event loop answers
    GET /readyz    200 when the process is ready for work, 503 with the reasons when it is not
    GET /metrics   the metrics as text

Rule 1: it needs no extra but for `/metrics`, and no key. What it answers names kinds, states and handlers, and no
entity; listen on an address that only the cluster reaches.
Rule 2: a request is one head of `HEAD_BYTES_MAX` at most, within `HEAD_SECONDS`; a body is not read. Each connection
answers one request. Beyond `CONNECTIONS_MAX` connections further ones are closed.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable

import msgspec
from msgspec import Struct

from interlock.errors import InterlockError, MissingExtraError, UsageError
from interlock.web.listening import bind_socket
from interlock.web.readiness import Readiness

HEAD_BYTES_MAX = 8_192
HEAD_SECONDS = 5
CONNECTIONS_MAX = 64
"""Connections at a time: probes and a few servers of Prometheus need one each."""

_ADDRESS = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<host>[^:\[\]]*)):(?P<port>[0-9]{1,5})")
_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 501: "Not Implemented"}
_JSON = "application/json"
_METRICS = "text/plain; version=0.0.4; charset=utf-8"

Render = Callable[[], Awaitable[bytes]]
"""Returns the metrics as text. Raises MissingExtraError."""


class Answer(Struct, frozen=True):
    """The answer to a request."""

    status: int
    body: bytes
    media: str = _JSON


def parse_address(text: str) -> tuple[str, int]:
    """Return the host and port of `:8471`, `127.0.0.1:8471` or `[::1]:8471`; without a host all addresses are meant.

    Raises UsageError.
    """
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found["port"]) > 65_535:
        message = f"--probe must be an address such as :8471 or 127.0.0.1:8471, got {text[:60]}"
        raise UsageError(message, code="probe.address", hint="use port 0 for any free port")
    return found["six"] or found["host"] or "0.0.0.0", int(found["port"])  # noqa: S104 - containers are probed from outside


class ProbeServer:
    """Answers probes in the running event loop, from `start` to `close`."""

    def __init__(self, readiness: Readiness) -> None:
        self._readiness = readiness
        self._render: Render | None = None
        self._server: asyncio.Server | None = None
        self._open = 0

    def show_metrics(self, render: Render) -> None:
        """From now on `/metrics` answers."""
        self._render = render

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port. Raises UnavailableError if it is in use."""
        listening = bind_socket(host, port, option="--probe", address="--probe")
        self._server = await asyncio.start_server(self._serve, sock=listening, limit=HEAD_BYTES_MAX)
        return int(listening.getsockname()[1])

    async def close(self) -> None:
        """Stop to listen."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open <= CONNECTIONS_MAX:
                async with asyncio.timeout(HEAD_SECONDS):
                    head = await reader.readuntil(b"\r\n\r\n")
                answer = await self.answer(head)
                writer.write(_encoded(answer, has_body=not head.startswith(b"HEAD ")))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the client went away, or does not speak HTTP
        finally:
            self._open -= 1
            writer.close()

    async def answer(self, head: bytes) -> Answer:
        """Return the answer to the head of a request."""
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return Answer(400, b'{"error":"expected HTTP/1.1"}')
        if words[0] not in (b"GET", b"HEAD"):
            return Answer(405, b'{"error":"expected GET"}')
        match words[1].partition(b"?")[0]:
            case b"/livez":
                return Answer(200, b'{"live":true}')
            case b"/readyz":
                reasons = await self._readiness.reasons()
                body = msgspec.json.encode({"ready": not reasons, "reasons": reasons})
                return Answer(503 if reasons else 200, body)
            case b"/metrics":
                return await self._metrics()
            case _:
                return Answer(404, b'{"error":"expected /livez, /readyz or /metrics"}')

    async def _metrics(self) -> Answer:
        if self._render is None:
            return Answer(503, b'{"error":"the store is not open yet"}')
        try:
            return Answer(200, await self._render(), _METRICS)
        except MissingExtraError as error:
            return Answer(501, msgspec.json.encode({"error": error.message, "hint": error.hint}))
        except InterlockError as error:
            return Answer(503, msgspec.json.encode({"error": error.code}))


def _encoded(answer: Answer, *, has_body: bool) -> bytes:
    head = (
        f"HTTP/1.1 {answer.status} {_REASONS.get(answer.status, 'Service Unavailable')}\r\n"
        f"Content-Type: {answer.media}\r\nContent-Length: {len(answer.body)}\r\n"
        "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (answer.body if has_body else b"")
