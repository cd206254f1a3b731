"""Which addresses a webhook may reach: those of the public internet, unless its own address says otherwise.

Rule 1: a name is resolved here, each address that it has is judged, and the connection goes to the very address that
was judged: a name that answers otherwise a moment later changes nothing.
Rule 2: this machine, private networks, link-local addresses (the metadata services of clouds among them) and whatever
else is not of the public internet is refused, also where it is written inside an IPv6 address.
Rule 3: nothing is sent to an address that is refused, not even the beginning of a connection.
Rule 4: each address has its seconds; when the time of the whole attempt is over, no other one is tried.
Rule 5: nobody can bound how long this machine's resolver takes, so a name is asked for in a thread, which is waited for
no longer than the attempt may last. It holds no process up; whoever needs the same name meanwhile waits for the same
thread, and beyond `LOOKUPS_MAX` of them no further name is asked for.
"""

from __future__ import annotations

import os
import socket
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from threading import Event as Signal
from threading import Lock, Thread
from typing import Any

from interlock.errors import DeniedError
from interlock.ports.threads import start_thread

PRIVATE_HINT = "write #private=1 behind the address if that is meant"
WITHIN_SECONDS = 15.0
"""How long an attempt may wait for the addresses of a name, unless it says otherwise."""

LOOKUPS_MAX = 32
"""Names that are being resolved at a time: more than a process has endpoints, and few enough threads."""

_NAT64 = IPv6Network("64:ff9b::/96")


def is_public(address: str) -> bool:
    """Whether an address, as text, is one of the public internet."""
    found = ip_address(address.partition("%")[0])
    if isinstance(found, IPv6Address):
        found = _inside(found) or found
    if isinstance(found, IPv6Address) and found.is_site_local:
        return False
    return found.is_global and not (found.is_multicast or found.is_reserved)


def _inside(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that an IPv6 address leads to, if it does."""
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour


def _is_address(host: str) -> bool:
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


class _Lookup:
    """The addresses of a name, once they are known, or why they are not."""

    def __init__(self) -> None:
        self.done = Signal()
        self.found: list[Any] = []
        self.error: BaseException | None = None


class HostLookup:
    """Asks for the addresses of names, each in one thread."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """In a forked child: the threads were the parent's, and so was whoever held the lock."""
        self._guard = Lock()
        self._under_way: dict[tuple[str, int], _Lookup] = {}

    def addresses(self, host: str, port: int, within: float) -> list[Any]:
        """What `getaddrinfo` finds. Raises as it does, and TimeoutError when that takes too long."""
        if _is_address(host):  # it needs no resolver
            return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        lookup = self._begun(host, port)
        if not lookup.done.wait(within):
            raise TimeoutError(f"the name `{host}` is not resolved in {within:g} s")
        if lookup.error is not None:
            raise lookup.error
        return lookup.found

    def _begun(self, host: str, port: int) -> _Lookup:
        with self._guard:
            lookup = self._under_way.get((host, port))
            if lookup is not None:
                return lookup
            if len(self._under_way) >= LOOKUPS_MAX:
                raise TimeoutError(f"`{host}` cannot be resolved now: {LOOKUPS_MAX} names are waited for")
            lookup = _Lookup()
            thread = Thread(target=self._ask, args=(host, port, lookup), name="interlock-name", daemon=True)
            start_thread(thread)
            self._under_way[host, port] = lookup  # it takes the lock before it ends
            return lookup

    def _ask(self, host: str, port: int, lookup: _Lookup) -> None:
        try:
            lookup.found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except BaseException as error:  # noqa: BLE001 - told to those who wait
            lookup.error = error
        with self._guard:
            del self._under_way[host, port]
        lookup.done.set()


NAMES = HostLookup()
"""All that are asked for in this process."""

os.register_at_fork(after_in_child=NAMES.forget)


def connect_public(
    host: str,
    port: int,
    *,
    seconds: float,
    private: bool,
    late: Signal | None = None,
    within: float = WITHIN_SECONDS,
) -> socket.socket:
    """A connection to a host, at an address that may be reached; `late` says that the time is over.

    `seconds` is for each address, `within` for finding out which there are.
    Raises DeniedError when it has no such address, OSError when nobody answers.
    """
    found = NAMES.addresses(host, port, within)
    allowed = [each for each in found if private or is_public(str(each[4][0]))]
    if not allowed:
        message = f"`{host}` is at {found[0][4][0]}, which is no address of the public internet"
        raise DeniedError(message, code="bus.private", hint=PRIVATE_HINT)
    failed: OSError | None = None
    for family, kind, protocol, _, place in allowed:  # as many as the name has
        own = socket.socket(family, kind, protocol)
        try:
            own.settimeout(seconds)
            own.connect(place)
            own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            own.close()
            failed = error
            if late is not None and late.is_set():
                break
        else:
            return own
    assert failed is not None  # at least one was tried
    raise failed
