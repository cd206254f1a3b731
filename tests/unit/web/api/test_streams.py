"""Live streams of entries and of changed kinds."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.model.limits import KEY_FILE_AGE_MS, STREAMS_MAX
from interlock.ports.replaced_file import replace_file
from interlock.testing.clock import VirtualClock
from interlock.trust.api_keys import key_digest
from interlock.web.api import streams as live
from interlock.web.api.streams import BEHIND_MAX, CHANGES_MS, HEARTBEAT_MS
from interlock.web.app import application
from interlock.web.auth import SESSION_IDLE_MS_MAX, SESSION_MS_MAX, Authentication
from interlock.web.key_file_watcher import KeyFileWatcher
from tests.support.eventually import PATIENCE_SECONDS, eventually
from tests.unit.web.consoles import KEY, ORDER, Stream, create_orders, make_user, open_console, order

PAYER = {"id": "till", "roles": ["payments"]}


async def test_entry_is_streamed_when_it_is_written() -> None:
    async with open_console() as client:
        await create_orders(client)
        stream = Stream(client, "streams/entity/order/A-1")
        await stream.until("event: hello")
        await client.runtime.send("order/A-1", "payment.confirmed", {"id": "p"}, principal=PAYER)
        text = await stream.until('"version":2')
        await stream.close()

    assert 200 == stream.status
    assert "id: order/A-1@2\nevent: entry\n" in text


async def test_reconnecting_client_continues_after_its_last_event() -> None:
    async with open_console() as client:
        await create_orders(client)
        await client.runtime.send("order/A-2", "parcel.shipped", principal={"id": "w", "roles": ["warehouse"]})
        stream = Stream(client, "streams/entity/order/A-2", {"last-event-id": "order/A-2@1"})
        text = await stream.until("@3")
        await stream.close()

    assert ["@2", "@3"] == [line[-2:] for line in text.splitlines() if line.startswith("id: ")]


async def test_client_that_is_too_far_behind_gets_a_gap() -> None:
    async with open_console() as client:
        await create_orders(client)
        life = client.runtime.store
        behind = Stream(client, "streams/entity/order/A-1?after=0", {"last-event-id": f"order/A-1@{BEHIND_MAX * 9}"})
        text = await behind.until("event: gap")
        await behind.close()

    assert '{"version":1}' in text
    assert life is client.runtime.store


async def test_idle_stream_sends_heartbeats() -> None:
    clock = VirtualClock(1_000_000_000_000)
    async with open_console(clock=clock) as client:
        await create_orders(client)
        stream = Stream(client, "streams/entity/order/A-1")
        await stream.until("event: hello")
        await clock.advance(HEARTBEAT_MS + 1)
        text = await stream.until(": still here")
        await stream.close()

    assert "event: entry" not in text


async def test_stream_of_kinds_combines_changes() -> None:
    clock = VirtualClock(1_000_000_000_000)
    async with open_console(clock=clock) as client:
        await create_orders(client)
        stream = Stream(client, "streams/fleet")
        await stream.until("event: hello")
        for number in range(20):
            await client.runtime.create(f"order/X-{number}", {"amount": 1})
        await clock.advance(CHANGES_MS + 1)
        text = await stream.until("event: changed")
        await clock.advance(CHANGES_MS + 1)
        await stream.close()

    assert 'data: {"kinds":["order"]}' in text
    assert 1 == stream.text.count("event: changed")


async def test_stream_ends_when_the_console_closes() -> None:
    async with open_console() as client:
        await create_orders(client)
        streams = [Stream(client, "streams/fleet"), Stream(client, "streams/entity/order/A-1")]
        for each in streams:
            await each.until("event: hello")
        await client.console.close()
        texts = [await each.end() for each in streams]

    assert 2 == len(texts)


async def test_stream_ends_soon_after_its_session() -> None:
    clock = VirtualClock(1_000_000_000_000)
    async with open_console(clock=clock) as client:
        await create_orders(client)
        stream = Stream(client, "streams/entity/order/A-1")
        await stream.until("event: hello")
        clock.time_ms += SESSION_MS_MAX
        await clock.advance(HEARTBEAT_MS + 1)
        text = await stream.end()

    assert "event: entry" not in text


async def test_open_stream_does_not_keep_its_session_alive() -> None:
    clock = VirtualClock(1_000_000_000_000)
    async with open_console(clock=clock) as client:
        await create_orders(client)
        stream = Stream(client, "streams/entity/order/A-1")
        await stream.until("event: hello")
        await clock.advance(SESSION_IDLE_MS_MAX + HEARTBEAT_MS + 1)
        await stream.end()
        response = await client.get("kinds")

    assert 401 == response.status_code


async def test_streams_of_a_session_are_limited_and_closed_ones_do_not_count() -> None:
    async with open_console() as client:
        await create_orders(client)
        streams = [Stream(client, "streams/fleet") for _ in range(STREAMS_MAX)]
        for each in streams:
            await each.until("event: hello")
        refused = await client.get("streams/fleet")
        await streams[0].close()
        again = Stream(client, "streams/fleet")
        await again.until("event: hello")
        for each in (*streams[1:], again):
            await each.close()

    assert (429, "stream.full", "1") == (
        refused.status_code, refused.json()["code"], refused.headers["retry-after"],
    )  # fmt: skip


async def test_closed_stream_leaves_no_task() -> None:
    async with open_console() as client:
        await create_orders(client)
        before = len(asyncio.all_tasks())
        for path in ("streams/fleet", "streams/entity/order/A-1"):
            stream = Stream(client, path)
            await stream.until("event: hello")
            await stream.close()
        for _ in range(20):
            await asyncio.sleep(0)
        after = len(asyncio.all_tasks())

    assert before == after


async def test_stream_of_an_unknown_entity_is_a_problem() -> None:
    async with open_console() as client:
        response = await client.get("streams/entity/order/none")

    assert (404, "entity.unknown") == (response.status_code, response.json()["code"])


async def test_parallel_requests_do_not_exceed_the_stream_limit() -> None:
    async with open_console() as client:
        streams = [Stream(client, "streams/fleet") for _ in range(3 * STREAMS_MAX)]
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not all(each.status for each in streams):  # noqa: ASYNC110 - there is nothing to await
                await asyncio.sleep(0)
        statuses = [each.status for each in streams]
        for each in streams:
            await each.close()
        left = dict(client.console.streams)

    assert STREAMS_MAX == statuses.count(200)
    assert {} == left


async def answered(stream: Stream) -> int:
    """Return the status of a stream once it has started."""
    status: int = await eventually(lambda: stream.status)
    return status


async def test_streams_of_a_user_are_counted_over_keys_and_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "STREAMS_PER_USER_MAX", 3)
    by_key = {"authorization": f"Bearer {KEY}"}
    async with open_console() as client:
        streams = [Stream(client, "streams/fleet", by_key) for _ in range(2)]
        assert [200, 200] == [await answered(each) for each in streams]
        mine = client.csrf
        client.csrf = (await client.post("login", {"secret": KEY})).json()["csrf"]
        streams += [Stream(client, "streams/fleet") for _ in range(2)]
        by_login = [await answered(each) for each in streams[2:]]
        for each in streams:
            await each.close()

    assert mine != client.csrf
    assert [200, 429] == by_login


async def test_one_user_cannot_take_all_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, number in (("STREAMS_ALL_MAX", 8), ("STREAMS_PER_USER_MAX", 8), ("STREAMS_SHARE", 1)):
        monkeypatch.setattr(live, name, number)
    people = {key_digest(name): make_user(name) for name in ("ada", "bob", "cyd", "dan")}
    async with open_console() as client:
        doors = Authentication(client.runtime.clock, keys=people)
        client.app, console = application(client.runtime, doors, origins=["http://console.test"])
        asked = ["ada"] * 7 + ["bob", "bob", "cyd", "dan"]
        streams, statuses = list[Stream](), list[int]()
        for name in asked:
            streams.append(Stream(client, "streams/fleet", {"authorization": f"Bearer {name}"}))
            statuses.append(await answered(streams[-1]))
        for each in streams:
            await each.close()
        left = dict(console.streams)
        await console.close()

    assert [200] * 6 + [429] + [200, 429] + [200, 503] == statuses
    assert {} == left


async def test_stream_of_kinds_excludes_hidden_kinds() -> None:
    clock = VirtualClock(1_000_000_000_000)
    hidden = order(ORDER.replace("kind: order", "kind: fraud").replace("  paid:\n", "  paid:\n    sensitive: true\n"))
    async with open_console(clock=clock, charts=(order(), hidden), who=make_user(rights=("read",))) as client:
        stream = Stream(client, "streams/fleet")
        await stream.until("event: hello")
        await client.runtime.create("fraud/1", {"amount": 1})
        await client.runtime.create("order/1", {"amount": 1})
        await clock.advance(CHANGES_MS + 1)
        text = await stream.until("event: changed")
        await stream.close()

    assert "fraud" not in text


async def test_all_streams_share_one_read_of_the_counters(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = VirtualClock(1_000_000_000_000)
    looks = []
    async with open_console(clock=clock) as client:
        store: Any = client.runtime.store
        real = store.visible_counts
        await client.runtime.create("order/0", {"amount": 1})  # its chart is registered: that counts, too

        async def counted(kind: str) -> Any:
            looks.append(kind)
            return await real(kind)

        monkeypatch.setattr(store, "visible_counts", counted)
        streams = [Stream(client, "streams/fleet") for _ in range(STREAMS_MAX)]
        for each in streams:
            await each.until("event: hello")
        await client.runtime.create("order/1", {"amount": 1})
        await clock.advance(CHANGES_MS + 1)
        for each in streams:
            await each.until("event: changed")
            await each.close()

    assert ["order", "order"] == looks


async def test_unavailable_store_ends_a_stream_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = VirtualClock(1_000_000_000_000)

    async def away(kind: str) -> Any:
        raise interlock.UnavailableError("the disk is full", code="store.away")

    async with open_console(clock=clock) as client:
        stream = Stream(client, "streams/fleet")
        await stream.until("event: hello")
        monkeypatch.setattr(client.runtime.store, "visible_counts", away)
        await clock.advance(CHANGES_MS + 1)
        text = await stream.end()

    assert "disk" not in text


@pytest.mark.parametrize("last", ["order/A-1@²", "@-1", "order/A-1@" + "9" * 40, "@"])
async def test_invalid_last_event_id_is_ignored(last: str) -> None:
    async with open_console() as client:
        await create_orders(client)
        stream = Stream(client, "streams/entity/order/A-1", {"last-event-id": last})
        text = await stream.until("event: hello")
        await stream.close()

    assert '{"version":1}' in text


async def test_stream_ends_when_its_key_is_removed_or_changed_and_shows_nothing_after_it(tmp_path: Path) -> None:
    clock, file = VirtualClock(1_000_000_000_000), tmp_path / "keys.toml"
    tables = {name: f'[[key]]\nid = "{name}"\nsha256 = "{key_digest(name)}"\n' for name in ("ada", "bob", "cyd")}
    replace_file(file, "".join(tables.values()).encode(), mode=0o600)
    async with open_console(clock=clock) as client:
        await client.runtime.create("order/1", {"amount": 1})
        access = Authentication(clock, key_file=KeyFileWatcher(file, clock))
        client.app, console = application(client.runtime, access, origins=["http://console.test"])
        streams = [
            Stream(client, "streams/entity/order/1", {"authorization": f"Bearer {name}", "cookie": ""})
            for name in tables
        ]
        for each in streams:
            await each.until("event: hello")
        replace_file(file, (tables["bob"] + "roles = ['boss']\n" + tables["cyd"]).encode())
        clock.time_ms += KEY_FILE_AGE_MS
        payer = {"id": "till", "roles": ["payments"]}
        await client.runtime.send("order/1", "payment.confirmed", {"id": "p-1"}, principal=payer)
        texts = [await streams[0].end(), await streams[1].end(), await streams[2].until("event: entry")]
        await streams[2].close()
        await console.close()

    assert [False, False, True] == ["payment.confirmed" in each for each in texts]
