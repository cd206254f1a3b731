"""Which addresses a webhook may connect to: each is checked when it connects."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from interlock.buses import ssrf_guard, webhook
from interlock.buses.ssrf_guard import connect_public, is_public
from interlock.errors import DeniedError, UnavailableError
from interlock.model.journal.message import Message
from tests.support.eventually import PATIENCE_SECONDS

PUBLIC = ["1.1.1.1", "93.184.216.34", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101", "2002:101:101::1"]
REFUSED = [
    *("127.0.0.1", "127.8.8.8", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254"),
    *("100.64.0.1", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255", "192.0.2.1", "198.18.0.1"),
    *("::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00::1", "fec0::1", "ff02::1", "2001:db8::1"),
    *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::a00:1", "64:ff9b::7f00:1", "2002:7f00:1::1", "2002:a00:1::1"),
]


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    """A listener on this machine that accepts no connection."""
    with socket.create_server(("127.0.0.2", 0)) as own:
        own.setblocking(False)
        yield own


def _names(monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> list[Any]:
    """Let every name have these addresses, one answer after another; gives the questions asked.

    An address may have its own port, which no name has: two listeners cannot be sure to get the same one.
    """
    asked: list[Any] = []
    left = list(answers)

    def answer(host: str, port: int, **given: Any) -> list[Any]:
        asked.append(host)
        places = [each.partition(":") for each in left.pop(0)]
        kind = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
        return [(*kind, (address, int(own or port))) for address, _, own in places]

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    return asked


@pytest.mark.parametrize("address", PUBLIC)
def test_addresses_of_the_public_internet_are_reached(address: str) -> None:
    """Also where an IPv4 address is written inside an IPv6 one."""
    assert is_public(address)


@pytest.mark.parametrize("address", REFUSED)
def test_this_machine_and_private_networks_are_refused(address: str) -> None:
    assert not is_public(address)


async def test_a_public_name_with_a_private_address_is_refused_and_nothing_is_sent(
    monkeypatch: pytest.MonkeyPatch, listening: socket.socket
) -> None:
    monkeypatch.setenv("INTERLOCK_WEBHOOK_SECRET", "whsec_" + "c2VjcmV0" * 5)
    bus = webhook.open_bus(f"https://hooks.example:{listening.getsockname()[1]}/")
    _names(monkeypatch, ["127.0.0.2"])
    try:
        with pytest.raises(DeniedError) as caught:
            await bus.publish(Message(id="1", source="/s", type="t"))
    finally:
        await bus.close()
    with pytest.raises(BlockingIOError):
        listening.accept()

    assert ("bus.private", True) == (caught.value.code, "127.0.0.2" in caught.value.message)
    assert "#private=1" in str(caught.value.hint)


def test_a_name_is_asked_for_once_and_the_address_that_was_judged_is_reached(
    monkeypatch: pytest.MonkeyPatch, listening: socket.socket
) -> None:
    """A name that answers otherwise a moment later changes nothing."""
    asked = _names(monkeypatch, ["127.0.0.2"], ["127.0.0.3"])
    with connect_public("hooks.example", listening.getsockname()[1], seconds=5, private=True) as own:
        peer = own.getpeername()

    assert (["hooks.example"], "127.0.0.2") == (asked, peer[0])


def test_only_permitted_addresses_of_a_name_are_tried(
    monkeypatch: pytest.MonkeyPatch, listening: socket.socket
) -> None:
    monkeypatch.setattr(ssrf_guard, "is_public", lambda address: address == "127.0.0.2")
    with socket.create_server(("127.0.0.1", 0)) as private:
        private.setblocking(False)
        _names(monkeypatch, [f"127.0.0.1:{private.getsockname()[1]}", "127.0.0.2"])
        with connect_public("x", listening.getsockname()[1], seconds=5, private=False) as own:
            peer = own.getpeername()
        with pytest.raises(BlockingIOError):
            private.accept()

    assert "127.0.0.2" == peer[0]


def test_an_address_that_does_not_respond_is_followed_by_the_next(
    monkeypatch: pytest.MonkeyPatch, listening: socket.socket
) -> None:
    port = listening.getsockname()[1]
    _names(monkeypatch, ["127.0.0.3", "127.0.0.2"], ["127.0.0.3"])
    with connect_public("x", port, seconds=5, private=True) as own:
        assert "127.0.0.2" == own.getpeername()[0]
    with pytest.raises(ConnectionRefusedError):
        connect_public("x", port, seconds=5, private=True)


def test_after_the_timeout_no_further_address_is_tried(
    monkeypatch: pytest.MonkeyPatch, listening: socket.socket
) -> None:
    late = threading.Event()
    late.set()
    _names(monkeypatch, ["127.0.0.3", "127.0.0.2"])
    with pytest.raises(ConnectionRefusedError):
        connect_public("x", listening.getsockname()[1], seconds=5, private=True, late=late)
    with pytest.raises(BlockingIOError):
        listening.accept()


class Silent:
    """A resolver that answers only when the test allows it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.let, self.asked = threading.Event(), 0
        self._real = socket.getaddrinfo
        monkeypatch.setattr(socket, "getaddrinfo", self.answer)

    def answer(self, host: str, port: int, **given: Any) -> list[Any]:
        """Resolve every name to this machine; an address needs no lookup."""
        if host[0].isdigit():
            return list(self._real(host, port, **given))
        self.asked += 1
        assert self.let.wait(PATIENCE_SECONDS)
        return list(self._real("127.0.0.2", port, **given))


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Silent]:
    """Its threads end with the test."""
    found = Silent(monkeypatch)
    yield found
    found.let.set()
    _ended()


def _asking() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "interlock-name"]


def _ended() -> None:
    for each in _asking():
        each.join(PATIENCE_SECONDS)
    assert [] == _asking()


def test_a_slow_resolver_ends_with_the_timeout_of_the_attempt(silent: Silent) -> None:
    for _ in range(5):
        with pytest.raises(TimeoutError, match=r"`hooks\.example`"):
            connect_public("hooks.example", 443, seconds=5, private=True, within=0.01)

    assert (1, 1) == (silent.asked, len(_asking()))


def test_slow_lookups_use_a_limited_number_of_threads(
    silent: Silent, monkeypatch: pytest.MonkeyPatch, listening: socket.socket
) -> None:
    monkeypatch.setattr(ssrf_guard, "LOOKUPS_MAX", 2)
    for name in ("a.example", "b.example", "c.example", "d.example"):
        with pytest.raises(TimeoutError):
            connect_public(name, 443, seconds=5, private=True, within=0.01)
    with connect_public("127.0.0.2", listening.getsockname()[1], seconds=5, private=True) as own:
        peer = own.getpeername()[0]

    assert (2, 2, "127.0.0.2") == (silent.asked, len(_asking()), peer)


def test_a_late_lookup_is_not_reused(silent: Silent, listening: socket.socket) -> None:
    port = listening.getsockname()[1]
    with pytest.raises(TimeoutError):
        connect_public("hooks.example", port, seconds=5, private=True, within=0.01)
    silent.let.set()
    _ended()
    with connect_public("hooks.example", port, seconds=5, private=True) as own:
        peer = own.getpeername()[0]

    assert (2, "127.0.0.2") == (silent.asked, peer)


def test_an_unknown_name_raises_the_error_of_the_resolver(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "not known")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    with pytest.raises(socket.gaierror, match="not known"):
        connect_public("no.example", 443, seconds=5, private=True)


def test_a_lookup_of_the_parent_is_repeated_in_a_forked_child(silent: Silent) -> None:
    with pytest.raises(TimeoutError):
        connect_public("hooks.example", 443, seconds=5, private=True, within=0.01)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer interpreters warn about forks with threads
        child = os.fork()
    if not child:  # one thread, which asks again and gets its own answer
        signal.alarm(int(PATIENCE_SECONDS))
        silent.let = threading.Event()
        silent.let.set()
        try:
            found = ssrf_guard.NAMES.addresses("hooks.example", 443, 20)
            os._exit(found[0][4][0] != "127.0.0.2")
        finally:
            os._exit(3)
    _, status = os.waitpid(child, 0)

    assert 0 == os.waitstatus_to_exitcode(status)


async def test_a_webhook_with_a_slow_resolver_is_unreachable_in_time(
    silent: Silent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTERLOCK_WEBHOOK_SECRET", "whsec_" + "c2VjcmV0" * 5)
    monkeypatch.setattr(webhook, "SECONDS", 0.05)
    bus = webhook.open_bus("https://hooks.example/#private=1")
    try:
        with pytest.raises(UnavailableError, match="TimeoutError"):
            await bus.publish(Message(id="1", source="/s", type="t"))
    finally:
        await bus.close()

    assert not silent.let.is_set()


async def test_an_attempt_whose_time_is_over_when_it_has_connected_asks_for_nothing(
    monkeypatch: pytest.MonkeyPatch, listening: socket.socket
) -> None:
    """Nothing was there to be cut yet: it would wait for as long as the endpoint likes."""
    monkeypatch.setenv("INTERLOCK_WEBHOOK_SECRET", "whsec_" + "c2VjcmV0" * 5)
    monkeypatch.setattr(webhook, "SECONDS", 0.01)

    def slow(host: str, port: int, *, late: threading.Event, **given: Any) -> socket.socket:
        assert late.wait(PATIENCE_SECONDS)
        return socket.create_connection(listening.getsockname())

    monkeypatch.setattr(webhook, "connect_public", slow)
    bus = webhook.open_bus("http://127.0.0.1:1/#private=1")
    try:
        with pytest.raises(UnavailableError, match="TimeoutError"):
            await bus.publish(Message(id="1", source="/s", type="t"))
    finally:
        await bus.close()
    own, _ = listening.accept()
    with own:
        own.settimeout(PATIENCE_SECONDS)

        assert b"" == own.recv(1)


async def test_the_certificate_must_match_the_name(monkeypatch: pytest.MonkeyPatch, listening: socket.socket) -> None:
    monkeypatch.setenv("INTERLOCK_WEBHOOK_SECRET", "whsec_" + "c2VjcmV0" * 5)
    asked: list[tuple[str, str | None, bool, ssl.VerifyMode]] = []

    def wrapped(self: ssl.SSLContext, sock: socket.socket, *, server_hostname: str | None = None) -> ssl.SSLSocket:
        asked.append((sock.getpeername()[0], server_hostname, self.check_hostname, self.verify_mode))
        raise ssl.SSLCertVerificationError("another name")

    monkeypatch.setattr(ssl.SSLContext, "wrap_socket", wrapped)
    _names(monkeypatch, ["127.0.0.2"])
    bus = webhook.open_bus(f"https://hooks.example:{listening.getsockname()[1]}/#private=1")
    try:
        with pytest.raises(UnavailableError, match="its certificate is invalid"):
            await bus.publish(Message(id="1", source="/s", type="t"))
    finally:
        await bus.close()

    assert [("127.0.0.2", "hooks.example", True, ssl.CERT_REQUIRED)] == asked
