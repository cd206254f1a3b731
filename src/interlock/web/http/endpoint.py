"""An endpoint: one row of the table from which both the routes and the OpenAPI document are made, so they agree.

Rule 1: what an endpoint takes and gives are msgspec types. A request that does not fit is a problem with its place, and
the endpoint never sees it.
Rule 2: a request by cookie carries the login's token, too: a browser sends a cookie to every port of a host, and the
server of another port must not be able to use it. A write by cookie also carries our own Origin. A request by API key
needs neither, because no browser adds a key by itself.
Rule 3: a body is read after its sender is known, and where none need be known it is short.
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
from interlock.model.limits import HTTP_LOGIN_BYTES_MAX
from interlock.web.auth import Login, User
from interlock.web.console import Console
from interlock.web.errors import HttpProblem, is_withheld, problem_of, problem_response

BASE = "/api/v1"
CSRF_HEADER = "x-interlock-csrf"
TRUST_EXTENSION = "interlock.trust"
"""The ASGI extension by which a server is told that a connection has shown a valid key or login."""

_log = logging.getLogger("interlock.web")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
    """A request, once it is known who asks and that it has the right shape."""

    console: Console
    request: Request
    person: User
    login: Login | None
    query: Any
    body: Any

    def path(self, name: str) -> str:
        """A part of the path."""
        return str(self.request.path_params[name])

    def may_see(self, kind: str) -> bool:
        """Whether the caller may see a kind."""
        return self.console.may_see(self.person, kind)

    def may_see_entity(self, entity: str) -> bool:
        """Whether the caller may see the kind of an entity."""
        return self.may_see(entity.partition("/")[0])


Handler = Callable[[RequestContext], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One thing that can be asked for. `right` None: nobody need be logged in. `answer` None: the handler responds.

    `keeps`: a POST that changes nothing in the store, so that a console that only shows offers it, too.
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
    keeps: bool = False

    @property
    def is_write(self) -> bool:
        """Whether it changes anything."""
        return self.method != "GET"


class EndpointApp:
    """An endpoint as an ASGI application of its own: nothing stands between the shield and it."""

    def __init__(self, console: Console, endpoint: Endpoint) -> None:
        self._console = console
        self._endpoint = endpoint
        self._headers = [(b"content-type", endpoint.media.encode()), (b"cache-control", b"no-store")]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            answer = await _answered(self._console, self._endpoint, Request(scope, receive))
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
    """The route of an endpoint."""
    return Route(BASE + endpoint.path, EndpointApp(console, endpoint), methods=[endpoint.method])


async def _answered(console: Console, endpoint: Endpoint, request: Request) -> Response | bytes:
    """What the handler responds, or the JSON of what it gives."""
    person, login = _asker(console, endpoint, request)
    if endpoint.is_write and console.read_only and not endpoint.keeps:
        raise DeniedError("this console only shows", code="console.read_only", hint="start it without --read-only")
    asked = RequestContext(
        console=console,
        request=request,
        person=person,
        login=login,
        query=None if endpoint.query is None else _query(request, endpoint.query),
        body=None if endpoint.body is None else _decoded(await _body(request, endpoint), endpoint.body),
    )
    answer = await endpoint.handler(asked)
    return answer if isinstance(answer, Response) else msgspec.json.encode(answer)


async def _body(request: Request, endpoint: Endpoint) -> bytes:
    """The body, whose length the shield bounds. Raises HttpProblem when it is cut short, or too long for a login."""
    pieces, size = [], 0
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":  # nobody hears the answer, and it is no bug that could be looked for
            raise HttpProblem(400, "Cut short", "the body did not come whole", code="body.cut")
        piece = message.get("body", b"")
        size += len(piece)
        if endpoint.right is None and size > HTTP_LOGIN_BYTES_MAX:
            detail = f"a body may have {HTTP_LOGIN_BYTES_MAX:,} bytes here"
            raise HttpProblem(413, "Too long", detail, code="body.size")
        pieces.append(piece)
        if not message.get("more_body", False):
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)


NOBODY = User(principal={"id": "", "kind": "user", "roles": []}, rights=frozenset())


def _asker(console: Console, endpoint: Endpoint, request: Request) -> tuple[User, Login | None]:
    """Who asks. Raises HttpProblem when nobody known does, DeniedError when they may not."""
    login = _cookie_login(console, request)
    if endpoint.is_write and (login is not None or endpoint.right is None):
        _check_origin(console, request)
    person, used = identified(console, request)
    if endpoint.right is None:
        return person or NOBODY, used
    if endpoint.is_write and login is not None and used is None:
        raise DeniedError("the request does not carry the token of its login", code="csrf.token")
    if person is None:
        hint = "log in with a key, or open the link that `interlock serve` printed"
        raise HttpProblem(401, "Who are you?", "this needs a login or an API key", code="login.missing", hint=hint)
    server = request.scope.get("extensions", {}).get(TRUST_EXTENSION)
    if server is not None:
        server["trust"]()
    if endpoint.right not in person.rights:
        raise DeniedError(f"`{person.name}` has no right to {endpoint.right}", code="right.missing")
    return person, used


def identified(console: Console, request: Request, *, uses: bool = True) -> tuple[User | None, Login | None]:
    """The person of a key, or of a cookie with its token; and the login, if it was by cookie.

    `uses` False: the login is not used by this; a stream that goes on by itself does not keep it alive.
    """
    key = _bearer(request)
    if key:
        return console.access.by_key(key), None
    login = _cookie_login(console, request)
    token = request.headers.get(CSRF_HEADER, "").encode()
    if login is None or not hmac.compare_digest(token, login.csrf.encode()):
        return None, None
    if uses:
        console.access.use(login)
    return login.person, login


def _bearer(request: Request) -> str:
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""


def _cookie_login(console: Console, request: Request) -> Login | None:
    """The login that a cookie names. It proves nothing without the token."""
    cookie = None if _bearer(request) else request.cookies.get(console.cookie)
    return None if cookie is None else console.access.by_cookie(cookie)


def _check_origin(console: Console, request: Request) -> None:
    """A browser says where a write comes from; a page of another site cannot say that it is ours."""
    if request.headers.get("origin") not in console.origins:
        raise DeniedError("the request comes from another site", code="origin.foreign")
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise UsageError("a write carries JSON", code="body.type", hint="Content-Type: application/json")


def _query(request: Request, shape: type[T]) -> T:
    given = {key: value for key, value in request.query_params.items() if value != ""}
    texts = (value for key, value in given.items() if key != "after")  # a cursor is looked at by whoever gave it
    if any("\0" in value for value in texts):  # PostgreSQL takes no such text, not even in a question
        raise _malformed("query", "it has a NUL character in it")
    return _checked(lambda: msgspec.convert(given, shape, strict=False), "query")


def _decoded(body: bytes, shape: type[T]) -> T:
    return _checked(lambda: msgspec.json.decode(body or b"null", type=shape), "body")


def _checked(decode: Callable[[], T], what: str) -> T:
    try:
        return decode()
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise _malformed(what, str(error)) from None


def _malformed(what: str, why: str) -> HttpProblem:
    """The error for a query or a body of another shape. Stores use `query.malformed` too, and say more than this."""
    detail = f"the {what} does not read: {why}"
    return HttpProblem(400, "The request is wrong", detail, code=f"{what}.malformed")
