"""Messages to an HTTP endpoint, signed by Standard Webhooks: `https://hooks.example/orders`.

Rule 1: a message is a POST of its CloudEvent with `webhook-id`, `webhook-timestamp` and `webhook-signature`. The id is
percent-encoded, so that no byte can move between id, time and body. It is signed when it is sent, not when it is
stored: one that waited for an hour would be too old. The secret is never part of an address. It is in the environment,
in INTERLOCK_WEBHOOK_SECRET or, with `#secret=NAME`, in NAME, as `whsec_<base64>` (shared) or `whsk_<base64>` (Ed25519);
several are separated by spaces. Or, with `#keys=FILE`, in a file (`signing_keys`), where each has its time. All that
are valid sign, so that a secret can be replaced without interruption.
Rule 2: https only, or http to this machine. Redirects are not followed, proxies not used, credentials not sent. Only
public addresses are contacted (`ssrf_guard`), unless the webhook's address says `#private=1`.
Rule 3: 2xx means sent; 410 and 413 that the message is never accepted; 429, 502, 503, 504 and no response that the
endpoint is unreachable. Any other status is a failure that is retried, and finally a dead letter.
Rule 4: an attempt takes `SECONDS` at most, however slowly the endpoint responds; its response is not shown.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from ipaddress import ip_address
from pathlib import Path
from ssl import SSLError, create_default_context
from threading import Event as Signal
from threading import Timer, local
from urllib.parse import SplitResult, parse_qsl, urlsplit

from interlock.buses.address import malformed_address, wire_id
from interlock.buses.signing_keys import FixedKeys, SigningKeyFile, SigningKeys
from interlock.buses.ssrf_guard import PRIVATE_HINT, connect_public, is_public
from interlock.errors import (
    DeniedError,
    InterlockError,
    NotFoundError,
    RejectedError,
    UnavailableError,
    UsageError,
)
from interlock.model.journal.cause import is_traceparent
from interlock.model.journal.message import CONTENT_TYPE, Message, encode_message
from interlock.model.webhook_signature import SigningKey, parse_key, sign
from interlock.ports.clock import SystemClock
from interlock.ports.threads import THREADS, in_thread_or_here, start_thread

EXAMPLE = "https://hooks.example/orders"
SECRET_VARIABLE = "INTERLOCK_WEBHOOK_SECRET"  # noqa: S105 - the name of a variable
SECONDS = 15.0
CONNECT_SECONDS = 3.0
RESPONSE_BYTES_MAX = 65_536
"""Bytes that are read of a response; after a longer one the connection is closed."""

CONNECTIONS_MAX = 8
"""Connections to the endpoint: it is an application, not a broker."""

_UNREACHABLE = frozenset({429, 502, 503, 504})
_TARGET = re.compile(r"[!-~]*")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def open_bus(url: str) -> WebhookBus:
    """Return the bus of `https://host/path?query`.

    `#secret=NAME` names the environment variable with the secret, `#private=1` allows private addresses; both can be
    joined by `&`.
    """
    try:
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.fragment, strict_parsing=bool(parts.fragment)))
        host, _ = parts.hostname, parts.port
        (host or "").encode("idna")  # as it is resolved: an empty or too long label raises
    except ValueError:
        raise malformed_address(EXAMPLE) from None
    if not host or set(options) - {"secret", "private", "keys"} or options.get("private", "0") not in {"0", "1"}:
        raise malformed_address(EXAMPLE)
    if _TARGET.fullmatch(parts.path + parts.query) is None:
        hint = "percent-encode spaces and characters outside ASCII"
        message = "the path of the webhook's address contains an invalid character"
        raise UsageError(message, code="bus.address", hint=hint)
    if parts.username is not None:
        hint = "remove user and password; requests are signed"
        raise UsageError("the address of a webhook must not contain a login", code="bus.address", hint=hint)
    if parts.scheme == "http" and not _is_loopback(host):
        raise UsageError(f"http is not allowed for `{host}`", code="bus.address", hint="write https://")
    private = options.get("private") == "1"
    if not private and _is_refused(host):
        message = f"`{host}` is not a public address"
        raise UsageError(message, code="bus.private", hint=PRIVATE_HINT)
    if "keys" in options:
        if "secret" in options:
            raise UsageError("`#keys=` and `#secret=` exclude each other", code="bus.address", hint="name one of them")
        return WebhookBus(parts, SigningKeyFile(Path(options["keys"])), private=private)
    name = options.get("secret", SECRET_VARIABLE)
    if _NAME.fullmatch(name) is None:
        message = "`#secret=` must be the name of an environment variable, not the secret itself"
        raise UsageError(message, code="bus.secret", hint="export the secret, and write the name of its variable")
    return WebhookBus(parts, FixedKeys(keys_of(os.environ.get(name, ""), name)), private=private)


def keys_of(text: str, name: str = "") -> tuple[SigningKey, ...]:
    """Return the keys in a text, separated by spaces. The UsageError for an invalid one never shows it."""
    found = tuple(parse_key(each, name or "the text") for each in text.split())
    if not any(each.signs for each in found):
        raise UsageError(
            f"the environment variable {name} has no secret", code="bus.secret", hint=f"export {name}=whsec_..."
        )
    return found


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_refused(host: str) -> bool:
    """Whether a literal address is not public; a name is checked when it is resolved."""
    try:
        return not is_public(host)
    except ValueError:
        return host == "localhost"


class WebhookBus:
    """An HTTP endpoint. `private`: its address may be private."""

    def __init__(self, parts: SplitResult, keys: SigningKeys, *, private: bool = False) -> None:
        self._parts = parts
        self._keys = keys
        self._private = private
        self._context = create_default_context() if parts.scheme == "https" else None
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._place = f"{parts.scheme}://{parts.netloc}"
        self._clock = SystemClock()
        self._own = local()
        self._connections: set[HTTPConnection] = set()
        self._threads = ThreadPoolExecutor(CONNECTIONS_MAX, thread_name_prefix="interlock-webhook")

    async def publish(self, message: Message) -> None:
        """Send a message to the endpoint."""
        loop = asyncio.get_running_loop()
        try:
            status = await loop.run_in_executor(self._threads, self._post, message)
        except RuntimeError as error:  # the system refuses a thread, or the bus was closed meanwhile
            raise UnavailableError(f"cannot send to {self._place} now: {error}", code=THREADS) from error
        except (OSError, HTTPException) as error:
            what = "its certificate is invalid" if isinstance(error, SSLError) else type(error).__name__
            raise UnavailableError(f"{self._place} does not respond: {what}", code="bus.away") from error
        if not 200 <= status < 300:
            raise self._translate_status(status)

    def _post(self, message: Message) -> int:
        """Return the status of one POST. It blocks, in a thread of the pool, on the connection of that thread."""
        body, message_id = encode_message(message), wire_id(message, safe="")
        seconds = self._clock.now_ms() // 1000
        headers = {
            "Content-Type": CONTENT_TYPE,
            "User-Agent": "interlock",
            "webhook-id": message_id,
            "webhook-timestamp": str(seconds),
            "webhook-signature": self._sign(message_id, seconds, body),
        }
        if is_traceparent(message.trace):
            headers["traceparent"] = str(message.trace)
        is_new = getattr(self._own, "connection", None) is None
        try:
            return self._request(body, headers)
        except (ConnectionError, HTTPException):
            if is_new:
                raise
            return self._request(body, headers)  # the endpoint had closed the kept connection

    def _sign(self, message_id: str, seconds: int, body: bytes) -> str:
        """Return the signatures. Raises DeniedError if no key is valid now: an unsigned message is never sent."""
        found = sign(self._keys.current(), message_id, seconds, body)
        if not found:
            hint = "`interlock keys rotate --signing FILE` adds a secret to a file"
            raise DeniedError(f"no secret for {self._place} is valid now", code="bus.unsigned", hint=hint)
        return found

    def _request(self, body: bytes, headers: dict[str, str]) -> int:
        connection = self._connection()
        attempt = _Attempt()
        timer = Timer(SECONDS, attempt.cut)
        timer.daemon = True
        start_thread(timer)
        keep = False
        try:
            if connection.sock is None:
                self._connect(connection, attempt.late)
            attempt.socket = connection.sock
            if attempt.late.is_set():  # there was no socket to close yet
                raise TimeoutError(SECONDS)
            connection.sock.settimeout(SECONDS)
            connection.request("POST", self._target, body, headers)
            response = connection.getresponse()
            if attempt.late.is_set():  # headers that were cut off look complete
                raise TimeoutError(SECONDS)
            keep = _is_complete(response)
            return response.status
        finally:
            timer.cancel()
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
        """Connect it to a permitted address; with https, the certificate must match the name."""
        host = str(self._parts.hostname)
        connection.sock = connect_public(
            host, connection.port, seconds=CONNECT_SECONDS, private=self._private, late=late, within=SECONDS
        )
        if self._context is not None:
            connection.sock = self._context.wrap_socket(connection.sock, server_hostname=host)

    def _translate_status(self, status: int) -> InterlockError:
        """Return the error that a status means for the caller."""
        if status in _UNREACHABLE:
            return UnavailableError(f"{self._place} accepts no messages now: {status}", code="bus.away")
        if status == 410:
            hint = "change the address of the bus, then retry the dead letters"
            return RejectedError(f"{self._place} no longer exists: 410", code="bus.gone", hint=hint)
        if status == 413:
            return RejectedError(
                f"the message is too large for {self._place}", code="bus.size", hint="emit smaller messages"
            )
        if 300 <= status < 400:
            message = f"{self._place} returned {status}: redirects are not followed"
            return DeniedError(message, code="bus.redirect", hint="use the address that it redirects to")
        if status in {401, 403}:
            hint = "check that the receiver has the signing secret"
            return DeniedError(f"{self._place} denies access: {status}", code="bus.denied", hint=hint)
        if status == 404:
            return NotFoundError(f"{self._place} was not found: 404", code="bus.stream", hint="check the address")
        return DeniedError(f"{self._place} returned {status}", code="bus.refused", hint="check the receiver's log")

    async def close(self) -> None:
        """Close the connections, after pending requests have ended."""
        await in_thread_or_here(self._threads.shutdown)
        for each in list(self._connections):
            each.close()
        self._connections.clear()


def _is_complete(response: HTTPResponse) -> bool:
    """Whether a response was read to its end, so that its connection can be kept; its status is valid in any case.

    A socket that was shut down is reset by further data.
    """
    try:
        rest = response.read(RESPONSE_BYTES_MAX + 1)
    except (OSError, HTTPException):
        return False
    return len(rest) <= RESPONSE_BYTES_MAX and not response.will_close


class _Attempt:
    """One attempt, which a timer ends when it takes too long.

    It has the socket itself: a connection forgets its own as soon as the endpoint says that it will close it, and the
    rest of the response could then take as long as the endpoint likes.
    """

    def __init__(self) -> None:
        self.late = Signal()
        self.socket: socket.socket | None = None

    def cut(self) -> None:
        """End the attempt: shutting the socket down wakes the thread that waits on it."""
        self.late.set()
        if self.socket is not None:
            with suppress(OSError):
                self.socket.shutdown(socket.SHUT_RDWR)
