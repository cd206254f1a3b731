"""Addresses of buses: valid ones, invalid ones, and what is never shown."""

from __future__ import annotations

import pytest

from interlock.buses import memory, webhook
from interlock.buses.address import wire_id
from interlock.buses.registry import BUSES, open_bus_url, open_source_url
from interlock.errors import UsageError
from interlock.model.journal.message import Message

GOOD = [
    "nats://127.0.0.1:4222?stream=orders",
    "nats://user:pass@a:4222,b:4223?stream=orders&subject=shop.orders&create=1&tls=1",
    "kafka://127.0.0.1:9092/orders",
    "kafka://user:pass@a,b:9093/orders?security.protocol=SASL_SSL",
    "redis://127.0.0.1:6379/0?stream=orders&length=1000",
    "rediss://:pass@host?stream=orders",
    "amqp://guest:guest@127.0.0.1:5672/?exchange=orders",
    "amqps://host/vhost?queue=orders&create=1",
    "memory:",
    "memory:orders",
    "http://127.0.0.1:9/hook#private=1",
    "http://[::1]:9/hook#private=1",
    "https://hooks.example/orders?tenant=7",
]
SECRET = "whsec_" + "c2VjcmV0" * 5


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTERLOCK_WEBHOOK_SECRET", SECRET)


@pytest.mark.parametrize("url", GOOD)
async def test_valid_addresses_open_without_a_server(url: str) -> None:
    await open_bus_url(url).close()


BAD = [
    ("nats://127.0.0.1:4222", "bus.option"),
    ("nats://127.0.0.1:4222?stream=", "bus.option"),
    ("nats://127.0.0.1:4222?stream=a.b", "bus.option"),
    ("nats://127.0.0.1:4222?stream=a&subject=a%20b", "bus.option"),
    ("nats://127.0.0.1:4222?stream=a&subject=a.*", "bus.option"),
    ("nats://127.0.0.1:4222?stream=a&create=yes", "bus.option"),
    ("nats://127.0.0.1:4222?strem=orders", "bus.option"),
    ("nats://127.0.0.1:99999?stream=a", "bus.address"),
    ("nats://?stream=a", "bus.address"),
    ("nats://a:1?stream", "bus.address"),
    ("nats://a:1?stream=a#x", "bus.address"),
    ("kafka://127.0.0.1:9092", "bus.address"),
    ("kafka://127.0.0.1:9092/a/b", "bus.address"),
    ("kafka://127.0.0.1:9092/a?topic=b", "bus.option"),
    ("kafka://127.0.0.1:9092/a?no.such.option=b", "bus.option"),
    ("redis://127.0.0.1:6379/0", "bus.option"),
    ("redis://127.0.0.1:6379/x?stream=a", "bus.address"),
    ("redis://a,b/0?stream=a", "bus.address"),
    ("redis://a/0?stream=a&length=0", "bus.option"),
    ("redis://a/0?stream=a&length=many", "bus.option"),
    ("amqp://127.0.0.1/", "bus.option"),
    ("amqp://127.0.0.1/?queue=a&exchange=b", "bus.option"),
    ("amqp://a,b/?queue=a", "bus.address"),
    ("memory://x", "bus.address"),
    ("memory:x?y=1", "bus.address"),
    ("http://hooks.example/orders", "bus.address"),
    ("http://10.0.0.1/orders", "bus.address"),
    ("http://10.0.0.1/orders#private=1", "bus.address"),
    ("http://127.0.0.1/orders", "bus.private"),
    ("https://localhost/orders", "bus.private"),
    ("https://169.254.169.254/latest", "bus.private"),
    ("https://[::ffff:10.0.0.1]/orders#private=0", "bus.private"),
    ("https://hooks.example/orders#private=yes", "bus.address"),
    ("https://", "bus.address"),
    ("https://hooks..example/", "bus.address"),
    (f"https://{'x' * 64}.example/", "bus.address"),
    ("https://user:pass@hooks.example/", "bus.address"),
    ("https://hooks.example/#timeout=5", "bus.address"),
    (f"https://hooks.example/#secret={SECRET}=", "bus.secret"),
    ("https://hooks.example/#secret=NOT_THERE", "bus.secret"),
    ("nat://127.0.0.1", "bus.unknown"),
    ("orders", "bus.unknown"),
    ("", "bus.unknown"),
]


@pytest.mark.parametrize(("url", "code"), BAD)
def test_invalid_addresses_are_refused_when_opened_with_a_hint(url: str, code: str) -> None:
    with pytest.raises(UsageError) as caught:
        open_bus_url(url)

    assert code == caught.value.code
    assert caught.value.hint or "neither 0 nor 1" in str(caught.value) or "`" in str(caught.value)


@pytest.mark.parametrize("url", [each for each, _ in BAD])
def test_no_error_shows_a_password(url: str) -> None:
    scheme, slashes, rest = url.partition("://")
    secret = f"{scheme}{slashes}ada:hunter2@{rest}" if slashes else url
    with pytest.raises(UsageError) as caught:
        open_bus_url(secret)

    assert "hunter2" not in str(caught.value)
    assert SECRET not in str(caught.value)


def test_the_closest_name_is_suggested() -> None:
    with pytest.raises(UsageError, match="nats"):
        open_bus_url("natss://127.0.0.1?stream=a")
    with pytest.raises(UsageError, match="stream"):
        open_bus_url("nats://127.0.0.1?streem=a")


@pytest.mark.parametrize(
    "url",
    [
        "nats://127.0.0.1:4222?stream=orders",
        "redis://127.0.0.1:6379/0?stream=orders",
        "kafka://127.0.0.1:9092/orders",
        "amqp://127.0.0.1/?exchange=orders",
        "https://hooks.example/orders",
        "sqlite:///orders.db",
    ],
)
def test_a_reader_needs_a_group_or_a_queue(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        open_source_url(url)

    assert caught.value.code in {"bus.option", "bus.unknown"}
    assert caught.value.hint


def test_every_bus_is_declared_as_an_entry_point() -> None:
    import tomllib
    from pathlib import Path

    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    assert {name: f"{module}:open_bus" for name, module in BUSES.items()} == project["entry-points"]["interlock.buses"]


def test_a_bus_in_memory_is_shared_by_its_name_only() -> None:
    shared = memory.open_bus("memory:shop")

    assert shared is memory.open_bus("memory:shop")
    assert memory.open_bus("memory:") is not memory.open_bus("memory:")


def test_ids_on_the_wire_are_bound_to_their_source_and_fit_a_header() -> None:
    """No full stop, no control character, no blank at an end that a client would strip."""
    one = Message(id="order/a.b /1/0", source="/x", type="t")
    two = Message(id="order/a.b /1/0", source="/y", type="t")

    assert "/x#order/a%2Eb%20/1/0" == wire_id(one)
    assert wire_id(one) != wire_id(two)


def test_long_ids_are_replaced_by_a_digest() -> None:
    found = [wire_id(Message(id="ä" * 200 + end, source="/x", type="t")) for end in "ab"]

    assert 2 == len(set(found))
    assert all(len(each) <= 255 for each in found)


def test_several_secrets_are_parsed_and_never_shown() -> None:
    assert 2 == len(webhook.keys_of(f"{SECRET} {SECRET.removeprefix('whsec_')}"))
    for wrong in ("whsec_c2hvcnQ=", "whsec_?", "whsec_" + "YWFh" * 40):
        with pytest.raises(UsageError) as caught:
            webhook.keys_of(wrong, "NAME")
        assert ("bus.secret", False) == (caught.value.code, wrong in str(caught.value))
