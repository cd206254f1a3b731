"""Messages to an HTTP endpoint, signed by Standard Webhooks: `https://hooks.example/orders`.

Rule 1: a message is a POST of its CloudEvent with `webhook-id`, `webhook-timestamp` and `webhook-signature`. The secret
is never part of an address: it stands in the environment, in INTERLOCK_WEBHOOK_SECRET or, with `#secret=NAME`, in NAME,
as `whsec_<base64>`. Several, apart by spaces, all sign: so a secret is replaced without a pause.
Rule 2: https only, or http to this very machine. No redirect is followed, no proxy asked, no credential sent. Only
addresses of the public internet are reached (`reach`), unless the webhook's address says `#private=1`.
Rule 3: 2xx is sent. 410 and 413: never. 429, 502, 503, 504 and silence: the endpoint is away. All else is a failure
that is tried again, and in the end a dead letter.
Rule 4: an attempt takes `SECONDS` at most, however slowly the endpoint answers; its answer is not shown.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import re
import socket
from base64 import b64decode, b64encode
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import sha256
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from ipaddress import ip_address
from ssl import SSLError, create_default_context
from threading import Event as Signal
from threading import Timer, local
from urllib.parse import SplitResult, parse_qsl, urlsplit

from interlock.buses.address import malformed_address, wire_id
from interlock.buses.ssrf_guard import PRIVATE_HINT, connect_public, is_public
from interlock.errors import (
    DeniedError,
    InterlockError,
    NotFoundError,
    RejectedError,
    UnavailableError,
    UsageError,
)
from interlock.model.journal.message import CONTENT_TYPE, Message, encode_message
from interlock.ports.clock import SystemClock
from interlock.ports.threads import THREADS, in_thread_or_here, start_thread

EXAMPLE = "https://hooks.example/orders"
SECRET_VARIABLE = "INTERLOCK_WEBHOOK_SECRET"  # noqa: S105 - the name of a variable
SECONDS = 15.0
CONNECT_SECONDS = 3.0
ANSWER_BYTES_MAX = 65_536
"""What is read of an answer; a longer one costs its connection."""

CONNECTIONS_MAX = 8
"""Connections to the endpoint: it is somebody's application, and no broker."""

SECRET_BYTES_MIN, SECRET_BYTES_MAX = 24, 64
"""What Standard Webhooks asks of a secret."""

_AWAY = frozenset({429, 502, 503, 504})
_TARGET = re.compile(r"[!-~]*")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def open_bus(url: str) -> WebhookBus:
    """The bus of `https://host/path?query`.

    `#secret=NAME` names the variable of the environment with the secret, `#private=1` allows addresses that are not of
    the public internet; both are joined by `&`.
    """
    try:
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.fragment, strict_parsing=bool(parts.fragment)))
        host, _ = parts.hostname, parts.port
        (host or "").encode("idna")  # as it is resolved: no label may be empty or too long
    except ValueError:
        raise malformed_address(EXAMPLE) from None
    if not host or set(options) - {"secret", "private"} or options.get("private", "0") not in {"0", "1"}:
        raise malformed_address(EXAMPLE)
    if _TARGET.fullmatch(parts.path + parts.query) is None:
        hint = "write a space as %20, and what is not ASCII as its bytes in UTF-8"
        message = "the path of a webhook's address has a character in it that no request carries"
        raise UsageError(message, code="bus.address", hint=hint)
    if parts.username is not None:
        hint = "requests are signed; take user and password out"
        raise UsageError("the address of a webhook carries no login", code="bus.address", hint=hint)
    if parts.scheme == "http" and not _is_loopback(host):
        raise UsageError(f"`{host}` is spoken to by https only", code="bus.address", hint="write https://")
    private = options.get("private") == "1"
    if not private and _is_refused(host):
        message = f"`{host}` is no address of the public internet"
        raise UsageError(message, code="bus.private", hint=PRIVATE_HINT)
    name = options.get("secret", SECRET_VARIABLE)
    if _NAME.fullmatch(name) is None:
        message = "`#secret=` names a variable of the environment; it is not the secret itself"
        raise UsageError(message, code="bus.secret", hint="export the secret, and write its variable's name")
    return WebhookBus(parts, secrets_of(os.environ.get(name, ""), name), private=private)


def secrets_of(text: str, name: str = "") -> tuple[bytes, ...]:
    """The secrets in a text, apart by spaces. Raises UsageError that never shows them."""
    found = []
    for each in text.split():
        try:
            secret = b64decode(each.removeprefix("whsec_"), validate=True)
        except ValueError:
            secret = b""
        if not SECRET_BYTES_MIN <= len(secret) <= SECRET_BYTES_MAX:
            message = (
                f"a secret in {name or 'the text'} is not {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes in base64"
            )
            raise UsageError(message, code="bus.secret", hint="such as the output of `openssl rand -base64 32`")
        found.append(secret)
    if not found:
        raise UsageError(f"there is no secret in {name}", code="bus.secret", hint=f"export {name}=whsec_...")
    return tuple(found)


def signature(secrets: tuple[bytes, ...], message_id: str, seconds: int, body: bytes) -> str:
    """The header `webhook-signature`: one `v1` for each secret."""
    signed = f"{message_id}.{seconds}.".encode() + body
    found = (hmac.new(secret, signed, sha256).digest() for secret in secrets)
    return " ".join(f"v1,{b64encode(each).decode()}" for each in found)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_refused(host: str) -> bool:
    """Whether an address says by itself that it is not of the public internet; a name is judged when it is reached."""
    try:
        return not is_public(host)
    except ValueError:
        return host == "localhost"


class WebhookBus:
    """An HTTP endpoint. `private`: it may be at an address that is not of the public internet."""

    def __init__(self, parts: SplitResult, secrets: tuple[bytes, ...], *, private: bool = False) -> None:
        self._parts = parts
        self._secrets = secrets
        self._private = private
        self._context = create_default_context() if parts.scheme == "https" else None
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._place = f"{parts.scheme}://{parts.netloc}"
        self._clock = SystemClock()
        self._own = local()
        self._connections: set[HTTPConnection] = set()
        self._threads = ThreadPoolExecutor(CONNECTIONS_MAX, thread_name_prefix="interlock-webhook")

    async def publish(self, message: Message) -> None:
        """Give a message to the endpoint."""
        loop = asyncio.get_running_loop()
        try:
            status = await loop.run_in_executor(self._threads, self._posted, message)
        except RuntimeError as error:  # the system refuses a thread, or the bus was closed meanwhile
            raise UnavailableError(f"nothing can be sent to {self._place} now: {error}", code=THREADS) from error
        except (OSError, HTTPException) as error:
            what = "its certificate is not good" if isinstance(error, SSLError) else type(error).__name__
            raise UnavailableError(f"{self._place} does not answer: {what}", code="bus.away") from error
        if not 200 <= status < 300:
            raise self._explained(status)

    def _posted(self, message: Message) -> int:
        """The status of one POST. Waits: in a thread of ours, on a connection of that thread's own."""
        body, message_id = encode_message(message), wire_id(message)
        seconds = self._clock.now_ms() // 1000
        headers = {
            "Content-Type": CONTENT_TYPE,
            "User-Agent": "interlock",
            "webhook-id": message_id,
            "webhook-timestamp": str(seconds),
            "webhook-signature": signature(self._secrets, message_id, seconds, body),
        }
        fresh = getattr(self._own, "connection", None) is None
        try:
            return self._asked(body, headers)
        except (ConnectionError, HTTPException):
            if fresh:
                raise
            return self._asked(body, headers)  # the endpoint had closed a connection that was kept

    def _asked(self, body: bytes, headers: dict[str, str]) -> int:
        connection = self._connection()
        late = Signal()
        ending = Timer(SECONDS, _cut, (connection, late))
        ending.daemon = True
        start_thread(ending)
        keep = False
        try:
            if connection.sock is None:
                self._connect(connection, late)
            if late.is_set():  # there was nothing to cut yet
                raise TimeoutError(SECONDS)
            connection.sock.settimeout(SECONDS)
            connection.request("POST", self._target, body, headers)
            answer = connection.getresponse()
            if late.is_set():  # headers that end where we cut them look whole
                raise TimeoutError(SECONDS)
            keep = _is_whole(answer)
            return answer.status
        finally:
            ending.cancel()
            if not keep:
                self._own.connection = None
                self._connections.discard(connection)
                connection.close()

    def _connection(self) -> HTTPConnection:
        found: HTTPConnection | None = getattr(self._own, "connection", None)
        if found is None:
            host = str(self._parts.hostname)
            if self._context is not None:
                found = HTTPSConnection(host, self._parts.port, context=self._context)
            else:
                found = HTTPConnection(host, self._parts.port)
            self._own.connection = found
            self._connections.add(found)
        return found

    def _connect(self, connection: HTTPConnection, late: Signal) -> None:
        """Connect it to an address that may be reached; by https, whoever is there must be who the name says."""
        host = str(self._parts.hostname)
        connection.sock = connect_public(
            host, connection.port, seconds=CONNECT_SECONDS, private=self._private, late=late, within=SECONDS
        )
        if self._context is not None:
            connection.sock = self._context.wrap_socket(connection.sock, server_hostname=host)

    def _explained(self, status: int) -> InterlockError:
        """What an answer means for whoever waits."""
        if status in _AWAY:
            return UnavailableError(f"{self._place} takes nothing now: {status}", code="bus.away")
        if status == 410:
            hint = "give the bus another address, then retry what is dead"
            return RejectedError(f"{self._place} is gone for good: 410", code="bus.gone", hint=hint)
        if status == 413:
            return RejectedError(f"the message is too large for {self._place}", code="bus.size", hint="emit less")
        if 300 <= status < 400:
            message = f"{self._place} answers {status}: redirects are not followed"
            return DeniedError(message, code="bus.redirect", hint="write the address where it leads")
        if status in {401, 403}:
            hint = "the receiver must know the secret that signs"
            return DeniedError(f"{self._place} denies it: {status}", code="bus.denied", hint=hint)
        if status == 404:
            return NotFoundError(f"there is nothing at {self._place}: 404", code="bus.stream", hint="check the address")
        return DeniedError(f"{self._place} answers {status}", code="bus.refused", hint="look at the receiver's own log")

    async def close(self) -> None:
        """Let go of the connections; what is under way ends first."""
        await in_thread_or_here(self._threads.shutdown)
        for each in list(self._connections):
            each.close()
        self._connections.clear()


def _is_whole(answer: HTTPResponse) -> bool:
    """Whether an answer ends where it says, so that its connection can be kept; its status has been said in any case.

    A socket that was cut is reset by whatever still comes.
    """
    try:
        rest = answer.read(ANSWER_BYTES_MAX + 1)
    except (OSError, HTTPException):
        return False
    return len(rest) <= ANSWER_BYTES_MAX and not answer.will_close


def _cut(connection: HTTPConnection, late: Signal) -> None:
    """End an attempt that takes too long: whoever waits on the socket is woken."""
    late.set()
    with suppress(OSError, AttributeError):
        connection.sock.shutdown(socket.SHUT_RDWR)
