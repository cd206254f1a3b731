"""`/metrics` of the console: who gets the text, and what is never in it."""

from __future__ import annotations

import httpx
import pytest

import interlock
from interlock.testing.clock import VirtualClock
from interlock.trust.api_keys import key_digest
from interlock.trust.users import User
from interlock.web.app import application
from interlock.web.auth import Authentication
from tests.unit.observe.metrics.scrapes import ACCOUNT, ORDER, names, parsed, value

ORIGIN = "http://console.test"
OWNED = """
interlock: 1
kind: note
context: {owner: {type: string, default: ada, index: true}}
read: {roles: [clerk], owner: owner}
initial: open
states: {open: {}}
"""


def user(name: str, *, kinds: frozenset[str] | None = None) -> User:
    """A user with the right to read."""
    return User(principal={"id": name, "roles": []}, rights=frozenset(["read"]), kinds=kinds)


KEYS = {
    key_digest("reader"): user("reader"),
    key_digest("narrow"): user("narrow", kinds=frozenset(["order"])),
    key_digest("none"): User(principal={"id": "none", "roles": []}, rights=frozenset(["read:audit"])),
}


async def ask(key: str | None, *texts: str) -> httpx.Response:
    """Ask a console for its metrics, twice: the first scrape starts to count."""
    clock = VirtualClock()
    charts = [interlock.loads(each) for each in texts]
    async with interlock.open("memory:", charts=charts, clock=clock, work=False) as runtime:
        app, console = application(runtime, Authentication(clock, keys=KEYS), origins=[ORIGIN])
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        transport = httpx.ASGITransport(app=app)
        try:
            async with httpx.AsyncClient(transport=transport, base_url=ORIGIN, headers=headers) as client:
                await client.get("/metrics")
                for chart in charts:
                    await runtime.create(f"{chart.chart.kind}/1")
                clock.time_ms += 60_000
                return await client.get("/metrics")
        finally:
            await console.close()
            assert runtime.entities.process.meter is None


async def test_a_key_that_may_see_every_kind_gets_the_metrics() -> None:
    answer = await ask("reader", ORDER)
    found = parsed(answer.content)

    assert (200, "text/plain; version=0.0.4; charset=utf-8") == (answer.status_code, answer.headers["content-type"])
    assert 1 == value(found, "interlock_entities", kind="order", state="unpaid")
    assert 1 == value(found, "interlock_transitions_total", kind="order", event="_create", outcome="applied")


@pytest.mark.parametrize(("key", "status"), [(None, 401), ("wrong", 401), ("none", 403), ("narrow", 403)])
async def test_others_get_nothing(key: str | None, status: int) -> None:
    answer = await ask(key, ORDER)

    assert (status, False) == (answer.status_code, "interlock_entities" in answer.text)


async def test_a_key_that_may_not_read_all_entities_of_a_kind_gets_nothing() -> None:
    answer = await ask("reader", OWNED)

    assert (403, "metrics.kinds") == (answer.status_code, answer.json()["code"])
    assert "note" not in answer.text


async def test_hidden_states_are_not_in_the_metrics() -> None:
    answer = await ask("reader", ORDER, ACCOUNT)

    assert 200 == answer.status_code
    assert "account" not in answer.text
    assert "interlock_entities" in names(parsed(answer.content))
