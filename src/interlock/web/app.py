"""The application: endpoints, pages, and the shield before them.

    app, console = application(runtime, access, origins=["http://127.0.0.1:8470"])

Rule 1: whoever makes it closes its console before the runtime, or streams would hold the server open.
Rule 2: a request for an endpoint is led straight to it. Starlette has the pages, and what is not found or not allowed;
its layers for errors would only cost: an endpoint makes a response of every error itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from interlock.errors import UsageError
from interlock.model.codec import encode
from interlock.runtime.runtime import Runtime
from interlock.web.api import audit, entities, journals, kinds, lists, session, simulation, streams, work
from interlock.web.auth import Authentication
from interlock.web.console import Console
from interlock.web.errors import HttpProblem, problem_of, problem_response
from interlock.web.http.endpoint import BASE, Endpoint, route
from interlock.web.http.middleware import Shield
from interlock.web.http.openapi import document
from interlock.web.pages import routes, unknown_page

ENDPOINTS: tuple[Endpoint, ...] = (
    *session.ENDPOINTS,
    *kinds.ENDPOINTS,
    *lists.ENDPOINTS,
    *entities.ENDPOINTS,
    *journals.ENDPOINTS,
    *work.ENDPOINTS,
    *audit.ENDPOINTS,
    *simulation.ENDPOINTS,
    *streams.ENDPOINTS,
)


APART = ("/api", "/static/")
"""What paths begin with that are no addresses of pages."""


def application(
    runtime: Runtime, access: Authentication, *, origins: Iterable[str], read_only: bool = False
) -> tuple[ASGIApp, Console]:
    """The application over a runtime, for browsers that reach it by these origins (`https://console.example.org`); and
    the console behind it, to be closed.
    """
    known = frozenset(checked_origin(each) for each in origins)
    console = Console(runtime, access, origins=known, read_only=read_only)
    doors = [route(console, each) for each in ENDPOINTS]
    app = Starlette(
        routes=doors,
        exception_handlers={404: _not_found, 405: _not_found, HttpProblem: _problem},
    )
    app.add_route(f"{BASE}/openapi.json", _document, methods=["GET"])
    app.router.routes.extend(routes())
    return Shield(_Straight(app, doors), hosts=[each.partition("://")[2] for each in known]), console


class _Straight:
    """Leads a request to its endpoint by the first word of its path, and to the application when there is none."""

    def __init__(self, app: ASGIApp, doors: Iterable[Route]) -> None:
        self._app = app
        self._doors: dict[str, list[Route]] = {}
        for each in doors:
            self._doors.setdefault(_word(each.path), []).append(each)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            for door in self._doors.get(_word(scope["path"]), ()):
                match, found = door.matches(scope)
                if match is Match.FULL:
                    scope.update(found)
                    await door.app(scope, receive, send)
                    return
        await self._app(scope, receive, send)


def _word(path: str) -> str:
    """The first word of a path behind the interface's own beginning; empty elsewhere, where no endpoint is."""
    return path[len(BASE) + 1 :].partition("/")[0] if path.startswith(BASE) else ""


def checked_origin(text: str) -> str:
    """An origin as browsers write it: without the port that its scheme has anyway. Raises UsageError."""
    try:
        parts = urlsplit(text.lower())
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    plain = parts.username is None and parts.path in ("", "/") and not (parts.query or parts.fragment)
    if parts.scheme not in ("http", "https") or not parts.hostname or not plain:
        hint = "such as https://console.example.org"
        raise UsageError(f"`{text[:80]}` is no address of a server", code="serve.origin", hint=hint)
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    usual = 443 if parts.scheme == "https" else 80
    return f"{parts.scheme}://{host}" if port in (None, usual) else f"{parts.scheme}://{host}:{port}"


async def _document(request: Request) -> Response:  # noqa: ARG001 - the signature is Starlette's
    try:
        found = version("interlock")
    except PackageNotFoundError:
        found = "0"
    return Response(encode(document(ENDPOINTS, version=found)), media_type="application/json")


async def _not_found(request: Request, error: Exception) -> Response:
    """A page that says so, for people; a problem for programs, and for whatever asks for a part of a page."""
    status, path = getattr(error, "status_code", 404), request.url.path
    if status == 404 and request.method in ("GET", "HEAD") and not path.startswith(APART):
        return unknown_page(request)
    detail = f"there is nothing at {path[:200]}" if status == 404 else "not by this method"
    problem = HttpProblem(status, "Not found", detail, code="path.unknown")
    return problem_response(*problem_of(problem))


async def _problem(request: Request, error: Exception) -> Response:  # noqa: ARG001 - the signature is Starlette's
    return problem_response(*problem_of(error))
