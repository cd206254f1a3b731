"""Commands on a PostgreSQL server."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from interlock.model.journal.work import Work, WorkDelta, WorkId
from interlock.ports.clock import SystemClock
from interlock.ports.work import Settlement
from interlock.stores.registry import open_store as open_store_url
from interlock.stores.sql import work_lists
from interlock.testing.store_suite.samples import Life
from tests.support.cli import Caller
from tests.support.postgres_server import store_or_skip
from tests.unit.cli.test_stores import CHARTED


def test_the_commands_work_on_a_server_and_never_print_its_password(call: Caller, folder: Path) -> None:
    url = store_or_skip()
    secret = url.partition("@")[0].rpartition(":")[2]
    ended = [
        call(*words)
        for words in (
            ("db", "upgrade", url),
            ("db", "status", url),
            ("create", url, "lamp/1", *CHARTED),
            ("send", url, "lamp/1", "press", *CHARTED),
            ("show", url, "lamp/1", *CHARTED, "--at", "1"),
            ("ls", url, "--kind", "lamp"),
            ("journal", url, "lamp/1"),
            ("verify", url, *CHARTED),
        )
    ]
    wrong = [call("ls", url.replace("127.0.0.1", "127.0.0.1:1")), call("ls", url.replace("schema=", "schma="))]

    assert [0] * len(ended) == [each.code for each in ended]
    assert "1 entity, 2 entries" in ended[-1].out
    assert 0 not in {each.code for each in wrong}
    assert len(secret) > 5
    assert not any(secret in each.out + each.err for each in (*ended, *wrong))


@pytest.mark.parametrize("place", ["files", "server"])
def test_work_is_the_same_to_a_person_on_every_store(call: Caller, folder: Path, place: str) -> None:
    url = "file:orders" if place == "files" else store_or_skip()
    asyncio.run(_dead_letters(url))
    listed = call("effects", "ls", url, "--dead")
    retried = call("effects", "retry", url, "order/1/1/0")
    dropped = call("effects", "drop", url, "order/1/1/1")
    left = json.loads(call("effects", "ls", url, "--json").out)["rows"]

    assert ["order/1/1/0", "order/1/1/1"] == [line.split()[0] for line in listed.out.splitlines()]
    assert 2 == listed.out.count("  ConnectionError: gone\n")
    assert (0, 0) == (retried.code, dropped.code)
    assert [("order/1/1/0", 0, None)] == [(each["key"], each["attempts"], each["dead_ms"]) for each in left]


def test_work_behind_much_that_is_not_asked_for_is_found(call: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_lists, "WALK_MAX", 1)
    url = store_or_skip()
    asyncio.run(_dead_letters(url))
    asyncio.run(_left(url, "order/2", "call"))
    listed = call("effects", "ls", url, "--name", "call")
    none = call("effects", "ls", url, "--name", "nobody")

    assert ["order/2/1/0"] == [line.split()[0] for line in listed.out.splitlines()]
    assert ("", "no pending work\n") == (none.out, none.err)


async def _left(url: str, entity: str, name: str) -> None:
    store, now_ms = await open_store_url(url), SystemClock().now_ms()
    try:
        work = Work(WorkId("effect", 1, 0), name, {"name": name}, now_ms)
        await store.append(replace(Life(entity, time_ms=now_ms).created(), left=WorkDelta((work,))))
    finally:
        await store.close()


async def _dead_letters(url: str) -> None:
    store, now_ms = await open_store_url(url), SystemClock().now_ms()
    try:
        assert store.work is not None
        works = tuple(Work(WorkId("effect", 1, each), "mail", {"name": "mail"}, now_ms) for each in (0, 1))
        await store.append(replace(Life("order/1", time_ms=now_ms).created(), left=WorkDelta(works)))
        claims = await store.work.claim("effect", ("mail",), owner="w", now_ms=now_ms, until_ms=now_ms + 9_000, limit=9)
        facts = {"code": "ConnectionError", "message": "gone"}
        await store.work.settle(tuple(Settlement(each, "dead", error=facts) for each in claims), now_ms=now_ms)
    finally:
        await store.close()
