"""The address of a Temporal namespace."""

from __future__ import annotations

import pytest

from interlock.engines.temporal.address import parse_address
from interlock.errors import UsageError


def test_an_address_names_a_server_and_a_namespace() -> None:
    found = parse_address("temporal://127.0.0.1:7233/default")

    assert ("127.0.0.1:7233", "default", "interlock", None, True) == (
        found.target,
        found.namespace,
        found.queue,
        found.journal,
        found.lists,
    )


def test_options_are_read() -> None:
    found = parse_address(
        "temporal://[::1]/shop?queue=q&journal=sqlite%3A%2F%2F%2Fm.db&lists=off&continue=20&wait=5s&tls=on&migrate=0"
    )

    assert ("[::1]:7233", "shop", "q", "sqlite:///m.db") == (found.target, found.namespace, found.queue, found.journal)
    assert (False, 20, 5_000, True, False) == (
        found.lists,
        found.continue_after,
        found.wait_ms,
        found.tls,
        found.migrate,
    )


def test_an_inline_chart_has_the_queue_of_its_parent() -> None:
    address = parse_address("temporal://h/n?queue=q")

    assert ("q-order", "q-order") == (address.queue_of("order"), address.queue_of("order.payment"))


@pytest.mark.parametrize(
    "url",
    [
        "temporal://127.0.0.1:7233",
        "temporal://127.0.0.1:7233/",
        "temporal:///default",
        "temporal://h:70000/default",
        "temporal://h/a/b",
        "temporal://user:secret@h/default",
        "temporal://h/default?color=blue",
        "temporal://h/default?queue=a&queue=b",
        "temporal://h/default?queue=",
        "temporal://h/default?lists=maybe",
        "temporal://h/default?continue=0",
        "temporal://h/default?continue=many",
        "temporal://h/default?wait=soon",
        "temporal://h/default?journal=memory:",
        "temporal://h/default#x",
    ],
)
def test_an_invalid_address_is_refused(url: str) -> None:
    """And the error does not repeat a password."""
    with pytest.raises(UsageError) as refused:
        parse_address(url)

    assert refused.value.code == "url.malformed"
    assert "secret" not in str(refused.value)
