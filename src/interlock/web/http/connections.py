"""Connections of the HTTP server: how many there are, how long they last, and how large the head of a request is.

uvicorn's reader has none of these limits. It keeps every byte of a head, however long, and every connection, however
slow. `LimitedProtocol` adds them; parsing, and with it the protection against request smuggling, stays uvicorn's.

Rule 1: a connection waits for a request, receives one, or answers one. Only an answer may take as long as it needs.
Rule 2: a head is limited in bytes, fields and time, a body in time. What follows a chunked body counts as a head.
Rule 3: when there is no room for a new connection, some that answer nothing are closed: first those that have not
shown a valid key or login, of these the ones from the address with the most connections, of these the ones that have
waited longest. A server whose connections all answer refuses the new one.
Rule 4: responses that wait for their readers are limited in time and in all of their bytes.
Rule 5: nothing is logged for a single connection. Causes are counted, and logged together every ten seconds.

Where uvicorn is given a certificate, the limits apply behind the handshake, which asyncio limits to a minute.
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

from interlock.model.codec import encode
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
"""Bytes that the parser is given at once: a head is checked between two pieces. asyncio reads up to 256 KiB."""

SHED_PART = 16
"""One in so many connections is closed when there is no room: looking for them takes a walk through all."""

_log = logging.getLogger("interlock.web")
_http_log = logging.getLogger("interlock.web.http")
_http_log.setLevel(logging.WARNING)  # uvicorn traces every connection below its own lowest level


class Reading(Enum):
    """What a connection is receiving."""

    NOTHING = auto()
    HEAD = auto()
    BODY = auto()


def descriptors_max() -> int:
    """How many descriptors this process may have open."""
    most = HTTP_CONNECTIONS_MAX + HTTP_DESCRIPTORS_RESERVED
    try:
        import resource  # Windows has no such module, and no such limit
    except ImportError:
        return most
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if soft == resource.RLIM_INFINITY else soft


class Connections:
    """The connections of one server, in a process that may have so many descriptors open.

    `causes`: how many were closed or refused, by cause. `most`: how many there may be at once. `accepts`: how many are
    accepted in a row; up to four rows are accepted before the first of them is counted here, and they take half of the
    reserve.
    """

    def __init__(self, descriptors: int | None = None) -> None:
        given = descriptors_max() if descriptors is None else descriptors
        reserved = min(HTTP_DESCRIPTORS_RESERVED, given // 2)
        self.most = max(1, min(HTTP_CONNECTIONS_MAX, given - reserved))
        self.accepts = max(1, min(HTTP_ACCEPTS_MAX, reserved // 8))
        self.causes: Counter[str] = Counter()
        self._open: set[LimitedProtocol] = set()
        self._peers: Counter[str] = Counter()
        self._logged: Counter[str] = Counter()
        self._logged_s = 0.0
        self._is_shedding = False

    def protocol(self) -> type[HttpToolsProtocol]:
        """The class that uvicorn makes of each connection of this server."""
        return type("LimitedHttpToolsProtocol", (LimitedProtocol,), {"registry": self})

    def add(self, connection: LimitedProtocol) -> bool:
        """Take in a connection, closing others if need be; False when there is no room."""
        if len(self._open) >= self.most:
            self.shed()
        if len(self._open) >= self.most:
            return False
        self._open.add(connection)
        self._peers[connection.peer] += 1
        return True

    def remove(self, connection: LimitedProtocol) -> None:
        """Forget a connection."""
        if connection in self._open:
            self._open.remove(connection)
            self._peers[connection.peer] -= 1
            if not self._peers[connection.peer]:
                del self._peers[connection.peer]

    def shed(self) -> None:
        """Close some of the connections that answer nothing (Rule 3)."""
        able = [each for each in self._open if not each.is_answering]
        able.sort(key=lambda each: (each.is_trusted, -self._peers[each.peer], each.since_s))
        for each in able[: max(1, self.most // SHED_PART)]:
            each.drop("shed")

    def sweep(self, now_s: float) -> None:
        """Close what has taken too long, and log what was counted. Called about once a second."""
        for each in [*self._open]:
            each.check_time(now_s)
        self._check_unread()
        new = self.causes - self._logged
        if new and now_s - self._logged_s >= LOG_REPEAT_MS / 1000:
            causes = ", ".join(f"{name} {count:,}" for name, count in sorted(new.items()))
            _log.warning("connections closed or refused", extra={"causes": causes, "open": len(self._open)})
            self._logged, self._logged_s = self.causes.copy(), now_s

    def _check_unread(self) -> None:
        """Close connections that leave the most unread while all together leave too much (Rule 4)."""
        unread = {each: each.transport.get_write_buffer_size() for each in self._open}
        total = sum(unread.values())
        for each in sorted(unread, key=lambda one: -unread[one]):
            if total <= HTTP_UNREAD_BYTES_MAX:
                return
            total -= unread[each]
            each.drop("unread")

    def on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> bool:
        """Whether an error of the event loop was about accepting connections, and is dealt with: where descriptors
        have run out, connections are closed, and asyncio accepts again a second later.
        """
        error = context.get("exception")
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
            self.causes["no_descriptors"] += 1
            if not self._is_shedding:  # asyncio reports it once for each of the connections that wait
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
        self._reading = Reading.NOTHING
        self._reading_s = 0.0
        self._head_bytes = 0
        self._unanswered = 0
        self._is_fresh = True
        self._is_closed = False
        self._is_deaf = False
        self._refusal: HttpProblem | None = None
        self._buffered = 0
        self._stalled_s = 0.0

    # What the registry asks

    @property
    def is_answering(self) -> bool:
        """Whether a whole request waits for its response."""
        return self._unanswered > (1 if self._reading is Reading.BODY else 0)

    def trust(self) -> None:
        """It has shown a valid key or login."""
        self.is_trusted = True

    def check_time(self, now_s: float) -> None:
        """Close it if it has taken too long (Rule 2)."""
        self._check_stall(now_s)
        if self.flow.read_paused:  # the server makes the client wait, and not the other way round
            self._reading_s = now_s
        took_ms = (now_s - self._reading_s) * 1000
        if self._reading is Reading.HEAD:
            if took_ms > HTTP_HEAD_MS_MAX:
                self.refuse(_timeout("head", HTTP_HEAD_MS_MAX))
        elif self._reading is Reading.BODY:
            if self._unanswered == 0:
                if took_ms > HTTP_LINGER_MS_MAX and not self._is_closed:
                    self.drop("linger")
            elif took_ms > HTTP_BODY_MS_MAX:
                self.refuse(_timeout("body", HTTP_BODY_MS_MAX))
        elif self._unanswered == 0:
            most_ms = HTTP_HEAD_MS_MAX if self._is_fresh else HTTP_IDLE_MS_MAX
            if (now_s - self.since_s) * 1000 > most_ms and not self._is_closed:
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
        """Answer a problem where no response has begun, and close."""
        if self._is_closed:
            return
        self._count(problem.code)
        if self._unanswered == 0 or (self._reading is Reading.BODY and self._is_next()):
            self.transport.write(_response(problem))
        self._close(self.transport.close)

    def _is_next(self) -> bool:
        """Whether the request that is received is the next one to be answered, and has no response yet."""
        return self._unanswered == 1 and not self.cycle.response_started

    def drop(self, cause: str | None) -> None:
        """Close without an answer; None is an ordinary end, which is not counted."""
        self._count(cause)
        self._close(self.transport.abort if self.transport.get_write_buffer_size() else self.transport.close)

    def _count(self, cause: str | None) -> None:
        if cause is not None:
            self.registry.causes[cause] += 1

    def _close(self, how: Callable[[], None]) -> None:
        """Close, and free what was kept of a head. A response that waits for its reader is still watched for a stall,
        so the registry forgets the connection only when nothing is left to send.
        """
        self._is_closed = True
        how()
        self.headers, self.url = [], b""
        if not self.transport.get_write_buffer_size():
            self.registry.remove(self)

    # What asyncio calls

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Take in the connection, or refuse it where there is no room."""
        super().connection_made(transport)
        now_s = self.loop.time()
        self.since_s = self._stalled_s = now_s
        self.peer = _network("" if self.client is None else self.client[0])
        if not self.registry.add(self):
            detail = f"all {self.registry.most:,} connections of this server are in use"
            self.refuse(HttpProblem(503, "Not now", detail, code="server.full", hint="try again in a second"))

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._is_closed = True
        self.registry.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Give the parser what came, piece by piece, and check the head between two of them."""
        for start in range(0, len(data), PIECE_BYTES):
            if self._is_closed or self._is_deaf or self.transport.is_closing():
                return
            piece = data if len(data) <= PIECE_BYTES else data[start : start + PIECE_BYTES]
            self._head_bytes += len(piece)  # where a head or body begins in this piece, it is counted from the next on
            super().data_received(piece)
            if self._reading is not Reading.NOTHING and not self._is_closed:
                self._check_head()

    def _check_head(self) -> None:
        if self._head_bytes > HTTP_HEAD_BYTES_MAX or len(self.headers) > HTTP_FIELDS_MAX:
            self.refuse(_too_large())

    def send_400_response(self, msg: str) -> None:
        """Answer a request that does not parse, or that a callback below has refused."""
        malformed = HttpProblem(400, "Malformed request", msg, code="request.malformed")
        self.refuse(self._refusal or malformed)

    # What the parser calls. An exception stops it, and `send_400_response` follows.

    def on_message_begin(self) -> None:
        """A request begins."""
        if self._unanswered >= HTTP_PIPELINE_MAX:
            detail = f"{HTTP_PIPELINE_MAX} requests of this connection wait for their responses"
            self._refusal = HttpProblem(429, "Too many requests", detail, code="request.pipeline")
            raise self._refusal
        super().on_message_begin()
        self.scope["extensions"] = {TRUST_EXTENSION: {"trust": self.trust}}
        self._reading, self._reading_s, self._head_bytes = Reading.HEAD, self.loop.time(), 0

    def on_headers_complete(self) -> None:
        """The head is complete: the application is started."""
        if len(self.headers) > HTTP_FIELDS_MAX or self._is_large():
            self._refusal = _too_large()
            raise self._refusal
        super().on_headers_complete()
        self._unanswered += 1
        self._reading, self._reading_s, self._head_bytes = Reading.BODY, self.loop.time(), 0
        self.headers = [*self.headers]  # fields behind a chunked body are no headers: the application gets none
        if self.parser.should_upgrade():  # to a protocol that is not spoken here
            self.cycle.keep_alive = False

    def _is_large(self) -> bool:
        if self._head_bytes + PIECE_BYTES <= HTTP_HEAD_BYTES_MAX:
            return False
        fields = sum(len(name) + len(value) + 4 for name, value in self.headers)
        return len(self.url) + fields > HTTP_HEAD_BYTES_MAX

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        self._head_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is complete."""
        self._reading = Reading.NOTHING
        self._is_deaf = self.parser.should_upgrade()  # then what follows is not a request
        if self._unanswered == 0:  # it had its response before
            self._wait()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """The response is complete."""
        self._unanswered -= 1
        if self.cycle.response_complete:  # and not one of a request that came ahead of its turn
            self.cycle.body = bytearray()  # what the application did not want of a body is not kept
        if self._unanswered == 0:
            self._wait()
            self._reading_s = self.since_s
        super().on_response_complete()

    def _wait(self) -> None:
        self.since_s, self._is_fresh = self.loop.time(), False


def _too_large() -> HttpProblem:
    detail = f"the head of a request may have {HTTP_HEAD_BYTES_MAX:,} bytes and {HTTP_FIELDS_MAX} fields"
    hint = "send fewer or shorter header fields; delete the cookies of this site"
    return HttpProblem(431, "Header fields too large", detail, code="head.size", hint=hint)


def _timeout(what: str, most_ms: int) -> HttpProblem:
    detail = f"the {what} of a request must arrive within {most_ms // 1000} seconds"
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
    """The address that connections are counted by: of IPv6 the network of 64 bits, which one machine has for itself."""
    if ":" not in host:
        return host
    try:
        address = IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    return str(address.ipv4_mapped) if address.ipv4_mapped is not None else address.packed[:8].hex()
