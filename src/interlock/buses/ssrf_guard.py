"""Which addresses a webhook may connect to: public ones, unless the webhook's own address says otherwise.

Rule 1: a name is resolved here, each of its addresses is checked, and the connection goes to the address that was
checked. A name that resolves differently a moment later changes nothing.
Rule 2: this machine, private networks, link-local addresses (such as the metadata services of clouds) and everything
else that is not public is refused, also when it is embedded in an IPv6 address.
Rule 3: nothing is sent to a refused address, not even a connection request.
Rule 4: each address has its own timeout. When the time of the whole attempt is over, no further address is tried.
Rule 5: the time of the system's resolver cannot be limited, so a name is resolved in a thread, which is waited for no
longer than the attempt may take. The thread does not keep the process alive. Other callers of the same name wait for
the same thread, and with `LOOKUPS_MAX` of them running no further name is resolved.
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

PRIVATE_HINT = "append #private=1 to the address to allow it"
WITHIN_SECONDS = 15.0
"""How long an attempt waits for the addresses of a name by default."""

LOOKUPS_MAX = 32
"""Names that are resolved at a time: more than a process has endpoints, and few enough threads."""

_NAT64 = IPv6Network("64:ff9b::/96")


def is_public(address: str) -> bool:
    """Whether an address, as text, is public."""
    found = ip_address(address.partition("%")[0])
    if isinstance(found, IPv6Address):
        found = _inside(found) or found
    if isinstance(found, IPv6Address) and found.is_site_local:
        return False
    return found.is_global and not (found.is_multicast or found.is_reserved)


def _inside(address: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address that is embedded in an IPv6 address, if there is one."""
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
    """The addresses of a name, once they are known, or the error."""

    def __init__(self) -> None:
        self.done = Signal()
        self.found: list[Any] = []
        self.error: BaseException | None = None


class HostLookup:
    """Resolves names, each in one thread."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """In a forked child: the threads, and the owner of the lock, were the parent's."""
        self._lock = Lock()
        self._running: dict[tuple[str, int], _Lookup] = {}

    def addresses(self, host: str, port: int, within: float) -> list[Any]:
        """Return what `getaddrinfo` finds. Raises as it does, and TimeoutError when it takes too long."""
        if _is_address(host):  # it needs no resolver
            return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        lookup = self._start(host, port)
        if not lookup.done.wait(within):
            raise TimeoutError(f"the name `{host}` was not resolved in {within:g} s")
        if lookup.error is not None:
            raise lookup.error
        return lookup.found

    def _start(self, host: str, port: int) -> _Lookup:
        with self._lock:
            lookup = self._running.get((host, port))
            if lookup is not None:
                return lookup
            if len(self._running) >= LOOKUPS_MAX:
                raise TimeoutError(f"`{host}` cannot be resolved now: {LOOKUPS_MAX} names are being resolved")
            lookup = _Lookup()
            thread = Thread(target=self._resolve, args=(host, port, lookup), name="interlock-name", daemon=True)
            start_thread(thread)
            self._running[host, port] = lookup  # it takes the lock before it ends
            return lookup

    def _resolve(self, host: str, port: int, lookup: _Lookup) -> None:
        try:
            lookup.found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except BaseException as error:  # noqa: BLE001 - every waiting caller gets it
            lookup.error = error
        with self._lock:
            del self._running[host, port]
        lookup.done.set()


NAMES = HostLookup()
"""The lookups of this process."""

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
    """Return a connection to a host, at a permitted address; `late` is set when the time is over.

    `seconds` is the timeout of each address, `within` that of the name's resolution.
    Raises DeniedError when no address is permitted, OSError when none responds.
    """
    found = NAMES.addresses(host, port, within)
    allowed = [each for each in found if private or is_public(str(each[4][0]))]
    if not allowed:
        message = f"`{host}` resolves to {found[0][4][0]}, which is not a public address"
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
