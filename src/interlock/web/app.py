"""The ASGI application: the endpoint table, the pages, and the middleware around both.

    app, console = application(runtime, access, origins=["http://127.0.0.1:8470"])

Rule 1: close the console before the runtime; otherwise open streams keep the server running.
Rule 2: a request for an endpoint goes straight to it. Starlette handles the pages and everything that is not found or
not allowed. Its error handling is not needed for endpoints, because an endpoint turns every error into a response.
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
from interlock.model.encoding.codec import encode
from interlock.observe.metrics.exporter import MetricsExporter
from interlock.runtime.runtime import Runtime
from interlock.web.api import audit, entities, entity, holds, jobs, kinds, reports, session, simulation, streams, work
from interlock.web.api.inbox import inbox_route
from interlock.web.api.metrics import metrics_route
from interlock.web.auth import Authentication
from interlock.web.http.console import Console
from interlock.web.http.endpoint import BASE, Endpoint, route
from interlock.web.http.errors import HttpProblem, problem_of, problem_response
from interlock.web.http.middleware import SecurityMiddleware
from interlock.web.http.openapi import document
from interlock.web.pages import not_found_page, routes

ENDPOINTS: tuple[Endpoint, ...] = (
    *session.ENDPOINTS,
    *kinds.ENDPOINTS,
    *entities.ENDPOINTS,
    *entity.ENDPOINTS,
    *work.ENDPOINTS,
    *holds.ENDPOINTS,
    *audit.ENDPOINTS,
    *jobs.ENDPOINTS,
    *reports.ENDPOINTS,
    *simulation.ENDPOINTS,
    *streams.ENDPOINTS,
)

NOT_PAGES = ("/api", "/static/")
"""Prefixes of paths that are not pages."""


def application(
    runtime: Runtime,
    access: Authentication,
    *,
    origins: Iterable[str],
    read_only: bool = False,
    exporter: MetricsExporter | None = None,
) -> tuple[ASGIApp, Console]:
    """Return the application for a runtime, and its console, which the caller closes.

    Browsers reach the application by `origins`, such as `https://console.example.org`. Raises UsageError for an invalid
    origin, and for an authorizer that waits.
    """
    known = frozenset(normalize_origin(each) for each in origins)
    authorizer = runtime.permissions.authorizer
    if authorizer is not None and authorizer.is_async:
        hint = "give an authorizer that decides without waiting"
        raise UsageError("the console cannot wait for an authorizer", code="authorizer.async", hint=hint)
    console = Console(runtime, access, origins=known, read_only=read_only, exporter=exporter)
    endpoints = [route(console, each) for each in ENDPOINTS]
    app = Starlette(
        routes=endpoints,
        exception_handlers={404: _not_found, 405: _not_found, HttpProblem: _problem},
    )
    app.router.routes.append(inbox_route(console))
    app.router.routes.append(metrics_route(console))
    app.add_route(f"{BASE}/openapi.json", _openapi, methods=["GET"])
    app.router.routes.extend(routes())
    hosts = [each.partition("://")[2] for each in known]
    return SecurityMiddleware(_EndpointRouter(app, endpoints), hosts=hosts), console


class _EndpointRouter:
    """Passes a request to its endpoint, found by the first segment of its path, or else to the application."""

    def __init__(self, app: ASGIApp, endpoints: Iterable[Route]) -> None:
        self._app = app
        self._endpoints: dict[str, list[Route]] = {}
        for each in endpoints:
            self._endpoints.setdefault(_first_segment(each.path), []).append(each)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            for endpoint in self._endpoints.get(_first_segment(scope["path"]), ()):
                match, found = endpoint.matches(scope)
                if match is Match.FULL:
                    scope.update(found)
                    await endpoint.app(scope, receive, send)
                    return
        await self._app(scope, receive, send)


def _first_segment(path: str) -> str:
    """The first segment of a path of the API; empty for any other path."""
    return path[len(BASE) + 1 :].partition("/")[0] if path.startswith(BASE) else ""


def normalize_origin(text: str) -> str:
    """Return an origin as browsers write it: without the default port of its scheme. Raises UsageError."""
    try:
        parts = urlsplit(text.lower())
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    is_plain = parts.username is None and parts.path in ("", "/") and not (parts.query or parts.fragment)
    if parts.scheme not in ("http", "https") or not parts.hostname or not is_plain:
        hint = "expected a URL such as https://console.example.org"
        raise UsageError(f"invalid origin `{text[:80]}`", code="serve.origin", hint=hint)
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    default_port = 443 if parts.scheme == "https" else 80
    return f"{parts.scheme}://{host}" if port in (None, default_port) else f"{parts.scheme}://{host}:{port}"


async def _openapi(request: Request) -> Response:  # noqa: ARG001 - the signature is Starlette's
    try:
        found = version("interlock")
    except PackageNotFoundError:
        found = "0"
    return Response(encode(document(ENDPOINTS, version=found)), media_type="application/json")


async def _not_found(request: Request, error: Exception) -> Response:
    """Return a page for browsers, and a problem for the API and for static files."""
    status, path = getattr(error, "status_code", 404), request.url.path
    if status == 404 and request.method in ("GET", "HEAD") and not path.startswith(NOT_PAGES):
        return not_found_page(request)
    if status == 404:
        problem = HttpProblem(404, "Not found", f"unknown path {path[:200]}", code="path.unknown")
        return problem_response(*problem_of(problem))
    problem = HttpProblem(status, "Method not allowed", f"unsupported method for {path[:200]}", code="path.unknown")
    return problem_response(*problem_of(problem), headers={"Allow": ", ".join(_methods(request))})


def _methods(request: Request) -> list[str]:
    """Return the methods that the path of a request has, over all routes: RFC 9110 requires them with a 405."""
    routes = (each for each in request.app.routes if isinstance(each, Route))
    return sorted(
        {name for each in routes if each.matches(request.scope)[0] is not Match.NONE for name in each.methods or ()}
    )


async def _problem(request: Request, error: Exception) -> Response:  # noqa: ARG001 - the signature is Starlette's
    return problem_response(*problem_of(error))
