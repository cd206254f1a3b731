"""Consoles for tests: a runtime with some entities, its application, and a client with a session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import httpx
from starlette.types import ASGIApp, Message, Scope

import interlock
from interlock.assemble.charts import BoundChart
from interlock.ports.clock import Clock
from interlock.runtime.runtime import Runtime
from interlock.testing.clock import VirtualClock
from interlock.trust.api_keys import key_digest
from interlock.trust.users import RIGHTS, User
from interlock.web.app import application
from interlock.web.auth import Authentication
from interlock.web.http.console import Console
from tests.support.eventually import PATIENCE_SECONDS, eventually

ORIGIN = "http://console.test"
KEY = "ilk_of_a_program"

ORDER = """
interlock: 1
kind: order
revision: 2.0.0
context: {amount: {type: integer, min: 1, required: true}, payment: {type: string, nullable: true}}
create: {roles: [support, payments]}
events:
  payment.confirmed: {roles: [payments], payload: {id: {type: string, required: true}}}
  order.cancelled: {roles: [support], description: The customer changed their mind}
  parcel.shipped: {roles: [warehouse]}
initial: unpaid
states:
  unpaid:
    after: {48h: expired}
    on:
      payment.confirmed: {target: paid, actions: [{assign: {payment: "= event.data.id"}}]}
      order.cancelled: {target: cancelled, guard: "= context.amount < 1000"}
  paid:
    expect: {within: 2d}
    tags: [open]
    entry: [send_receipt]
    on: {parcel.shipped: shipped}
  expired: {type: final}
  shipped: {type: final}
  cancelled: {type: final}
"""

ROLES = ("payments", "support", "warehouse")


async def send_receipt(attempt: Any) -> None:
    """Fail permanently."""
    raise interlock.RejectedError("no such mailbox", code="mailbox.gone")


def order(text: str = ORDER) -> BoundChart:
    """Return the chart of orders with a handler that fails."""
    chart = interlock.loads(text)
    chart.handler("send_receipt")(send_receipt)
    return chart


def make_user(name: str = "ada", *, roles: tuple[str, ...] = ROLES, rights: tuple[str, ...] = RIGHTS) -> User:
    """Return a user with these roles and rights."""
    return User(principal={"id": name, "kind": "user", "roles": list(roles)}, rights=frozenset(rights))


@dataclass(slots=True)
class Client:
    """A browser with a session."""

    app: ASGIApp
    console: Console
    runtime: Runtime
    http: httpx.AsyncClient
    csrf: str = ""
    headers: dict[str, str] = field(default_factory=dict)

    async def get(self, path: str, **options: Any) -> httpx.Response:
        """Return the response to a GET with the headers of a page."""
        headers = {"X-Interlock-CSRF": self.csrf, **(options.pop("headers", None) or {})}
        return await self.http.get(f"/api/v1/{path}", headers=headers, **options)

    async def json(self, path: str) -> Any:
        """Return the JSON of a successful GET."""
        response = await self.get(path)
        assert response.status_code == 200, response.text
        return response.json()

    async def post(self, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> httpx.Response:
        """Return the response to a POST with the headers of a page."""
        sent = {"Origin": ORIGIN, "X-Interlock-CSRF": self.csrf, **(headers or {})}
        return await self.http.post(f"/api/v1/{path}", json={} if body is None else body, headers=sent)

    async def job(self, path: str, body: Any) -> Any:
        """Start a job and return it once it has ended."""
        response = await self.post(path, body)
        assert response.status_code == 200, response.text
        return await self.ended(response.json()["id"])

    async def ended(self, name: str) -> Any:
        """Return a job once it has ended."""

        async def ended() -> Any:
            job = await self.json(f"jobs/{name}")
            return None if job["ended_ms"] is None else job

        return await eventually(ended)


@asynccontextmanager
async def open_console(
    url: str = "memory:",
    *,
    charts: tuple[BoundChart, ...] | None = None,
    who: User | None = None,
    clock: Clock | None = None,
    read_only: bool = False,
    work: bool = False,
) -> AsyncIterator[Client]:
    """Yield a client with a session of a console on a store."""
    clock = clock or VirtualClock(1_000_000_000_000)
    given = charts or (order(),)
    async with (
        interlock.open(url, charts=given, clock=clock, work=work) as runtime,
        console_of(runtime, who=who, read_only=read_only) as client,
    ):
        yield client


@asynccontextmanager
async def console_of(runtime: Runtime, *, who: User | None = None, read_only: bool = False) -> AsyncIterator[Client]:
    """Yield a client with a session of a console of a runtime."""
    key = {key_digest(KEY): make_user("robot", roles=("payments",), rights=("read", "send"))}
    access = Authentication(runtime.clock, keys=key, local=who or make_user())
    app, console = application(runtime, access, origins=[ORIGIN], read_only=read_only)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url=ORIGIN) as http:
        client = Client(app, console, runtime, http)
        response = await client.post("login", {"secret": access.link})
        client.csrf = response.json()["csrf"]
        try:
            yield client
        finally:
            await console.close()


async def create_orders(client: Client, count: int = 3) -> None:
    """Create orders A-1, A-2, ...; the second is paid."""
    for number in range(1, count + 1):
        await client.runtime.create(f"order/A-{number}", {"amount": 10 * number})
    payer = {"id": "till", "roles": ["payments"]}
    await client.runtime.send("order/A-2", "payment.confirmed", {"id": "p-1"}, principal=payer)


class Stream:
    """A client of a stream of server-sent events."""

    def __init__(self, client: Client, path: str, headers: Mapping[str, str] | None = None) -> None:
        self.status = 0
        self.text = ""
        self._arrived = asyncio.Event()
        self._gone = asyncio.Event()
        self._task = asyncio.ensure_future(client.app(self._scope(client, path, headers), self._receive, self._send))

    def _scope(self, client: Client, path: str, headers: Mapping[str, str] | None) -> Scope:
        cookies = "; ".join(f"{each.name}={each.value}" for each in client.http.cookies.jar)
        sent = {"host": "console.test", "cookie": cookies, "x-interlock-csrf": client.csrf, **(headers or {})}
        where, _, query = f"/api/v1/{path}".partition("?")
        return {
            "type": "http",
            "method": "GET",
            "path": where,
            "raw_path": where.encode(),
            "root_path": "",
            "scheme": "http",
            "query_string": query.encode(),
            "headers": [(key.encode(), value.encode("latin-1")) for key, value in sent.items()],
            "server": ("console.test", 80),
            "client": ("127.0.0.1", 1),
            "http_version": "1.1",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
        }

    async def _receive(self) -> Message:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        self.text += message.get("body", b"").decode()
        self._arrived.set()

    async def until(self, text: str) -> str:
        """Return the received text once it contains this one."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while text not in self.text:
                assert not self._task.done() or text in self.text, self.text
                self._arrived.clear()
                await self._arrived.wait()
        return self.text

    async def end(self) -> str:
        """Return the received text once the server has ended the stream."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self._task
        return self.text

    async def close(self) -> None:
        """Disconnect."""
        self._gone.set()
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
