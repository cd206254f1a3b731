"""Who may call which endpoint, and that no endpoint discloses anything of another tenant.

After an intended change run `pytest tests/scenarios/rights --rewrite`, and review the diff of `endpoints.txt`. A new
endpoint needs a row in `requests.py`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from starlette.types import ASGIApp, Message

import interlock
from interlock.runtime.runtime import Runtime
from interlock.testing.clock import VirtualClock
from interlock.trust.api_keys import key_digest
from interlock.trust.users import RIGHTS, User
from interlock.web.app import ENDPOINTS, application
from interlock.web.auth import Authentication
from interlock.web.http.console import Console
from tests.scenarios.rights import world
from tests.scenarios.rights.requests import OUTSIDE, REQUESTS, Request

MATRIX = Path(__file__).with_name("endpoints.txt")
ORIGIN = "http://console.test"
ROLES = ["payments", "support"]
KEYS: dict[str, tuple[str, ...]] = {"no rights": (), **{each: (each,) for each in RIGHTS}, "all": RIGHTS}
"""The keys of the matrix: their names, and their rights."""

COLUMNS = ("anonymous", "unknown key", *KEYS, "read-only", "no token", "other site")
"""`read-only`: all rights, on a read-only console. `no token`: a cookie with all rights without its CSRF token.
`other site`: cookie and token, sent by a page of another site."""

BODY_MAX = 200_000


class Answer:
    """What an ASGI application sent."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self.started = asyncio.Event()


async def ask(
    app: ASGIApp, method: str, request: Request, headers: Mapping[str, str], *, whole: bool = False
) -> Answer:
    """Send a request. Without `whole`, the answer ends with its status: a stream has no end."""
    path, _, query = f"/api/v1{request.path}".partition("?")
    body = b"" if request.body is None else json.dumps(request.body).encode()
    sent = {"host": "console.test", "content-type": "application/json", **headers}
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "scheme": "http",
        "query_string": query.encode(),
        "server": ("console.test", 80),
        "client": ("127.0.0.1", 1),
        "http_version": "1.1",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in sent.items()],
    }
    answer, asked = Answer(), False

    async def receive() -> Message:
        nonlocal asked
        if asked:
            await asyncio.Event().wait()
        asked = True
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            answer.headers = {name.decode(): value.decode("latin-1") for name, value in message["headers"]}
        answer.body += message.get("body", b"")
        if message["type"] == "http.response.body" or not whole:
            answer.started.set()

    task = asyncio.ensure_future(app(scope, receive, send))
    waiting = asyncio.ensure_future(answer.started.wait())
    await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    if whole and "/streams/" not in path:
        await task
    for each in (task, waiting):
        each.cancel()
        with suppress(asyncio.CancelledError):
            await each
    return answer


@asynccontextmanager
async def console(runtime: Runtime, *, read_only: bool = False) -> AsyncIterator[tuple[ASGIApp, Console]]:
    """An application with the keys of the matrix."""
    users = {
        key_digest(f"ilk_{name}"): User(
            principal={"id": name, "kind": "user", "roles": ROLES}, rights=frozenset(rights)
        )
        for name, rights in KEYS.items()
    }
    app, found = application(runtime, Authentication(runtime.clock, keys=users), origins=[ORIGIN], read_only=read_only)
    try:
        yield app, found
    finally:
        await found.close()


async def headers_of(column: str, app: ASGIApp) -> dict[str, str]:
    """The headers of a caller."""
    if column == "anonymous":
        return {"origin": ORIGIN}
    if column in ("no token", "other site"):
        signed = await ask(app, "POST", Request("/login", {"secret": "ilk_all"}), {"origin": ORIGIN}, whole=True)
        cookie = signed.headers["set-cookie"].partition(";")[0]
        token = json.loads(signed.body)["csrf"]
        if column == "no token":
            return {"origin": ORIGIN, "cookie": cookie}
        return {"origin": "http://evil.test", "cookie": cookie, "x-interlock-csrf": token}
    name = {"unknown key": "unknown", "read-only": "all"}.get(column, column)
    return {"origin": ORIGIN, "authorization": f"Bearer ilk_{name}"}


def folder_of(parent: Path, column: str) -> Path:
    """A new folder for the store of a column."""
    found = parent / column.replace(":", " ")
    found.mkdir()
    return found


async def column_of(column: str, folder: Path) -> dict[str, str]:
    """The answer to every request for one caller: yes, or the status of the refusal."""
    await world.fill(world.address(folder, "acme"), world.OWN_CHART, "A")
    url, found = world.address(folder, "acme"), {}
    charts = [world.chart(world.OWN_CHART)]
    async with (
        interlock.open(url, charts=charts, clock=VirtualClock(world.NOW_MS)) as runtime,
        console(runtime, read_only=column == "read-only") as (app, _),
    ):
        headers = await headers_of(column, app)
        for name, request in {**REQUESTS, **OUTSIDE}.items():
            answer = await ask(app, name.partition(" ")[0], request, headers)
            found[name] = str(answer.status) if answer.status in (401, 403) else "yes"
    return found


def test_every_endpoint_has_a_request() -> None:
    """The row of a new endpoint is missing: add it to `requests.py`, then run with --rewrite and review the diff."""
    assert [f"{each.method} {each.path}" for each in ENDPOINTS] == list(REQUESTS)


async def test_no_route_of_the_api_is_outside_of_the_table() -> None:
    """Whatever the application routes below /api is an endpoint, the OpenAPI document, or the inbox.

    The inbox knows no rights: a signature decides (`tests/unit/web/api/test_inbox.py`).
    """
    async with (
        interlock.open("memory:", charts=[world.chart(world.OWN_CHART)]) as runtime,
        console(runtime) as (app, _),
    ):
        routes = app._app._app.routes  # type: ignore[attr-defined]  # the layers around the routes
        paths = {each.path for each in routes if each.path.startswith("/api")}

    outside = {f"/api/v1{each.partition(' ')[2]}" for each in OUTSIDE}
    assert {*outside, *(f"/api/v1{each.path}" for each in ENDPOINTS)} == paths


@pytest.mark.slow
async def test_who_may_call_which_endpoint(rewrite: bool, tmp_path: Path) -> None:
    columns = {each: await column_of(each, folder_of(tmp_path, each)) for each in COLUMNS}
    rows = [*REQUESTS, *OUTSIDE]
    named = {each: each.replace(" /", " /api/v1/") for each in rows}
    width = max(map(len, named.values()))
    lines = [f"{'':{width}}  {'  '.join(COLUMNS)}"]
    for name in rows:
        cells = "  ".join(f"{columns[each][name]:{len(each)}}" for each in COLUMNS)
        lines.append(f"{named[name]:{width}}  {cells}".rstrip())
    text = "\n".join(lines) + "\n"
    if rewrite:
        MATRIX.write_text(text, encoding="utf-8")
        return

    assert MATRIX.read_text(encoding="utf-8") == text


async def leaks_of(folder: Path, tenant: str, text: str) -> list[str]:
    """The endpoints of a tenant whose answers contain the canary. Ids that the request itself named do not count."""
    found, headers = [], {"origin": ORIGIN, "authorization": "Bearer ilk_all"}
    url, charts = world.address(folder, tenant), [world.chart(text)]
    async with (
        interlock.open(url, charts=charts, clock=VirtualClock(world.NOW_MS)) as runtime,
        console(runtime) as (app, _),
    ):
        for name, request in {**REQUESTS, **OUTSIDE}.items():
            for asked in (request, _foreign(request)):
                answer = await ask(app, name.partition(" ")[0], asked, headers, whole=True)
                assert answer.status < 500, (name, answer.body)
                body = answer.body.decode().replace(f"{world.SECRET}-1", "").replace(f"{world.SECRET}-2", "")
                if world.SECRET in body:
                    found.append(name)
    return found


@pytest.mark.slow
async def test_no_endpoint_shows_or_changes_another_tenant(tmp_path: Path) -> None:
    """Requests of one tenant, with its own names and with those of the other, by a caller with all rights."""
    await world.fill(world.address(tmp_path, "acme"), world.OWN_CHART, "A")
    await world.fill(world.address(tmp_path, world.SECRET), world.OTHER_CHART, world.SECRET)
    before = await world.contents(tmp_path, world.SECRET)

    assert [] == await leaks_of(tmp_path, "acme", world.OWN_CHART)
    assert before == await world.contents(tmp_path, world.SECRET)
    shown = await leaks_of(tmp_path, world.SECRET, world.OTHER_CHART)
    assert {"GET /entity/{entity:path}", "GET /journal/{entity:path}", "GET /kinds", "GET /refusals"} <= set(shown)


def _foreign(request: Request) -> Request:
    """The same request, about entities of the other tenant. The answer may repeat their ids, which it got from us."""
    body = None if request.body is None else json.loads(_renamed(json.dumps(request.body)))
    return Request(_renamed(request.path), body)


def _renamed(text: str) -> str:
    return text.replace("A-1", f"{world.SECRET}-1").replace("A-2", f"{world.SECRET}-2")


def test_the_columns_are_all_rights() -> None:
    """A new right is a new column."""
    assert set(RIGHTS) < set(COLUMNS)
