"""Checks and headers for every request and response.

Rule 1: the Host header must name this server; otherwise a page of another site could reach it under its own name
(DNS rebinding). There must be exactly one Host header, because proxies and servers may pick different ones.
Rule 2: a body that is too large is refused before it is read.
Rule 3: pages run only our own scripts, cannot be framed, and send no referrer.
"""

from __future__ import annotations

from collections.abc import Iterable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from interlock.model.limits import PAYLOAD_BYTES_MAX
from interlock.web.http.errors import HttpProblem, problem_of, problem_response

BODY_BYTES_MAX = 2 * PAYLOAD_BYTES_MAX
"""Bytes of a request body: a payload and the other fields of a request."""

LENGTH_DIGITS_MAX = 18
"""Digits of a Content-Length: Python refuses to parse some thousands of them."""

POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    b"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = (
    (b"content-security-policy", POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
)


class SecurityMiddleware:
    """Checks the Host and the body size, and adds the security headers."""

    def __init__(self, app: ASGIApp, *, hosts: Iterable[str]) -> None:
        self._app = app
        self._hosts = frozenset(each.lower() for each in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        send = _with_headers(send)
        try:
            self._check(scope)
        except HttpProblem as problem:
            await problem_response(*problem_of(problem))(scope, receive, send)
            return
        await self._app(scope, _limited(receive), send)

    def _check(self, scope: Scope) -> None:
        headers = dict(scope["headers"])
        if sum(name == b"host" for name, _ in scope["headers"]) > 1:
            detail = "the request has more than one Host header"
            raise HttpProblem(400, "Invalid request", detail, code="host.repeated", hint="send exactly one")
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if host not in self._hosts:
            hint = "open the address that the server printed, or add this one with --origin"
            raise HttpProblem(421, "Misdirected request", "unknown host name", code="host.unknown", hint=hint)
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or len(length) > LENGTH_DIGITS_MAX or int(length) > BODY_BYTES_MAX:
            raise _too_large()


def _too_large() -> HttpProblem:
    detail = f"the body is limited to {BODY_BYTES_MAX:,} bytes"
    return HttpProblem(413, "Body too large", detail, code="body.size")


def _limited(receive: Receive) -> Receive:
    """Limit bodies without a Content-Length as they arrive."""
    size = 0

    async def limited() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > BODY_BYTES_MAX:
            raise _too_large()
        return message

    return limited


def _with_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *HEADERS]}
        await send(message)

    return send_with_headers
