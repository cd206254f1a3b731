"""Refusals on Temporal: they leave no trace in a history, and do not use up a key."""

from __future__ import annotations

import asyncio

import pytest

import interlock
from interlock.engines.temporal.store import TemporalStore
from interlock.errors import ConflictError, RejectedError, UnavailableError, UsageError
from interlock.ports.trust.authorizer import Allow, AuthorizationRequest, Decision, Deny
from interlock.runtime.runtime import Runtime
from tests.servers.temporal.lives import Ledger, charts
from tests.support.temporal_server import private_namespace, server_or_skip

pytestmark = [pytest.mark.xdist_group("temporal")]

GUARDED = """
interlock: 1
kind: lamp
context: {watts: {type: integer, required: true, min: 1}}
events: {on: {roles: [owner]}, off: {roles: [owner]}}
states:
  dark: {on: {on: lit}}
  lit: {on: {off: dark, on: {}}}
"""


async def _length(runtime: Runtime, entity: str) -> int:
    store = runtime.store
    assert isinstance(store, TemporalStore)
    return len((await store.client.get_workflow_handle(entity).fetch_history()).events)


async def test_what_changes_nothing_leaves_no_history() -> None:
    """Denied, rejected, ignored, a duplicate, and a wrong version."""
    url = await private_namespace(server_or_skip())
    owner = {"id": "ada", "roles": ["owner"]}
    async with interlock.open(url, charts=[interlock.loads(GUARDED)]) as runtime:
        await runtime.create("lamp/1", {"watts": 5}, key="c")
        assert (await runtime.send("lamp/1", "off", key="o", principal=owner)).outcome == "rejected"
        (await runtime.send("lamp/1", "on", key="a", principal=owner)).expect()
        before = await _length(runtime, "lamp/1")
        found = [
            (await runtime.send("lamp/1", "on", key="b")).outcome,
            (await runtime.send("lamp/1", "on", key="d", principal=owner)).outcome,
            (await runtime.send("lamp/1", "on", key="a", principal=owner)).outcome,
            (await runtime.send("lamp/1", "on", key="a")).outcome,
        ]
        with pytest.raises(ConflictError):
            await runtime.send("lamp/1", "off", expected=1, principal=owner)
        with pytest.raises(UsageError) as reused:
            await runtime.send("lamp/1", "off", key="a", principal=owner)

        assert found == ["denied", "ignored", "duplicate", "denied"]
        assert reused.value.code == "key.reused"
        assert await _length(runtime, "lamp/1") == before
        (await runtime.send("lamp/1", "off", key="o", principal=owner)).expect()  # the key of a refusal is free


async def test_a_context_that_the_chart_refuses_starts_no_workflow() -> None:
    url = await private_namespace(server_or_skip())
    async with interlock.open(url, charts=[interlock.loads(GUARDED)]) as runtime:
        with pytest.raises(RejectedError):
            await runtime.create("lamp/1", {"watts": 0})
        assert (await runtime.create("lamp/1", {"watts": 1}, key="c")).outcome == "applied"
        assert (await runtime.create("lamp/1", {"watts": 1}, key="c")).outcome == "duplicate"
        assert (await runtime.create("lamp/1", {"watts": 1}, key="d")).reason == "entity.exists"


async def test_an_event_after_the_end_is_answered_as_in_memory() -> None:
    url = await private_namespace(server_or_skip())
    found = []
    for each in ("memory:", url):
        async with interlock.open(each, charts=charts(Ledger())) as runtime:
            await runtime.create("shop/1", {}, key="c")
            (await runtime.send("shop/1", "close", key="x")).expect()
            late = await runtime.send("shop/1", "close", key="y")
            again = await runtime.send("shop/1", "close", key="x")
            create = await runtime.create("shop/1", {}, key="c")
            found.append([(one.outcome, one.reason, one.version) for one in (late, again, create)])

    assert found[0] == found[1] == [("rejected", "ended", 2), ("duplicate", None, 2), ("duplicate", None, 1)]


async def test_the_authorizer_of_the_program_decides_on_the_version_that_is_stepped() -> None:
    """Callers race; the authorizer sees every version that it allows an event for."""
    url = await private_namespace(server_or_skip())
    asked: list[int] = []

    class OnlyTen:
        is_async = False

        def decide(self, request: AuthorizationRequest, /) -> Decision:
            if request.snapshot is None or request.action != "send":
                return Allow()
            asked.append(request.snapshot.version)
            return Allow() if request.snapshot.version < 10 else Deny("enough")

    async with (
        interlock.open(url, charts=charts(Ledger()), authorizer=OnlyTen()) as one,
        interlock.open(url, charts=charts(Ledger()), authorizer=OnlyTen(), work=False) as two,
    ):
        await one.create("shop/1", {}, key="c")
        sends = [each.send("shop/1", "poke", number) for number in range(8) for each in (one, two)]
        outcomes = [each.outcome for each in await asyncio.gather(*sends)]

        assert sorted(outcomes) == ["applied"] * 9 + ["denied"] * 7
        assert (await one.state("shop/1")).version == 10
        assert set(range(1, 11)) <= set(asked)


async def test_without_a_worker_a_call_ends_with_the_name_of_the_queue() -> None:
    """Creation needs no worker."""
    url = await private_namespace(server_or_skip(), wait="1s")
    async with interlock.open(url, charts=charts(Ledger()), work=False) as runtime:
        assert (await runtime.create("shop/1", {}, key="c")).outcome == "applied"
        with pytest.raises(UnavailableError) as refused:
            await runtime.send("shop/1", "close", key="x")

    assert refused.value.code == "engine.no_worker"
    assert "-shop" in str(refused.value)


async def test_what_temporal_cannot_do_is_refused_with_the_alternative() -> None:
    url = await private_namespace(server_or_skip())
    with pytest.raises(UsageError) as bus:
        async with interlock.open(url, charts=charts(Ledger()), bus="memory:x"):
            pass
    with pytest.raises(UsageError) as moves:
        async with interlock.open(url, charts=charts(Ledger()), upgrade="safe"):
            pass
    with pytest.raises(UsageError) as unknown:
        async with interlock.open(url.replace("/n", "/nowhere-n", 1), charts=charts(Ledger())):
            pass

    assert [each.value.code for each in (bus, moves)] == ["engine.unsupported"] * 2
    assert unknown.value.code == "engine.namespace"
