"""Limits on HTTP connections: their number, their duration, and the size of a request head.

uvicorn has none of these limits: it buffers a head of any length and keeps a slow connection forever. `LimitedProtocol`
adds them; uvicorn still parses requests, and so protects against request smuggling.

Rule 1: a connection is idle, receives a request, or sends a response. Only a response has no time limit.
Rule 2: a head is limited in bytes, fields and time, a body in time. Trailers after a chunked body count as a head.
Rule 3: if the limit of connections is reached, some that send no response are closed: first connections that have not
shown a valid key or session, then those from the address with the most connections, then the longest idle. If all
connections send a response, the new one is refused.
Rule 4: responses that clients do not read are limited in time and in their total size.
Rule 5: single connections are not logged. Causes are counted and logged together every ten seconds.

With TLS, the limits apply after the handshake, which asyncio limits to a minute.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections import Counter
from collections.abc import Callable
from enum import Enum, auto
from ipaddress import IPv6Address
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from interlock.model.encoding.codec import encode
from interlock.model.limits import (
    HTTP_ACCEPTS_MAX,
    HTTP_BODY_MS_MAX,
    HTTP_CONNECTIONS_MAX,
    HTTP_DESCRIPTORS_RESERVED,
    HTTP_FIELDS_MAX,
    HTTP_HEAD_BYTES_MAX,
    HTTP_HEAD_MS_MAX,
    HTTP_IDLE_MS_MAX,
    HTTP_LINGER_MS_MAX,
    HTTP_PIPELINE_MAX,
    HTTP_STALL_MS_MAX,
    HTTP_UNREAD_BYTES_MAX,
    LOG_REPEAT_MS,
)
from interlock.web.http.endpoint import TRUST_EXTENSION
from interlock.web.http.errors import HttpProblem, problem_of

PIECE_BYTES = 16_384
"""Bytes per call of the parser: the head is checked between two calls. asyncio reads up to 256 KiB."""

SHED_PART = 16
"""One sixteenth of the connections is closed at the limit, because finding candidates scans all connections."""

_log = logging.getLogger("interlock.web")
_http_log = logging.getLogger("interlock.web.http")
_http_log.setLevel(logging.WARNING)  # below, uvicorn traces every connection


class ReadResult(Enum):
    """What a connection is receiving."""

    NOTHING = auto()
    HEAD = auto()
    BODY = auto()


def descriptors_max() -> int:
    """Return how many file descriptors this process may open."""
    most = HTTP_CONNECTIONS_MAX + HTTP_DESCRIPTORS_RESERVED
    try:
        import resource  # missing on Windows, which has no such limit
    except ImportError:
        return most
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if soft == resource.RLIM_INFINITY else soft


class Connections:
    """The connections of one server, in a process that may open `descriptors` files.

    `causes` counts closed and refused connections by cause. `limit` is the maximum of open connections. `accepts` is
    how many asyncio accepts in one batch; up to four batches are accepted before the first one is counted here, and
    they use half of the reserve.
    """

    def __init__(self, descriptors: int | None = None) -> None:
        given = descriptors_max() if descriptors is None else descriptors
        reserved = min(HTTP_DESCRIPTORS_RESERVED, given // 2)
        self.limit = max(1, min(HTTP_CONNECTIONS_MAX, given - reserved))
        self.accepts = max(1, min(HTTP_ACCEPTS_MAX, reserved // 8))
        self.causes: Counter[str] = Counter()
        self._open: set[LimitedProtocol] = set()
        self._peers: Counter[str] = Counter()
        self._logged: Counter[str] = Counter()
        self._logged_s = 0.0
        self._is_shedding = False

    def protocol(self) -> type[HttpToolsProtocol]:
        """Return the protocol class for uvicorn."""
        return type("LimitedHttpToolsProtocol", (LimitedProtocol,), {"registry": self})

    def add(self, connection: LimitedProtocol) -> bool:
        """Add a connection and close others if necessary; return False if the limit is reached."""
        if len(self._open) >= self.limit:
            self.shed()
        if len(self._open) >= self.limit:
            return False
        self._open.add(connection)
        self._peers[connection.peer] += 1
        return True

    def remove(self, connection: LimitedProtocol) -> None:
        """Remove a connection."""
        if connection in self._open:
            self._open.remove(connection)
            self._peers[connection.peer] -= 1
            if not self._peers[connection.peer]:
                del self._peers[connection.peer]

    def shed(self) -> None:
        """Close some of the connections that send no response (Rule 3)."""
        candidates = [each for each in self._open if not each.is_answering]
        candidates.sort(key=lambda each: (each.is_trusted, -self._peers[each.peer], each.since_s))
        for each in candidates[: max(1, self.limit // SHED_PART)]:
            each.drop("shed")

    def sweep(self, now_s: float) -> None:
        """Close slow connections and log the causes. Called about once a second."""
        for each in [*self._open]:
            each.check_time(now_s)
        self._check_unread()
        new = self.causes - self._logged
        if new and now_s - self._logged_s >= LOG_REPEAT_MS / 1000:
            causes = ", ".join(f"{name} {count:,}" for name, count in sorted(new.items()))
            _log.warning("connections closed or refused", extra={"causes": causes, "open": len(self._open)})
            self._logged, self._logged_s = self.causes.copy(), now_s

    def _check_unread(self) -> None:
        """Close the connections with the most unread bytes until the total is within the limit (Rule 4)."""
        unread = {each: each.transport.get_write_buffer_size() for each in self._open}
        total = sum(unread.values())
        for each in sorted(unread, key=lambda one: -unread[one]):
            if total <= HTTP_UNREAD_BYTES_MAX:
                return
            total -= unread[each]
            each.drop("unread")

    def on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> bool:
        """Handle an error of accepting a connection: if descriptors ran out, close connections; asyncio retries after a
        second. Return False for any other error.
        """
        error = context.get("exception")
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
            self.causes["no_descriptors"] += 1
            if not self._is_shedding:  # asyncio reports it for each waiting connection
                self._is_shedding = True
                loop.call_soon(self._shed_once)
            return True
        return False

    def _shed_once(self) -> None:
        self._is_shedding = False
        self.shed()


class LimitedProtocol(HttpToolsProtocol):
    """One connection: uvicorn's protocol, with limits."""

    registry: ClassVar[Connections]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.logger = _http_log
        self.peer = ""
        self.is_trusted = False
        self.since_s = 0.0
        self._reading = ReadResult.NOTHING
        self._reading_s = 0.0
        self._head_bytes = 0
        self._unanswered = 0
        self._is_new = True
        self._is_closed = False
        self._is_upgraded = False
        self._refusal: HttpProblem | None = None
        self._buffered = 0
        self._stalled_s = 0.0

    # Called by the registry

    @property
    def is_answering(self) -> bool:
        """Whether a complete request waits for its response."""
        return self._unanswered > (1 if self._reading is ReadResult.BODY else 0)

    def trust(self) -> None:
        """Record that the connection has shown a valid key or session."""
        self.is_trusted = True

    def check_time(self, now_s: float) -> None:
        """Close the connection at a time limit (Rule 2)."""
        self._check_stall(now_s)
        if self.flow.read_paused:  # the client waits for the server
            self._reading_s = now_s
        elapsed_ms = (now_s - self._reading_s) * 1000
        if self._reading is ReadResult.HEAD:
            if elapsed_ms > HTTP_HEAD_MS_MAX:
                self.refuse(_timeout("head", HTTP_HEAD_MS_MAX))
        elif self._reading is ReadResult.BODY:
            if self._unanswered == 0:
                if elapsed_ms > HTTP_LINGER_MS_MAX and not self._is_closed:
                    self.drop("linger")
            elif elapsed_ms > HTTP_BODY_MS_MAX:
                self.refuse(_timeout("body", HTTP_BODY_MS_MAX))
        elif self._unanswered == 0:
            limit_ms = HTTP_HEAD_MS_MAX if self._is_new else HTTP_IDLE_MS_MAX
            if (now_s - self.since_s) * 1000 > limit_ms and not self._is_closed:
                self.drop(None)

    def _check_stall(self, now_s: float) -> None:
        waiting = self.transport.get_write_buffer_size()
        if waiting == 0 or waiting < self._buffered:  # the client reads
            self._stalled_s = now_s
        elif (now_s - self._stalled_s) * 1000 > HTTP_STALL_MS_MAX:
            self._count("stall")
            self._close(self.transport.abort)
        self._buffered = waiting

    def refuse(self, problem: HttpProblem) -> None:
        """Send a problem if no response has started, and close."""
        if self._is_closed:
            return
        self._count(problem.code)
        if self._unanswered == 0 or (self._reading is ReadResult.BODY and self._is_next()):
            self.transport.write(_response(problem))
        self._close(self.transport.close)

    def _is_next(self) -> bool:
        """Whether the request that is being received is the next one to answer and has no response yet."""
        return self._unanswered == 1 and not self.cycle.response_started

    def drop(self, cause: str | None) -> None:
        """Close without a response. An ordinary end has no cause and is not counted."""
        self._count(cause)
        self._close(self.transport.abort if self.transport.get_write_buffer_size() else self.transport.close)

    def _count(self, cause: str | None) -> None:
        if cause is not None:
            self.registry.causes[cause] += 1

    def _close(self, how: Callable[[], None]) -> None:
        """Close and free the head. A response that is not fully sent is still checked for a stall, so the connection
        stays in the registry until its buffer is empty.
        """
        self._is_closed = True
        how()
        self.headers, self.url = [], b""
        if not self.transport.get_write_buffer_size():
            self.registry.remove(self)

    # Called by asyncio

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn narrows it, too
        """Add the connection, or refuse it at the limit."""
        super().connection_made(transport)
        now_s = self.loop.time()
        self.since_s = self._stalled_s = now_s
        self.peer = _network("" if self.client is None else self.client[0])
        if not self.registry.add(self):
            detail = f"all {self.registry.limit:,} connections of the server are in use"
            self.refuse(HttpProblem(503, "Unavailable", detail, code="server.full", hint="try again in a second"))

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection."""
        self._is_closed = True
        self.registry.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Pass the data to the parser piece by piece, and check the head after each."""
        for start in range(0, len(data), PIECE_BYTES):
            if self._is_closed or self._is_upgraded or self.transport.is_closing():
                return
            piece = data if len(data) <= PIECE_BYTES else data[start : start + PIECE_BYTES]
            self._head_bytes += len(piece)  # a head or body that starts in this piece counts from the next piece on
            super().data_received(piece)
            if self._reading is not ReadResult.NOTHING and not self._is_closed:
                self._check_head()

    def _check_head(self) -> None:
        if self._head_bytes > HTTP_HEAD_BYTES_MAX or len(self.headers) > HTTP_FIELDS_MAX:
            self.refuse(_too_large())

    def send_400_response(self, msg: str) -> None:
        """Refuse a request that is malformed, or that a callback below has refused."""
        malformed = HttpProblem(400, "Malformed request", msg, code="request.malformed")
        self.refuse(self._refusal or malformed)

    # Called by the parser. An exception stops it, and `send_400_response` follows.

    def on_message_begin(self) -> None:
        """Start a request."""
        if self._unanswered >= HTTP_PIPELINE_MAX:
            detail = f"{HTTP_PIPELINE_MAX} requests of this connection are waiting for responses"
            self._refusal = HttpProblem(429, "Too many requests", detail, code="request.pipeline")
            raise self._refusal
        super().on_message_begin()
        self.scope["extensions"] = {TRUST_EXTENSION: {"trust": self.trust}}
        self._reading, self._reading_s, self._head_bytes = ReadResult.HEAD, self.loop.time(), 0

    def on_headers_complete(self) -> None:
        """Start the application: the head is complete."""
        if len(self.headers) > HTTP_FIELDS_MAX or self._is_large():
            self._refusal = _too_large()
            raise self._refusal
        super().on_headers_complete()
        self._unanswered += 1
        self._reading, self._reading_s, self._head_bytes = ReadResult.BODY, self.loop.time(), 0
        self.headers = [*self.headers]  # the application does not get trailers
        if self.parser.should_upgrade():  # to an unsupported protocol
            self.cycle.keep_alive = False

    def _is_large(self) -> bool:
        if self._head_bytes + PIECE_BYTES <= HTTP_HEAD_BYTES_MAX:
            return False
        fields = sum(len(name) + len(value) + 4 for name, value in self.headers)
        return len(self.url) + fields > HTTP_HEAD_BYTES_MAX

    def on_body(self, body: bytes) -> None:
        """Receive a part of the body."""
        self._head_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Finish the request."""
        self._reading = ReadResult.NOTHING
        self._is_upgraded = self.parser.should_upgrade()  # what follows is not HTTP
        if self._unanswered == 0:  # the response was sent before
            self._wait()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Finish the response."""
        self._unanswered -= 1
        if self.cycle.response_complete:  # not the response of a pipelined request
            self.cycle.body = bytearray()  # free the part of the body that the application did not read
        if self._unanswered == 0:
            self._wait()
            self._reading_s = self.since_s
        super().on_response_complete()

    def _wait(self) -> None:
        self.since_s, self._is_new = self.loop.time(), False


def _too_large() -> HttpProblem:
    detail = f"the head of a request is limited to {HTTP_HEAD_BYTES_MAX:,} bytes and {HTTP_FIELDS_MAX} fields"
    hint = "send fewer or shorter header fields; delete the cookies of this site"
    return HttpProblem(431, "Header fields too large", detail, code="head.size", hint=hint)


def _timeout(what: str, limit_ms: int) -> HttpProblem:
    detail = f"the {what} of a request must arrive within {limit_ms // 1000} seconds"
    return HttpProblem(408, "Request timeout", detail, code=f"{what}.timeout")


def _response(problem: HttpProblem) -> bytes:
    status, content = problem_of(problem)
    body = encode(content)
    retry = "Retry-After: 1\r\n" if status in (429, 503) else ""
    head = (
        f"HTTP/1.1 {status} {problem.title}\r\nContent-Type: application/problem+json\r\n{retry}"
        f"Cache-Control: no-store\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


def _network(host: str) -> str:
    """The address that connections are counted by; for IPv6 the /64 network, which usually belongs to one machine."""
    if ":" not in host:
        return host
    try:
        address = IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    return str(address.ipv4_mapped) if address.ipv4_mapped is not None else address.packed[:8].hex()
