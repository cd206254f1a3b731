"""The probe server and readiness: what they answer, and what they refuse."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path

import pytest

import interlock
from interlock.errors import InternalError, UnavailableError, UsageError
from interlock.runtime.runtime import Runtime
from interlock.stores.registry import upgrade_script
from interlock.testing.clock import VirtualClock
from interlock.web.probe import HEAD_BYTES_MAX, ProbeServer, parse_address
from interlock.web.readiness import ANSWER_MS_MAX, SCHEMA_MS, Readiness
from tests.support.eventually import eventually
from tests.unit.observe.metrics.scrapes import ORDER


async def nothing_missing() -> str | None:
    """A schema that is complete."""
    return ""


@asynccontextmanager
async def ready(url: str = "memory:", clock: VirtualClock | None = None) -> AsyncIterator[tuple[Runtime, Readiness]]:
    """The readiness of an open runtime."""
    check = nothing_missing if url == "memory:" else partial(upgrade_script, url)
    readiness = Readiness(check)
    charts = [interlock.loads(ORDER)]
    async with interlock.open(url, charts=charts, clock=clock or VirtualClock(), work=False) as runtime:
        readiness.open(runtime)
        yield runtime, readiness


async def codes(readiness: Readiness) -> list[str]:
    """Why a process is not ready."""
    return [each.code for each in await readiness.reasons()]


# Readiness


async def test_a_process_is_ready_from_the_opening_of_its_store_to_its_drain() -> None:
    readiness = Readiness(nothing_missing)
    assert ["starting"] == await codes(readiness)
    async with ready() as (runtime, known):
        before = await codes(known)
        await runtime.drain(0)
        assert [] == before
        assert ["draining"] == await codes(known)


async def test_a_store_that_fails_or_does_not_answer_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = VirtualClock()
    never = asyncio.Event()

    async def fail() -> tuple[str, ...]:
        raise UnavailableError("cannot reach postgresql://user:secret@host", code="store.unreachable")

    async def hang() -> tuple[str, ...]:
        await never.wait()
        return ()

    async with ready(clock=clock) as (runtime, readiness):
        with monkeypatch.context() as broken:
            broken.setattr(runtime.store, "kinds", fail)
            failed = await readiness.reasons()
            broken.setattr(runtime.store, "kinds", hang)
            asked = asyncio.ensure_future(readiness.reasons())

            async def is_answered() -> bool:
                await clock.advance(ANSWER_MS_MAX)
                return asked.done()

            await eventually(is_answered, "an answer")
        again = await codes(readiness)

    assert ["store.unreachable"] == [each.code for each in failed]
    assert "secret" not in failed[0].text
    assert ["store.unreachable"] == [each.code for each in await asked]
    assert [] == again


async def test_a_schema_that_this_release_cannot_use_is_a_reason(tmp_path: Path) -> None:
    """Another process has upgraded the store while this one runs; it is noticed at the next look."""
    clock, path = VirtualClock(), tmp_path / "orders.db"
    async with ready(f"sqlite:///{path}", clock) as (_, readiness):
        found = [await codes(readiness)]
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("INSERT INTO schema_version (version, name, oldest_reader) VALUES (999, 'x', 999)")
        found.append(await codes(readiness))
        clock.time_ms += SCHEMA_MS
        found.append(await codes(readiness))
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("UPDATE schema_version SET oldest_reader = 1 WHERE version = 999")
        clock.time_ms += SCHEMA_MS
        found.append(await codes(readiness))

    assert [[], [], ["schema.newer"], []] == found


async def test_a_store_that_went_back_in_time_is_a_reason() -> None:
    async with ready() as (runtime, readiness):
        runtime.entities.stop("order/1", 1, 2)
        (reason,) = await codes(readiness)

    assert reason.startswith("store.")


# The server


@asynccontextmanager
async def probed(readiness: Readiness) -> AsyncIterator[tuple[ProbeServer, int]]:
    """A server on a free port."""
    server = ProbeServer(readiness)
    port = await server.start("127.0.0.1", 0)
    try:
        yield server, port
    finally:
        await server.close()


async def talk(port: int, request: bytes) -> bytes:
    """Send bytes, and return everything that is answered until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    await writer.drain()
    try:
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET /livez HTTP/1.1", 200),
        (b"GET /readyz HTTP/1.0", 503),
        (b"GET /readyz?verbose HTTP/1.1", 503),
        (b"GET /metrics HTTP/1.1", 503),
        (b"GET / HTTP/1.1", 404),
        (b"POST /livez HTTP/1.1", 405),
        (b"GET /livez", 400),
        (b"\xff\x00", 400),
    ],
)
async def test_a_request_gets_its_status(request_line: bytes, status: int) -> None:
    async with probed(Readiness(nothing_missing)) as (_, port):
        answer = await talk(port, request_line + b"\r\nHost: x\r\n\r\n")
        head, _, body = answer.partition(b"\r\n\r\n")

    assert str(status).encode() == head.split(b" ")[1]
    assert f"Content-Length: {len(body)}".encode() in head
    json.loads(body)


async def test_a_head_request_has_no_body() -> None:
    async with probed(Readiness(nothing_missing)) as (_, port):
        answer = await talk(port, b"HEAD /livez HTTP/1.1\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\n")


async def test_a_head_that_is_too_large_or_cut_is_not_answered_and_the_next_request_is() -> None:
    async with probed(Readiness(nothing_missing)) as (_, port):
        large = await talk(port, b"GET /livez HTTP/1.1\r\nX: " + b"x" * (2 * HEAD_BYTES_MAX) + b"\r\n\r\n")
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /li")
        writer.write_eof()
        cut = await reader.read()
        writer.close()
        after = await talk(port, b"GET /livez HTTP/1.1\r\n\r\n")

    assert (b"", b"") == (large, cut)
    assert after.startswith(b"HTTP/1.1 200")


async def test_an_unreachable_store_is_an_answer_of_metrics() -> None:
    async def fail() -> bytes:
        raise UnavailableError("away", code="store.unreachable")

    async with probed(Readiness(nothing_missing)) as (server, port):
        server.show_metrics(fail)
        answer = await talk(port, b"GET /metrics HTTP/1.1\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 503")
    assert answer.endswith(b'{"error":"store.unreachable"}')


async def test_a_port_in_use_names_the_option() -> None:
    async with probed(Readiness(nothing_missing)) as (_, port):
        with pytest.raises(UnavailableError) as raised:
            await ProbeServer(Readiness(nothing_missing)).start("127.0.0.1", port)

    assert ("serve.port", True) == (raised.value.code, "--probe" in str(raised.value.hint))


@pytest.mark.parametrize(
    ("text", "expected"),
    [(":8471", ("0.0.0.0", 8471)), ("127.0.0.1:0", ("127.0.0.1", 0)), ("[::1]:8471", ("::1", 8471))],
)
def test_an_address_has_a_port(text: str, expected: tuple[str, int]) -> None:
    assert expected == parse_address(text)


@pytest.mark.parametrize("text", ["8471", ":", ":x", ":65536", "::1:8471", "http://x:1", ""])
def test_an_invalid_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_address(text)

    assert "probe.address" == raised.value.code
    assert not isinstance(raised.value, InternalError)
