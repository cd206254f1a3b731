"""Sign in, sign out, and the current user. Signing in and out are the only endpoints without authentication."""

from __future__ import annotations

from msgspec import Struct
from starlette.responses import Response

from interlock.model.audit import LOGIN, LOGOUT
from interlock.model.encoding.codec import encode
from interlock.trust.audit import Attempt
from interlock.trust.users import RIGHTS, User
from interlock.web.auth import SESSION_MS_MAX, Session
from interlock.web.http.endpoint import Endpoint, RequestContext
from interlock.web.http.errors import HttpProblem


class SecretBody(Struct, frozen=True):
    """An API key, or the token of the one-time sign-in link."""

    secret: str


class Nothing(Struct, frozen=True):
    """An empty object."""


class Me(Struct, frozen=True):
    """The current user. `csrf`: the token that every request of the session carries (`X-Interlock-CSRF`)."""

    id: str
    roles: tuple[str, ...]
    rights: tuple[str, ...]
    read_only: bool
    csrf: str | None = None


async def sign_in(request: RequestContext) -> Response:
    """Exchange an API key, or the token of the link, for a session cookie."""
    console = request.console
    started = await console.access.sign_in(request.body.secret)
    if started is None:
        hint = "the link works once; restart `interlock serve` for a new one"
        raise HttpProblem(401, "Sign-in failed", "unknown key", code="login.refused", hint=hint)
    cookie, session = started
    how = "link" if session.digest is None else "key"
    try:
        await _record(request, LOGIN, session.user, "token" if session.token is not None else how)
    except BaseException:  # no session without its row
        console.access.sign_out(cookie)
        raise
    body = encode(_me(session.user, session, read_only=console.read_only))
    response = Response(body, media_type="application/json", headers={"Cache-Control": "no-store"})
    response.set_cookie(
        console.cookie,
        cookie,
        max_age=SESSION_MS_MAX // 1000,
        path="/",
        secure=console.is_secure,
        httponly=True,
        samesite="strict",
    )
    return response


async def sign_out(request: RequestContext) -> Response:
    """End the session and delete its cookie. A cookie without its CSRF token ends no session."""
    console = request.console
    if request.session is not None:
        await _record(request, LOGOUT, request.session.user, "session")
        console.access.sign_out(request.http.cookies.get(console.cookie, ""))
    response = Response(b"{}", media_type="application/json")
    response.delete_cookie(console.cookie, path="/", secure=console.is_secure, httponly=True, samesite="strict")
    return response


async def _record(request: RequestContext, event: str, user: User, how: str) -> None:
    """Record that a session started or ended. Raises UnavailableError when the row cannot be written."""
    await request.console.runtime.audit.record(Attempt("", event, user.principal), outcome="applied", reason=how)


async def get_me(request: RequestContext) -> Me:
    """Return the current user."""
    return _me(request.user, request.session, read_only=request.console.read_only)


def _me(user: User, session: Session | None, *, read_only: bool) -> Me:
    rights = tuple(each for each in RIGHTS if each in user.rights)
    roles = tuple(user.principal.get("roles", ()))
    return Me(user.name, roles, rights, read_only, None if session is None else session.csrf)


ENDPOINTS = (
    Endpoint(
        method="POST",
        path="/login",
        summary="Sign in with a key",
        handler=sign_in,
        right=None,
        body=SecretBody,
        answer=Me,
        read_only=True,
    ),
    Endpoint(
        method="POST",
        path="/logout",
        summary="Sign out",
        handler=sign_out,
        right=None,
        body=Nothing,
        answer=Nothing,
        read_only=True,
    ),
    Endpoint(method="GET", path="/me", summary="Get the current user", handler=get_me, answer=Me),
)
