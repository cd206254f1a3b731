"""What every request passes and every response carries, whatever it is for.

Rule 1: the Host must be one of ours, or a page of another site could reach us by a name of its own (DNS rebinding).
There is one Host: of two, each reader might believe another.
Rule 2: a body that is too long is refused before it is read.
Rule 3: no page may run what does not come from here, be framed, or tell others where it was.
"""

from __future__ import annotations

from collections.abc import Iterable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from interlock.model.limits import PAYLOAD_BYTES_MAX
from interlock.web.errors import HttpProblem, problem_of, problem_response

BODY_BYTES_MAX = 2 * PAYLOAD_BYTES_MAX
"""Bytes of a request's body: a payload, and what stands around it."""

LENGTH_DIGITS_MAX = 18
"""Digits of a length: Python refuses to read some thousands of them."""

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


class Shield:
    """Stands before the application."""

    def __init__(self, app: ASGIApp, *, hosts: Iterable[str]) -> None:
        self._app = app
        self._hosts = frozenset(each.lower() for each in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        guarded = _guarded(send)
        try:
            self._check(scope)
        except HttpProblem as problem:
            await problem_response(*problem_of(problem))(scope, receive, guarded)
            return
        await self._app(scope, _bounded(receive), guarded)

    def _check(self, scope: Scope) -> None:
        headers = dict(scope["headers"])
        if sum(name == b"host" for name, _ in scope["headers"]) > 1:
            detail = "the request has more than one Host header field"
            raise HttpProblem(400, "The request is wrong", detail, code="host.repeated", hint="send one")
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if host not in self._hosts:
            hint = "open it by the address it printed, or name it with --origin"
            raise HttpProblem(421, "Misdirected", "this server has no such name", code="host.unknown", hint=hint)
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or len(length) > LENGTH_DIGITS_MAX or int(length) > BODY_BYTES_MAX:
            raise _too_long()


def _too_long() -> HttpProblem:
    detail = f"a body may have {BODY_BYTES_MAX:,} bytes"
    return HttpProblem(413, "Too long", detail, code="body.size")


def _bounded(receive: Receive) -> Receive:
    """Bodies without a length are counted as they come."""
    seen = 0

    async def bounded() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > BODY_BYTES_MAX:
            raise _too_long()
        return message

    return bounded


def _guarded(send: Send) -> Send:
    async def guarded(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *HEADERS]}
        await send(message)

    return guarded
