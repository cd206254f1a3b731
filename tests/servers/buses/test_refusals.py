"""The error class of each refusal of a bus, with a hint, and never with a password."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from interlock.buses.registry import open_bus_url
from interlock.errors import DeniedError, InterlockError, NotFoundError, RejectedError, UnavailableError
from interlock.model.journal.message import Message
from tests.support import brokers

MESSAGE = Message(id="order/1/1/0", source="/x", type="order.paid", subject="order/1", kind="order")
LARGE = Message(id="order/1/2/0", source="/x", type="order.paid", subject="order/1", data="x" * 200_000)


async def refused(url: str, message: Message = MESSAGE) -> InterlockError:
    """What is raised for one message."""
    bus = open_bus_url(url)
    try:
        with pytest.raises(InterlockError) as caught:
            await bus.publish(message)
    finally:
        await bus.close()
    assert "hunter2" not in str(caught.value)
    return caught.value


async def test_a_missing_nats_stream_is_an_error_with_a_hint(nats: brokers.Nats) -> None:
    found = await refused(nats.url("nowhere", ""))

    assert (NotFoundError, "bus.stream") == (type(found), found.code)
    assert "create=1" in str(found.hint)


async def test_a_message_too_large_for_nats_is_rejected(nats: brokers.Nats) -> None:
    found = await refused(nats.url("sizes"), LARGE)

    assert (RejectedError, "bus.size") == (type(found), found.code)


async def test_a_subject_of_another_nats_stream_is_refused(nats: brokers.Nats) -> None:
    bus = open_bus_url(nats.url("mine"))
    await bus.publish(MESSAGE)
    await bus.close()
    found = await refused(nats.url("theirs", "&subject=mine"))

    assert (DeniedError, "bus.refused") == (type(found), found.code)


@pytest.fixture
def guarded() -> Iterator[brokers.Nats]:
    """NATS with two users, one of whom may not publish to streams."""

    class Guarded(brokers.Nats):
        rights = (
            "authorization { users: [ { user: boss, password: hunter2 },"
            ' { user: guest, password: hunter2, permissions: { publish: ["$JS.API.>"] } } ] }\n'
        )

    broker = brokers.started(Guarded)
    yield broker
    broker.remove()


async def test_a_missing_permission_of_nats_is_denied(guarded: brokers.Nats, monkeypatch: pytest.MonkeyPatch) -> None:
    from interlock.buses import nats

    monkeypatch.setattr(nats, "SECONDS", 3.0)
    bus = open_bus_url(guarded.url("orders", login="boss:hunter2@"))
    await bus.publish(MESSAGE)
    await bus.close()
    publish = await refused(guarded.url("orders", "", login="guest:hunter2@"))
    enter = await refused(guarded.url("orders", "", login="nobody:hunter2@"))

    assert [(DeniedError, "bus.denied")] * 2 == [(type(each), each.code) for each in (publish, enter)]
    assert "orders" in str(publish.hint)


async def test_a_redis_key_that_is_not_a_stream_is_refused(redis: brokers.Redis) -> None:
    from redis.asyncio import Redis

    client = Redis(port=redis.port)
    await client.set("taken", "by a text")
    await client.aclose()
    found = await refused(redis.url("taken"))

    assert (NotFoundError, "bus.stream") == (type(found), found.code)


async def test_a_missing_permission_of_redis_is_denied(redis: brokers.Redis) -> None:
    from redis.asyncio import Redis

    client = Redis(port=redis.port)
    await client.execute_command("ACL", "SETUSER", "guest", "on", ">hunter2", "+ping", "~*")  # type: ignore[no-untyped-call]  # theirs
    await client.aclose()
    found = [await refused(redis.url("s", login=login)) for login in ("guest:hunter2@", "guest:hunter22@")]

    assert [(DeniedError, "bus.denied")] * 2 == [(type(each), each.code) for each in found]


async def test_a_length_trims_a_redis_stream(redis: brokers.Redis) -> None:
    from redis.asyncio import Redis

    bus = open_bus_url(redis.url("short", "&length=10"))
    await asyncio.gather(*(bus.publish(MESSAGE) for _ in range(500)))
    await bus.close()
    client = Redis(port=redis.port)
    length = await client.xlen("short")
    await client.aclose()

    assert 10 <= length < 500


async def test_a_missing_queue_and_an_unroutable_message_of_rabbitmq_are_errors(
    rabbitmq: brokers.Rabbit,
) -> None:
    from aio_pika import connect

    connection = await connect(f"amqp://guest:guest@127.0.0.1:{rabbitmq.port}/")
    channel = await connection.channel()
    await channel.declare_exchange("lonely", "topic", durable=True)
    await connection.close()
    missing = await refused(rabbitmq.url("nowhere", ""))
    place = f"127.0.0.1:{rabbitmq.port}/?exchange=lonely"
    unroutable = await refused(f"amqp://guest:guest@{place}")
    denied = await refused(f"amqp://guest:hunter2@{place}")

    assert [(NotFoundError, "bus.stream"), (NotFoundError, "bus.unroutable"), (DeniedError, "bus.denied")] == [
        (type(each), each.code) for each in (missing, unroutable, denied)
    ]
    assert all(each.hint for each in (missing, unroutable, denied))


async def test_a_message_that_rabbitmq_refuses_disturbs_no_other(rabbitmq: brokers.Rabbit) -> None:
    from aio_pika import connect

    connection = await connect(f"amqp://guest:guest@127.0.0.1:{rabbitmq.port}/")
    channel = await connection.channel()
    exchange = await channel.declare_exchange("mixed", "topic", durable=True)
    queue = await channel.declare_queue("mixed", durable=True)
    await queue.bind(exchange, "order.#")
    await connection.close()
    bus = open_bus_url(f"amqp://guest:guest@127.0.0.1:{rabbitmq.port}/?exchange=mixed")
    kinds = ["stray" if number % 10 == 0 else "order.paid" for number in range(50)]
    messages = [Message(id=f"{number}", source="/x", type=kind) for number, kind in enumerate(kinds)]
    found = await asyncio.gather(*(bus.publish(each) for each in messages), return_exceptions=True)
    await bus.close()

    assert 45 == found.count(None)
    assert {NotFoundError} == {type(each) for each in found if each is not None}


async def test_a_message_too_large_for_kafka_is_rejected(kafka: brokers.Kafka) -> None:
    found = await refused(kafka.url("sizes", "?message.max.bytes=100000"), LARGE)

    assert (RejectedError, "bus.size") == (type(found), found.code)


@pytest.mark.parametrize(
    "url",
    [
        "nats://ada:hunter2@127.0.0.1:{port}?stream=orders",
        "redis://:hunter2@127.0.0.1:{port}/0?stream=orders",
        "amqp://ada:hunter2@127.0.0.1:{port}/?queue=orders",
        "kafka://127.0.0.1:{port}/orders?message.timeout.ms=500",
    ],
)
async def test_an_unreachable_broker_is_unavailable(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from interlock.buses import nats, redis

    for module in (nats, redis):
        monkeypatch.setattr(module, "SECONDS", 0.5)
    found: Any = await refused(url.format(port=brokers.free_port()))

    assert (UnavailableError, "bus.away") == (type(found), found.code)
