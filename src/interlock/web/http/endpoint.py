"""Endpoints: one table row per endpoint gives both its route and its part of the OpenAPI document.

Rule 1: query, body and result of an endpoint are msgspec types. A request that does not match is answered with a
problem that names the place; the handler is not called.
Rule 2: a request with a session cookie must also carry the session's CSRF token: browsers send a cookie to every port
of a host, and the server on another port must not be able to use it. A write with a cookie must carry our own Origin,
too. A request with an API key needs neither, because no browser adds a key automatically.
Rule 3: the body is read after the caller is authenticated; where no authentication is needed, it is short.
Rule 4: a refusal that the runtime has not recorded is recorded here (`_record`): a missing right or token, a read-only
console, a rate, an invalid write. Of callers who show no user, attempts are counted only.
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

from interlock.errors import DeniedError, InterlockError, UnavailableError, UsageError
from interlock.model.audit import HTTP_EVENT
from interlock.model.encoding.codec import UNDECODABLE
from interlock.model.journal.cause import is_traceparent
from interlock.model.limits import HTTP_LOGIN_BYTES_MAX
from interlock.trust.audit import Attempt
from interlock.trust.disclosure import is_withheld
from interlock.trust.rate_limits import RequestClass
from interlock.trust.users import User
from interlock.web.auth import Session
from interlock.web.http.console import Console
from interlock.web.http.errors import HttpProblem, problem_of, problem_response, retry_headers
from interlock.web.http.request_rates import address_prefix

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
        request = Request(scope, receive)
        try:
            answer = await _handle(self._console, self._endpoint, request)
        except Exception as raised:  # noqa: BLE001 - the edge: every error becomes a response
            error = await _record(self._console, self._endpoint, request, raised)
            status, body = problem_of(error)
            if body["code"] == "internal":
                _log.error("a request failed", exc_info=error, extra={"endpoint": self._endpoint.path})
            elif is_withheld(error):
                _log.info("a request was refused", extra={"code": body["code"], "error": str(error)})
            answer = problem_response(status, body, retry_headers(error))
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
    await console.access.refresh()
    user, session = await _identify(console, endpoint, http)
    audit = console.runtime.audit
    if audit.throttled and endpoint.is_write:
        audit.check(_attempt(endpoint, http, user))
    if endpoint.is_write and console.read_only and not endpoint.read_only:
        raise DeniedError("read-only console", code="console.read_only", hint="start it without --read-only")
    bytes_max = HTTP_LOGIN_BYTES_MAX if endpoint.right is None else None
    request = RequestContext(
        console=console,
        http=http,
        user=user,
        session=session,
        query=None if endpoint.query is None else _decode_query(http, endpoint.query),
        body=None if endpoint.body is None else _decode_body(await read_body(http, bytes_max=bytes_max), endpoint.body),
    )
    await console.learn_definitions()
    answer = await endpoint.handler(request)
    return answer if isinstance(answer, Response) else msgspec.json.encode(answer)


async def _record(console: Console, endpoint: Endpoint, http: Request, error: Exception) -> Exception:
    """Record a refusal, if the runtime has not done so. Return the error, or the one that its row cannot be written."""
    status, body = problem_of(error)
    if not 400 <= status < 500 or (isinstance(error, InterlockError) and error.is_recorded):
        return error
    user: User | None = http.scope.get(_CALLER)
    code = str(body["code"])
    try:
        if user is None or not user.name:
            if status in (401, 403, 429):
                await record_stranger(console, http, code)
        elif endpoint.is_write or status in (403, 429):
            outcome = "denied" if status in (403, 429) else "rejected"
            await console.runtime.audit.record(_attempt(endpoint, http, user), outcome=outcome, reason=code)
    except UnavailableError as failure:
        return failure
    return error


async def record_stranger(console: Console, http: Request, code: str) -> None:
    """Count an attempt without a principal in the audit. Raises UnavailableError."""
    address = "" if http.client is None else http.client.host
    await console.runtime.audit.record_stranger(code=code, address=address)


def _attempt(endpoint: Endpoint, http: Request, user: User) -> Attempt:
    """Return a request as an attempt: its method and path, on the entity that the path names."""
    given = http.path_params
    entity = given.get("entity") or given.get("kind") or ""
    return Attempt(entity, f"{HTTP_EVENT} {endpoint.method} {endpoint.path}", user.principal)


def traceparent_of(http: Request) -> str | None:
    """Return the traceparent of a request; None without a valid one, and if there are two."""
    found = http.headers.getlist("traceparent")
    return found[0] if len(found) == 1 and is_traceparent(found[0]) else None


async def read_body(http: Request, *, bytes_max: int | None = None) -> bytes:
    """Return the body, whose size the middleware limits. Raises HttpProblem if it is incomplete or too large."""
    pieces, size = [], 0
    while True:
        message = await http.receive()
        if message["type"] == "http.disconnect":
            raise HttpProblem(400, "Incomplete body", "the connection closed before the body ended", code="body.cut")
        piece = message.get("body", b"")
        size += len(piece)
        if bytes_max is not None and size > bytes_max:
            detail = f"the body of this request is limited to {bytes_max:,} bytes"
            raise HttpProblem(413, "Body too large", detail, code="body.size")
        pieces.append(piece)
        if not message.get("more_body", False):
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)


_CALLER = "interlock.caller"
"""Where the scope of a request has the user whom its key or cookie names."""

ANONYMOUS = User(principal={"id": "", "kind": "user", "roles": []}, rights=frozenset())


async def _identify(console: Console, endpoint: Endpoint, http: Request) -> tuple[User, Session | None]:
    """Return the user who sent the request, within their rate.

    Raises HttpProblem if there is none or above the rate, DeniedError for another site or a missing right.
    """
    try:
        if endpoint.right is None:
            count_anonymous(console, http)
        user, session = await _find_user(console, endpoint, http)
    except (HttpProblem, DeniedError, UsageError) as error:
        if endpoint.right is not None and not isinstance(error, UsageError):
            count_anonymous(console, http)
        raise
    if endpoint.right is not None:
        server = http.scope.get("extensions", {}).get(TRUST_EXTENSION)
        if server is not None:
            server["trust"]()
        console.rates.count(_CLASSES.get(endpoint.right, RequestClass.READ), user.name)
        if endpoint.right not in user.rights:
            raise DeniedError(f"`{user.name}` lacks the right `{endpoint.right}`", code="right.missing")
    return user, session


_CLASSES = {"send": RequestClass.SEND, "operate": RequestClass.OPERATE, "bulk": RequestClass.OPERATE}
"""The class of a request by the right that it needs; all others read."""


def count_anonymous(console: Console, http: Request) -> None:
    """Count a request without a principal by its address. Raises HttpProblem above the rate."""
    address = http.client.host if http.client is not None else None
    console.rates.count(RequestClass.ANONYMOUS, address_prefix(address))


async def _find_user(console: Console, endpoint: Endpoint, http: Request) -> tuple[User, Session | None]:
    cookie_session = _cookie_session(console, http)
    if cookie_session is not None:
        http.scope[_CALLER] = cookie_session.user
    if endpoint.is_write and (cookie_session is not None or endpoint.right is None):
        _check_origin(console, http)
    user, session = await authenticate(console, http)
    if user is not None:
        http.scope[_CALLER] = user
    if endpoint.right is None:
        return user or ANONYMOUS, session
    if endpoint.is_write and cookie_session is not None and session is None:
        raise DeniedError("the CSRF token is missing or invalid", code="csrf.token")
    if user is None:
        hint = "sign in with a key, or open the link that `interlock serve` printed"
        raise HttpProblem(401, "Sign in", "a session or an API key is required", code="login.missing", hint=hint)
    return user, session


async def authenticate(console: Console, http: Request, *, touch: bool = True) -> tuple[User | None, Session | None]:
    """Return the user of an API key or a token, or the user and session of a cookie with its CSRF token.

    `touch=False` does not count as use of the session: an open stream does not keep it alive.
    """
    key = _bearer_key(http)
    if key:
        return await console.access.by_bearer(key), None
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
    if len(http.query_params.multi_items()) > len(http.query_params):  # a proxy might check the first
        raise _malformed("query", "a parameter is repeated")
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
