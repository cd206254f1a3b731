"""Endpoints: one table row per endpoint gives both its route and its part of the OpenAPI document.

Rule 1: query, body and result of an endpoint are msgspec types. A request that does not match is answered with a
problem that names the place; the handler is not called.
Rule 2: a request with a session cookie must also carry the session's CSRF token: browsers send a cookie to every port
of a host, and the server on another port must not be able to use it. A write with a cookie must carry our own Origin,
too. A request with an API key needs neither, because no browser adds a key automatically.
Rule 3: the body is read after the caller is authenticated; where no authentication is needed, it is short.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from interlock.errors import DeniedError, UsageError
from interlock.model.codec import UNDECODABLE
from interlock.model.limits import HTTP_LOGIN_BYTES_MAX
from interlock.trust.disclosure import is_withheld
from interlock.web.auth import Session, User
from interlock.web.http.console import Console
from interlock.web.http.errors import HttpProblem, problem_of, problem_response

BASE = "/api/v1"
CSRF_HEADER = "x-interlock-csrf"
TRUST_EXTENSION = "interlock.trust"
"""The ASGI extension that reports to the server that a connection has shown a valid key or session."""

_log = logging.getLogger("interlock.web")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
    """A request that is authenticated, authorized and decoded. `session` is None for a request with an API key."""

    console: Console
    http: Request
    user: User
    session: Session | None
    query: Any
    body: Any

    def path(self, name: str) -> str:
        """A parameter of the path."""
        return str(self.http.path_params[name])

    def may_see(self, kind: str) -> bool:
        """Whether the user may see a kind."""
        return self.console.may_see(self.user, kind)

    def may_see_entity(self, entity: str) -> bool:
        """Whether the user may see the kind of an entity."""
        return self.may_see(entity.partition("/")[0])


Handler = Callable[[RequestContext], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One endpoint. With `right=None` it needs no authentication. With `answer=None` the handler returns a response.

    `read_only`: a POST that changes nothing in the store, so a read-only console offers it, too.
    """

    method: str
    path: str
    summary: str
    handler: Handler
    right: str | None = "read"
    answer: Any = None
    query: Any = None
    body: Any = None
    media: str = "application/json"
    read_only: bool = False

    @property
    def is_write(self) -> bool:
        """Whether the method is not GET."""
        return self.method != "GET"


class EndpointApp:
    """An endpoint as an ASGI application. It turns every error into a response."""

    def __init__(self, console: Console, endpoint: Endpoint) -> None:
        self._console = console
        self._endpoint = endpoint
        self._headers = [(b"content-type", endpoint.media.encode()), (b"cache-control", b"no-store")]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            answer = await _handle(self._console, self._endpoint, Request(scope, receive))
        except Exception as error:  # noqa: BLE001 - the edge: every error becomes a response
            status, body = problem_of(error)
            if body["code"] == "internal":
                _log.exception("a request failed", extra={"endpoint": self._endpoint.path})
            elif is_withheld(error):
                _log.info("a request was refused", extra={"code": body["code"], "error": str(error)})
            answer = problem_response(status, body)
        if isinstance(answer, Response):
            await answer(scope, receive, send)
            return
        headers = [(b"content-length", b"%d" % len(answer)), *self._headers]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})


def route(console: Console, endpoint: Endpoint) -> Route:
    """Return the route of an endpoint."""
    return Route(BASE + endpoint.path, EndpointApp(console, endpoint), methods=[endpoint.method])


async def _handle(console: Console, endpoint: Endpoint, http: Request) -> Response | bytes:
    """Return the handler's response, or its result as JSON."""
    user, session = _authorize(console, endpoint, http)
    if endpoint.is_write and console.read_only and not endpoint.read_only:
        raise DeniedError("read-only console", code="console.read_only", hint="start it without --read-only")
    request = RequestContext(
        console=console,
        http=http,
        user=user,
        session=session,
        query=None if endpoint.query is None else _decode_query(http, endpoint.query),
        body=None if endpoint.body is None else _decode_body(await _read_body(http, endpoint), endpoint.body),
    )
    await console.learn_definitions()
    answer = await endpoint.handler(request)
    return answer if isinstance(answer, Response) else msgspec.json.encode(answer)


async def _read_body(http: Request, endpoint: Endpoint) -> bytes:
    """Return the body, whose size the middleware limits. Raises HttpProblem if it is incomplete or too large."""
    pieces, size = [], 0
    while True:
        message = await http.receive()
        if message["type"] == "http.disconnect":
            raise HttpProblem(400, "Incomplete body", "the connection closed before the body ended", code="body.cut")
        piece = message.get("body", b"")
        size += len(piece)
        if endpoint.right is None and size > HTTP_LOGIN_BYTES_MAX:
            detail = f"the body of this request is limited to {HTTP_LOGIN_BYTES_MAX:,} bytes"
            raise HttpProblem(413, "Body too large", detail, code="body.size")
        pieces.append(piece)
        if not message.get("more_body", False):
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)


ANONYMOUS = User(principal={"id": "", "kind": "user", "roles": []}, rights=frozenset())


def _authorize(console: Console, endpoint: Endpoint, http: Request) -> tuple[User, Session | None]:
    """Return the user who sent the request. Raises HttpProblem if there is none, DeniedError if a right is missing."""
    cookie_session = _cookie_session(console, http)
    if endpoint.is_write and (cookie_session is not None or endpoint.right is None):
        _check_origin(console, http)
    user, session = authenticate(console, http)
    if endpoint.right is None:
        return user or ANONYMOUS, session
    if endpoint.is_write and cookie_session is not None and session is None:
        raise DeniedError("the CSRF token is missing or invalid", code="csrf.token")
    if user is None:
        hint = "sign in with a key, or open the link that `interlock serve` printed"
        raise HttpProblem(401, "Sign in", "a session or an API key is required", code="login.missing", hint=hint)
    server = http.scope.get("extensions", {}).get(TRUST_EXTENSION)
    if server is not None:
        server["trust"]()
    if endpoint.right not in user.rights:
        raise DeniedError(f"`{user.name}` lacks the right `{endpoint.right}`", code="right.missing")
    return user, session


def authenticate(console: Console, http: Request, *, touch: bool = True) -> tuple[User | None, Session | None]:
    """Return the user of an API key, or the user and session of a cookie with its CSRF token.

    `touch=False` does not count as use of the session: an open stream does not keep it alive.
    """
    key = _bearer_key(http)
    if key:
        return console.access.by_key(key), None
    session = _cookie_session(console, http)
    token = http.headers.get(CSRF_HEADER, "").encode()
    if session is None or not hmac.compare_digest(token, session.csrf.encode()):
        return None, None
    if touch:
        console.access.touch(session)
    return session.user, session


def _bearer_key(http: Request) -> str:
    scheme, _, key = http.headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""


def _cookie_session(console: Console, http: Request) -> Session | None:
    """The session that a cookie names. It proves nothing without the CSRF token."""
    cookie = None if _bearer_key(http) else http.cookies.get(console.cookie)
    return None if cookie is None else console.access.by_cookie(cookie)


def _check_origin(console: Console, http: Request) -> None:
    """Check that a browser sent the write from a page of this server."""
    if http.headers.get("origin") not in console.origins:
        raise DeniedError("the request comes from another site", code="origin.foreign")
    if http.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise UsageError("expected a JSON body", code="body.type", hint="Content-Type: application/json")


def _decode_query(http: Request, shape: type[T]) -> T:
    given = {key: value for key, value in http.query_params.items() if value != ""}
    texts = (value for key, value in given.items() if key != "after")  # cursors are checked separately
    if any("\0" in value for value in texts):  # PostgreSQL accepts no such text, not even in a query
        raise _malformed("query", "it contains a NUL character")
    return _decode(lambda: msgspec.convert(given, shape, strict=False), "query")


def _decode_body(body: bytes, shape: type[T]) -> T:
    return _decode(lambda: msgspec.json.decode(body or b"null", type=shape), "body")


def _decode(decode: Callable[[], T], what: str) -> T:
    try:
        return decode()
    except UNDECODABLE as error:
        raise _malformed(what, str(error)) from None


def _malformed(what: str, why: str) -> HttpProblem:
    """The error for a query or a body of the wrong type. Stores raise `query.malformed` too, with more detail."""
    return HttpProblem(400, "Invalid request", f"invalid {what}: {why}", code=f"{what}.malformed")
