"""Logging in and out, and who one is. The only endpoints that need no login."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from starlette.responses import Response

from interlock.model.codec import encode
from interlock.web.auth import LIFE_MS, RIGHTS
from interlock.web.errors import HttpProblem
from interlock.web.http.endpoint import Endpoint, RequestContext


class SecretBody(Struct, frozen=True):
    """A key, or the token of the link that was printed."""

    secret: str


class Nothing(Struct, frozen=True):
    """A body without anything in it."""


class Me(Struct, frozen=True):
    """Who asks, what they may do, and the token that every request of their login carries (`X-Interlock-CSRF`)."""

    id: str
    roles: tuple[str, ...]
    rights: tuple[str, ...]
    read_only: bool
    csrf: str | None = None


async def log_in(asked: RequestContext) -> Response:
    """Exchange a key, or the link's token, for a cookie."""
    done = asked.console.access.log_in(asked.body.secret)
    if done is None:
        hint = "the link works once; start `interlock serve` again for a new one"
        raise HttpProblem(401, "Who are you?", "that key is not known here", code="login.refused", hint=hint)
    cookie, login = done
    person = _me(asked, login.person.principal, login.person.rights, login.csrf)
    response = Response(encode(person), media_type="application/json", headers={"Cache-Control": "no-store"})
    response.set_cookie(
        asked.console.cookie,
        cookie,
        max_age=LIFE_MS // 1000,
        path="/",
        secure=asked.console.is_secure,
        httponly=True,
        samesite="strict",
    )
    return response


async def log_out(asked: RequestContext) -> Response:
    """End this login. A cookie without its token ends nothing; the browser forgets it."""
    name = asked.console.cookie
    if asked.login is not None:
        asked.console.access.log_out(asked.request.cookies.get(name, ""))
    response = Response(b"{}", media_type="application/json")
    response.delete_cookie(name, path="/", secure=asked.console.is_secure, httponly=True, samesite="strict")
    return response


async def me(asked: RequestContext) -> Me:
    """Who one is."""
    csrf = None if asked.login is None else asked.login.csrf
    return _me(asked, asked.person.principal, asked.person.rights, csrf)


def _me(asked: RequestContext, principal: Any, rights: frozenset[str], csrf: str | None) -> Me:
    ordered = tuple(each for each in RIGHTS if each in rights)
    return Me(str(principal["id"]), tuple(principal.get("roles", ())), ordered, asked.console.read_only, csrf)


ENDPOINTS = (
    Endpoint(
        method="POST",
        path="/login",
        summary="Exchange a key for a cookie",
        handler=log_in,
        right=None,
        body=SecretBody,
        answer=Me,
        keeps=True,
    ),
    Endpoint(
        method="POST",
        path="/logout",
        summary="End this login",
        handler=log_out,
        right=None,
        body=Nothing,
        answer=Nothing,
        keeps=True,
    ),
    Endpoint(method="GET", path="/me", summary="Who one is", handler=me, answer=Me),
)
