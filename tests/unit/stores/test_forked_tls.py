"""TLS in a forked child: a lock of the library that was held at the fork is found before a connection hangs."""

from __future__ import annotations

import asyncio
import os
import ssl
import threading

import pytest

from interlock.errors import UsageError
from interlock.ports.fork import is_forked
from interlock.stores.postgres import forked_tls
from interlock.stores.postgres.address import parse_address


def test_a_lock_that_was_held_at_the_fork_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The context waits for a lock that no thread of the child holds."""
    lock = threading.Lock()
    monkeypatch.setattr(ssl, "create_default_context", lock.acquire)
    monkeypatch.setattr(forked_tls, "LOOKS_MAX", 5)
    monkeypatch.setattr(forked_tls, "_checked", set[int]())

    with lock, pytest.raises(UsageError) as raised:
        asyncio.run(forked_tls.check_tls())

    assert "store.forked_tls" == raised.value.code
    assert "fork" in (raised.value.hint or "")


def test_a_process_without_such_a_lock_connects(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked once."""
    checked = set[int]()
    monkeypatch.setattr(forked_tls, "_checked", checked)
    asyncio.run(forked_tls.check_tls())
    monkeypatch.setattr(forked_tls, "LOOKS_MAX", 0)
    asyncio.run(forked_tls.check_tls())

    assert {os.getpid()} == checked


def test_only_a_child_is_forked() -> None:
    process = os.fork()
    if process == 0:
        os._exit(7 if is_forked() else 8)

    assert 7 == os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://ada@db/orders", True),
        ("postgresql://ada@db/orders?sslmode=disable", False),
        ("postgresql:///orders?host=/run/postgresql", False),
    ],
)
def test_an_address_says_whether_tls_may_be_used(url: str, expected: bool) -> None:
    assert expected == parse_address(url).may_use_tls
