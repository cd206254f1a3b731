"""The inbox: signed envelopes become events, each once; and everything else is refused without a word."""

from __future__ import annotations

import json
import logging
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

import interlock
from interlock.model.limits import ENVELOPE_AGE_MS_MAX, PAYLOAD_BYTES_MAX
from interlock.model.webhook_signature import parse_key, sign
from interlock.ports.replaced_file import replace_file
from interlock.ports.store import (
    Append,
    AppendResult,
)
from interlock.runtime.runtime import Runtime
from interlock.stores.memory import MemoryStore
from interlock.testing.clock import VirtualClock
from interlock.web.app import application
from interlock.web.auth import Authentication
from interlock.web.key_file_watcher import KeyFileWatcher
from tests.unit.web.consoles import ORIGIN, order

NEW, OLD = (f"whsec_{b64encode(each * 32).decode()}" for each in (b"n", b"o"))
SENDERS = f"""
[[sender]]
id = "till"
secrets = [{{id = "old", secret = "{OLD}"}}, {{id = "new", secret = "{NEW}"}}]
roles = ["payments"]

[[sender]]
id = "shop"
secrets = [{{id = "new", secret = "{NEW}"}}]
roles = ["payments", "support"]
kinds = ["order"]
entity = "= 'order/' + event.data.number"
event = "order.cancelled"
payload = "= null"

[rates.anonymous]
per_second = 1000
burst = 1000
"""
START_MS = 1_790_000_000_000
PAID = {
    "specversion": "1.0",
    "id": "1",
    "source": "/till",
    "type": "payment.confirmed",
    "subject": "order/1",
    "data": {"id": "p-1"},
}


class Box:
    """A sender of envelopes to a console."""

    def __init__(self, http: httpx.AsyncClient, clock: VirtualClock, runtime: Runtime) -> None:
        self._http = http
        self.clock = clock
        self.runtime = runtime

    async def post(
        self,
        body: Any = None,
        *,
        to: str = "till",
        secret: str = NEW,
        message_id: str = "m-1",
        seconds: int | None = None,
        sent: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> httpx.Response:
        """Send an envelope: signed for `body`, with `sent` in its place if given."""
        signed = json.dumps(PAID if body is None else body).encode() if not isinstance(body, bytes) else body
        seconds = self.clock.time_ms // 1000 if seconds is None else seconds
        given = {
            "webhook-id": message_id,
            "webhook-timestamp": str(seconds),
            "webhook-signature": sign([parse_key(secret, "a test")], message_id, seconds, signed),
            **(headers or {}),
        }
        given = {name: value for name, value in given.items() if value != "-"}
        return await self._http.post(f"/api/v1/inbox/{to}", content=signed if sent is None else sent, headers=given)

    async def states(self, entity: str = "order/1") -> tuple[str, ...]:
        """The states of an entity."""
        return (await self.runtime.state(entity)).configuration


class Failing(MemoryStore):
    """A memory store whose next append fails."""

    fails = False

    async def append(self, append: Append) -> AppendResult:
        """Fail once, or append."""
        if self.fails:
            self.fails = False
            raise interlock.UnavailableError("the disk is away", code="store.away")
        return await super().append(append)


@asynccontextmanager
async def box(folder: Path, *, store: Failing | None = None, read_only: bool = False) -> AsyncIterator[Box]:
    """Yield a sender to a console with an order."""
    clock, file = VirtualClock(START_MS), folder / "keys.toml"
    replace_file(file, SENDERS.encode(), mode=0o600)
    bound = order()
    opened = interlock.open("memory:", charts=[bound], clock=clock, work=False)
    async with opened as own:
        runtime = own if store is None else Runtime(store, own.charts, clock)
        await runtime.create("order/1", {"amount": 1})
        access = Authentication(clock, key_file=KeyFileWatcher(file, clock))
        app, console = application(runtime, access, origins=[ORIGIN], read_only=read_only)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url=ORIGIN) as http:
            yield Box(http, clock, runtime)
        await console.close()


async def test_an_envelope_becomes_an_event_of_its_sender_once(tmp_path: Path) -> None:
    async with box(tmp_path) as till:
        first, again = await till.post(), await till.post(secret=OLD)
        entry = (await till.runtime.journal("order/1"))[-1]

    assert (200, {"outcome": "applied", "entity": "order/1", "version": 2}) == (first.status_code, first.json())
    assert (200, "duplicate", 2) == (again.status_code, again.json()["outcome"], again.json()["version"])
    assert {"id": "till", "kind": "service", "roles": ["payments"]} == entry.event.principal
    assert ("_env/till/m-1", "till/m-1") == (entry.key, entry.event.key)


async def test_the_same_id_of_two_senders_is_two_keys(tmp_path: Path) -> None:
    async with box(tmp_path) as till:
        paid = await till.post()
        cancelled = await till.post({"number": "1"}, to="shop")

    assert ["applied", "rejected"] == [each.json()["outcome"] for each in (paid, cancelled)]
    assert 200 == cancelled.status_code  # not accepted in this state: an answer, not a failure


async def test_another_body_under_the_id_of_an_applied_envelope_is_not_applied(tmp_path: Path) -> None:
    async with box(tmp_path) as till:
        await till.post()
        other = await till.post({**PAID, "data": {"id": "p-2"}})
        snapshot, journal = await till.runtime.state("order/1"), await till.runtime.journal("order/1")

    assert (200, "duplicate") == (other.status_code, other.json()["outcome"])
    assert ("p-1", 2) == (snapshot.context["payment"], len(journal))


def refusals() -> dict[str, tuple[dict[str, Any], str]]:
    """Envelopes that are not authentic or not recent, and the reason in the log."""
    body, now = json.dumps(PAID).encode(), START_MS // 1000
    late = ENVELOPE_AGE_MS_MAX // 1000 + 1
    swapped = json.dumps({**PAID, "subject": "order/2"}).encode()
    return {
        "unknown sender": ({"to": "nobody"}, "envelope.sender"),
        "wrong secret": ({"secret": f"whsec_{b64encode(b'x' * 32).decode()}"}, "envelope.signature"),
        "unsigned": ({"headers": {"webhook-signature": "-"}}, "envelope.signature"),
        "altered byte": ({"sent": body.replace(b"p-1", b"p-2")}, "envelope.signature"),
        "swapped body": ({"sent": swapped}, "envelope.signature"),
        "no body": ({"sent": b""}, "envelope.signature"),
        "another id": ({"headers": {"webhook-id": "m-2"}}, "envelope.signature"),
        "another time": ({"headers": {"webhook-timestamp": str(now - 1)}}, "envelope.signature"),
        "id with a full stop": ({"message_id": f"m.{now}"}, "envelope.id"),
        "bytes moved into the id": (
            {"headers": {"webhook-id": f"m-1.{now}", "webhook-timestamp": "7"}},
            "envelope.id",
        ),
        "no id": ({"headers": {"webhook-id": "-"}}, "envelope.id"),
        "long id": ({"message_id": "m" * 257}, "envelope.id"),
        "time with a blank": ({"headers": {"webhook-timestamp": f"{now}.0"}}, "envelope.timestamp"),
        "no time": ({"headers": {"webhook-timestamp": "-"}}, "envelope.timestamp"),
        "old": ({"seconds": now - late}, "envelope.age"),
        "from the future": ({"seconds": now + late}, "envelope.age"),
    }


@pytest.mark.parametrize("name", refusals())
async def test_an_envelope_that_is_not_authentic_is_refused_without_detail(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    options, code = refusals()[name]
    caplog.set_level(logging.INFO, "interlock.web")
    async with box(tmp_path) as till:
        plain = await till.post(secret=f"whsec_{b64encode(b'y' * 32).decode()}")
        caplog.clear()
        answer = await till.post(**options)
        states = await till.states()
        entries = await till.runtime.journal("order/1")

    assert (401, plain.content) == (answer.status_code, answer.content)
    assert [code] == [vars(each)["code"] for each in caplog.records if each.message == "an envelope was refused"]
    assert (("unpaid",), 1) == (states, len(entries))


async def test_the_age_limit_counts_both_ways_to_the_second(tmp_path: Path) -> None:
    edge = ENVELOPE_AGE_MS_MAX // 1000
    async with box(tmp_path) as till:
        answers = [
            await till.post({**PAID, "subject": "order/9"}, seconds=START_MS // 1000 + shift, message_id=f"m{shift}")
            for shift in (-edge, edge)
        ]

    assert [404, 404] == [each.status_code for each in answers]  # authentic; there is no such order
    assert {"entity.unknown"} == {each.json()["code"] for each in answers}


@pytest.mark.parametrize(
    ("body", "options", "status", "code"),
    [
        (b"no JSON", {}, 400, "envelope.malformed"),
        (b"[" * 100_000, {}, 400, "envelope.malformed"),
        (b"\xff", {}, 400, "envelope.malformed"),
        ({"type": "payment.confirmed"}, {}, 400, "envelope.meaning"),
        ([1], {}, 400, "envelope.meaning"),
        ({**PAID, "subject": 5}, {}, 400, "envelope.meaning"),
        ({**PAID, "subject": "order"}, {}, 400, "entity.malformed"),
        ({**PAID, "type": "payment.confirmedd"}, {}, 400, "event.unknown"),
        ({**PAID, "type": "done.invoke.x"}, {}, 400, "event.reserved"),
        ({**PAID, "type": "_create"}, {}, 400, "event.reserved"),
        ({**PAID, "data": {"id": 5}}, {}, 400, "event.payload"),
        ({**PAID, "type": "parcel.shipped"}, {}, 403, "envelope.denied"),
        ({**PAID, "subject": "interlock-job/1"}, {}, 403, "kind.own"),
        ({"number": "7"}, {"to": "shop"}, 404, "entity.unknown"),
        (b"x" * (PAYLOAD_BYTES_MAX + 1), {}, 413, "body.size"),
    ],
)
async def test_an_authentic_envelope_that_means_nothing_says_what_is_wrong(
    tmp_path: Path, body: Any, options: dict[str, Any], status: int, code: str
) -> None:
    async with box(tmp_path) as till:
        answer = await till.post(body, **options)
        states = await till.states()

    assert (status, code) == (answer.status_code, answer.json()["code"])
    assert ("unpaid",) == states


async def test_the_retry_of_a_failed_append_is_not_a_duplicate(tmp_path: Path) -> None:
    store = Failing()
    async with box(tmp_path, store=store) as till:
        store.fails = True
        failed = await till.post()
        retried = await till.post()
        again = await till.post()

    assert 503 == failed.status_code
    assert "disk" not in failed.text
    assert "retry-after" in failed.headers
    assert ["applied", "duplicate"] == [each.json()["outcome"] for each in (retried, again)]


async def test_a_read_only_console_takes_no_envelopes(tmp_path: Path) -> None:
    async with box(tmp_path, read_only=True) as till:
        answer, unsigned = await till.post(), await till.post(secret=f"whsec_{b64encode(b'y' * 32).decode()}")

    assert (403, "console.read_only") == (answer.status_code, answer.json()["code"])
    assert 401 == unsigned.status_code


async def test_a_browser_needs_no_cookie_and_gains_nothing_by_one(tmp_path: Path) -> None:
    async with box(tmp_path) as till:
        answer = await till.post(headers={"Cookie": "interlock=x", "Origin": "https://evil.test"})

    assert "applied" == answer.json()["outcome"]  # the signature decides, and no browser has the secret
