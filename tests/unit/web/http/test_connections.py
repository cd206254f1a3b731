"""Limits on the connections of a real server on loopback."""

from __future__ import annotations

import asyncio
import errno
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import pytest
from starlette.types import Receive, Scope, Send

from interlock.model.limits import HTTP_CONNECTIONS_MAX, HTTP_FIELDS_MAX, HTTP_HEAD_BYTES_MAX, HTTP_PIPELINE_MAX
from interlock.trust.api_keys import key_digest
from interlock.web import server
from interlock.web.auth import Authentication
from interlock.web.http import connections, endpoint
from interlock.web.http.connections import Connections
from tests.support.eventually import PATIENCE_SECONDS, eventually
from tests.unit.web.consoles import KEY, make_user, open_console

"""A timeout against hangs."""

DESCRIPTORS = 16
ROOM = DESCRIPTORS // 2


@dataclass(slots=True)
class Wire:
    """The client side of a connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send(self, text: bytes) -> None:
        """Send data without waiting."""
        self.writer.write(text)

    def pause(self) -> None:
        """Stop reading."""
        transport = self.writer.transport
        assert isinstance(transport, asyncio.ReadTransport)
        transport.pause_reading()

    async def answer(self) -> tuple[int, bytes]:
        """Return the status and the body of the next response."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            head = await self.reader.readuntil(b"\r\n\r\n")
            found = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
            body = b"" if found is None else await self.reader.readexactly(int(found[1]))
        return int(head.split()[1]), body

    async def rest(self) -> bytes:
        """Return the received bytes until the server closes."""
        found = b""
        with suppress(ConnectionError):
            async with asyncio.timeout(PATIENCE_SECONDS):
                while piece := await self.reader.read(65_536):
                    found += piece
        return found


@dataclass(slots=True)
class Site:
    """A server in this process."""

    host: str
    registry: Connections
    wires: list[Wire]

    async def wire(self, text: bytes = b"") -> Wire:
        """Return a new connection after sending data on it."""
        name, _, port = self.host.rpartition(":")
        made = Wire(*await asyncio.open_connection(name, int(port)))
        self.wires.append(made)
        made.send(text)
        return made

    def get(self, path: str = "/api/v1/kinds", *fields: str) -> bytes:
        """Return a complete request."""
        return "\r\n".join([f"GET {path} HTTP/1.1", f"Host: {self.host}", *fields, "", ""]).encode()

    async def has(self, count: int) -> None:
        """Wait until the server has this number of connections."""
        await eventually(lambda: len(self.registry._open) == count)


@asynccontextmanager
async def site(monkeypatch: pytest.MonkeyPatch, *, descriptors: int | None = None) -> AsyncIterator[Site]:
    """Yield a server in this process with a limit of descriptors."""
    made = list[Connections]()

    def connections_of_server() -> Connections:
        made.append(Connections(descriptors))
        return made[0]

    monkeypatch.setattr(server, "Connections", connections_of_server)
    until, address = asyncio.Event(), asyncio.get_running_loop().create_future()
    async with open_console() as client:
        doors = Authentication(client.runtime.clock, keys={key_digest(KEY): make_user("robot", rights=("read",))})
        serving = asyncio.ensure_future(
            server.serve(client.runtime, doors, host="127.0.0.1", port=0, ready=address.set_result, until=until)
        )
        found = Site((await address).partition("://")[2], made[0], [])
        try:
            yield found
        finally:
            for each in found.wires:
                each.writer.close()
            until.set()
            await asyncio.wait_for(serving, PATIENCE_SECONDS)


BY_KEY = f"Authorization: Bearer {KEY}"
LINE = b"X-Field: " + b"v" * 1_000 + b"\r\n"


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(LINE * (HTTP_HEAD_BYTES_MAX // 1_000 + 1) + b"\r\n", id="a whole head that is too large"),
        pytest.param(LINE * 200, id="many fields without an end"),
        pytest.param(b"X-Field: " + b"v" * 200_000, id="a line without an end"),
        pytest.param(b"a:\r\n" * (HTTP_FIELDS_MAX + 1), id="many short fields without an end"),
        pytest.param(b"a:\r\n" * (HTTP_FIELDS_MAX + 1) + b"\r\n", id="a whole head of many short fields"),
    ],
)
async def test_head_beyond_a_limit_is_refused(monkeypatch: pytest.MonkeyPatch, head: bytes) -> None:
    async with site(monkeypatch) as here:
        wire = await here.wire(f"GET / HTTP/1.1\r\nHost: {here.host}\r\n".encode() + head)
        text = await wire.rest()

    assert text.startswith(b"HTTP/1.1 431 ")
    assert b'"code":"head.size"' in text


async def test_endless_request_line_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async with site(monkeypatch) as here:
        text = await (await here.wire(b"GET /" + b"x" * 200_000)).rest()

    assert text.startswith(b"HTTP/1.1 431 ")


async def test_head_within_the_limits_is_accepted_in_any_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    async with site(monkeypatch) as here:
        large = here.get("/api/v1/kinds", BY_KEY, *(f"X-{number}: {'v' * 1_000}" for number in range(28)))
        assert HTTP_HEAD_BYTES_MAX * 0.8 < len(large) < HTTP_HEAD_BYTES_MAX
        wire = await here.wire()
        statuses = []
        for size in (len(large), 700, 17):
            for start in range(0, len(large), size):
                wire.send(large[start : start + size])
                await wire.writer.drain()
            statuses.append((await wire.answer())[0])

    assert [200, 200, 200] == statuses


@pytest.mark.parametrize("behind", [LINE * 200, b"X-Field: " + b"v" * 200_000, b"a:\r\n" * (HTTP_FIELDS_MAX + 1)])
async def test_trailers_are_limited_like_a_head(monkeypatch: pytest.MonkeyPatch, behind: bytes) -> None:
    async with site(monkeypatch) as here:
        fields = f"Host: {here.host}\r\nOrigin: http://{here.host}\r\nContent-Type: application/json\r\n"
        start = f"POST /api/v1/login HTTP/1.1\r\n{fields}Transfer-Encoding: chunked\r\n\r\n1\r\n{{\r\n0\r\n"
        text = await (await here.wire(start.encode() + behind)).rest()

    assert text.startswith(b"HTTP/1.1 431 ")


async def test_body_in_many_small_chunks_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async with site(monkeypatch) as here:
        fields = f"Host: {here.host}\r\nOrigin: http://{here.host}\r\nContent-Type: application/json\r\n"
        start = f"POST /api/v1/login HTTP/1.1\r\n{fields}Transfer-Encoding: chunked\r\n\r\n"
        body = f'{{"secret": "{KEY}", "more": "{"v" * 3_000}"}}'
        chunks = "".join(f"1;note={'n' * 20}\r\n{each}\r\n" for each in body)
        status, _ = await (await here.wire(f"{start}{chunks}0\r\n\r\n".encode())).answer()

    assert 200 == status


async def test_pipelined_requests_are_answered_in_order_up_to_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with site(monkeypatch) as here:
        wire = await here.wire(here.get("/none") + here.get("/api/v1/kinds", BY_KEY) + here.get("/api/v1/kinds"))
        statuses = [(await wire.answer())[0] for _ in range(3)]
        flood = await here.wire(here.get("/none") * (HTTP_PIPELINE_MAX + 1))
        await flood.rest()
        causes = dict(here.registry.causes)

    assert [404, 200, 401] == statuses
    assert {"request.pipeline": 1} == causes


@pytest.mark.parametrize(
    ("limit", "text", "more", "code"),
    [
        ("HTTP_HEAD_MS_MAX", "GET / HTTP/1.1\r\nHost: {host}\r\nX-Field: ", b"v", b"head.timeout"),
        ("HTTP_BODY_MS_MAX", "{login}Content-Length: 4000\r\n\r\n", b"v", b"body.timeout"),
        ("HTTP_BODY_MS_MAX", "{login}Transfer-Encoding: chunked\r\n\r\n", b"1\r\nv\r\n", b"body.timeout"),
    ],
)
async def test_slow_request_is_refused(
    monkeypatch: pytest.MonkeyPatch, limit: str, text: str, more: bytes, code: bytes
) -> None:
    monkeypatch.setattr(connections, limit, 100)
    async with site(monkeypatch) as here:
        origin = f"Origin: http://{here.host}\r\nContent-Type: application/json\r\n"
        login = f"POST /api/v1/login HTTP/1.1\r\nHost: {here.host}\r\n{origin}"
        wire = await here.wire(text.format(host=here.host, login=login).encode())

        async def trickle() -> None:
            while True:
                wire.send(more)
                await asyncio.sleep(0.01)

        trickling = asyncio.ensure_future(trickle())
        try:
            found = await wire.rest()
        finally:
            trickling.cancel()

    assert found.startswith(b"HTTP/1.1 408 ")
    assert code in found


@pytest.mark.parametrize("text", [b"", b"\r\n\r\n"])
async def test_connection_without_a_request_is_closed(monkeypatch: pytest.MonkeyPatch, text: bytes) -> None:
    monkeypatch.setattr(connections, "HTTP_HEAD_MS_MAX", 100)
    async with site(monkeypatch) as here:
        fresh = await (await here.wire(text)).rest()

    assert b"" == fresh


async def test_idle_keep_alive_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HTTP_IDLE_MS_MAX", 100)
    async with site(monkeypatch) as here:
        wire = await here.wire(here.get("/api/v1/kinds", BY_KEY))
        status, _ = await wire.answer()
        wire.send(b"\r\n")
        rest = await wire.rest()

    assert (200, b"") == (status, rest)


async def test_unread_body_of_an_answered_request_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "HTTP_LINGER_MS_MAX", 100)
    async with site(monkeypatch) as here:
        head = f"POST /api/v1/bulk HTTP/1.1\r\nHost: {here.host}\r\nContent-Length: 200000\r\n\r\n".encode()
        wire = await here.wire(head + b"x" * 50_000)
        status, _ = await wire.answer()
        (open_,) = here.registry._open
        kept = len(open_.cycle.body)
        rest = await wire.rest()

    assert (401, 0, b"") == (status, kept, rest)


async def test_upgrade_is_answered_and_later_bytes_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    async with site(monkeypatch) as here:
        ask = here.get("/api/v1/kinds", BY_KEY, "Connection: Upgrade", "Upgrade: websocket")
        wire = await here.wire(ask + here.get("/none"))
        wire.send(here.get("/none"))
        text = await wire.rest()

    assert [b"200"] == re.findall(rb"HTTP/1\.1 (\d+)", text)


async def test_trailers_are_not_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[list[bytes]]()
    answer = endpoint.EndpointApp.__call__

    async def noted(door: endpoint.EndpointApp, scope: Scope, receive: Receive, send: Send) -> None:
        await answer(door, scope, receive, send)
        seen.append([name for name, _ in scope["headers"]])

    monkeypatch.setattr(endpoint.EndpointApp, "__call__", noted)
    async with site(monkeypatch) as here:
        fields = f"Host: {here.host}\r\nOrigin: http://{here.host}\r\nContent-Type: application/json\r\n"
        body = f'{{"secret": "{KEY}"}}'
        chunk = f"{len(body):x}\r\n{body}\r\n0\r\nX-Late: yes\r\n\r\n"
        text = f"POST /api/v1/login HTTP/1.1\r\n{fields}Transfer-Encoding: chunked\r\n\r\n{chunk}"
        status, _ = await (await here.wire(text.encode())).answer()

    assert 200 == status
    assert [b"host", b"origin", b"content-type", b"transfer-encoding"] == seen[-1]


@pytest.mark.parametrize(
    "fields",
    [
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Content-Length: 5\r\nContent-Length: 6",
        "Transfer-Encoding: chunked, identity",
        "Content-Length: +5",
        " folded: yes",
        "Na me: value",
    ],
)
async def test_ambiguous_request_is_refused(monkeypatch: pytest.MonkeyPatch, fields: str) -> None:
    async with site(monkeypatch) as here:
        hidden = here.get("/api/v1/kinds", BY_KEY)
        text = f"POST /api/v1/login HTTP/1.1\r\nHost: {here.host}\r\n{fields}\r\n\r\n0\r\n\r\n".encode()
        found = await (await here.wire(text + hidden)).rest()

    assert [b"400"] == re.findall(rb"HTTP/1\.1 (\d+)", found)
    assert b"request.malformed" in found


async def test_new_connection_replaces_the_longest_idle_untrusted_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    async with site(monkeypatch, descriptors=DESCRIPTORS) as here:
        stream = await here.wire(here.get("/api/v1/streams/fleet", BY_KEY))
        await stream.reader.readuntil(b"retry")
        known = await here.wire(here.get("/api/v1/kinds", BY_KEY))
        await known.answer()
        strangers = list[Wire]()
        for number in range(3 * ROOM):
            strangers.append(await here.wire(here.get("/none") if number % 2 else b"GET / HTTP/1.1\r\n"))
            fresh = await here.wire(here.get("/api/v1/kinds", BY_KEY, "Connection: close"))
            assert 200 == (await fresh.answer())[0]
        known.send(here.get("/api/v1/kinds", BY_KEY))
        still = await known.answer()
        shed = here.registry.causes["shed"]
        is_open = not stream.reader.at_eof()
        await strangers[0].rest()

    assert (ROOM, 200, True) == (here.registry.limit, still[0], is_open)
    assert shed >= 2 * ROOM


async def test_new_connection_is_refused_while_all_others_send_responses(monkeypatch: pytest.MonkeyPatch) -> None:
    async with site(monkeypatch, descriptors=4) as here:
        streams = [await here.wire(here.get("/api/v1/streams/fleet", BY_KEY)) for _ in range(2)]
        for each in streams:
            await each.reader.readuntil(b"retry")
        text = await (await here.wire()).rest()
        streams[0].writer.close()
        await here.has(1)
        status, _ = await (await here.wire(here.get("/api/v1/kinds", BY_KEY))).answer()

    assert text.startswith(b"HTTP/1.1 503 ")
    assert b"Retry-After: 1" in text
    assert 200 == status


async def test_connection_whose_client_reads_nothing_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HTTP_STALL_MS_MAX", 100)
    async with site(monkeypatch) as here:
        wire = await here.wire(here.get("/api/v1/kinds", BY_KEY))
        await wire.answer()
        wire.pause()
        (open_,) = here.registry._open
        open_.transport.write(b"x" * 20_000_000)  # more than the kernel buffers
        await here.has(0)
        causes = set(here.registry.causes)

    assert {"stall"} == causes


async def test_total_of_unread_bytes_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    async with site(monkeypatch) as here:
        wires = [await here.wire(here.get("/api/v1/kinds", BY_KEY)) for _ in range(2)]
        for each in wires:
            await each.answer()
        for each in wires:
            each.pause()
        for number, open_ in enumerate(here.registry._open, start=1):
            open_.transport.write(b"x" * 20_000_000 * number)  # more than the kernel buffers
        monkeypatch.setattr(connections, "HTTP_UNREAD_BYTES_MAX", 30_000_000)
        await here.has(1)
        (left,) = here.registry._open
        causes, unread = dict(here.registry.causes), left.transport.get_write_buffer_size()
        left.transport.abort()

    assert {"unread": 1} == causes
    assert unread <= 20_000_000


async def test_refused_connections_are_counted_and_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with site(monkeypatch) as here:
        with caplog.at_level(logging.DEBUG):
            for _ in range(20):
                await (await here.wire(b"nonsense\r\n\r\n")).rest()
            await eventually(lambda: "connections closed" in caplog.text)
            causes = dict(here.registry.causes)

    assert {"request.malformed": 20} == causes
    assert len([each for each in caplog.records if each.levelno >= logging.INFO]) < 10


async def test_running_out_of_descriptors_closes_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    async with site(monkeypatch) as here:
        await here.wire()
        await here.has(1)
        loop, passed = asyncio.get_running_loop(), list[dict[str, object]]()
        monkeypatch.setattr(loop, "default_exception_handler", passed.append)
        for _ in range(50):
            full = OSError(errno.EMFILE, "Too many open files")
            loop.call_exception_handler({"message": "socket.accept() out of system resource", "exception": full})
        loop.call_exception_handler({"message": "something else"})
        await here.has(0)
        causes = dict(here.registry.causes)

    assert {"no_descriptors": 50, "shed": 1} == causes
    assert ["something else"] == [each["message"] for each in passed]


@pytest.mark.parametrize(
    ("descriptors", "most", "accepts"),
    [(1_048_576, HTTP_CONNECTIONS_MAX, 32), (1_024, 768, 32), (256, 128, 16), (16, 8, 1), (1, 1, 1)],
)
def test_connections_leave_descriptors_for_the_process(descriptors: int, most: int, accepts: int) -> None:
    made = Connections(descriptors)

    assert (most, accepts) == (made.limit, made.accepts)


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("2001:db8:1:2:3:4:5:6", "20010db800010002"),
        ("2001:db8:1:2::9", "20010db800010002"),
        ("fe80::1%eth0", "fe80000000000000"),
        ("not:an:address", "not:an:address"),
    ],
)
def test_ipv6_addresses_are_counted_by_network(host: str, network: str) -> None:
    assert network == connections._network(host)
