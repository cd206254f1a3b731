"""Which addresses a webhook may reach: those of the public internet, unless its own address says otherwise.

Rule 1: a name is resolved here, each address that it has is judged, and the connection goes to the very address that
was judged: a name that answers otherwise a moment later changes nothing.
Rule 2: this machine, private networks, link-local addresses (the metadata services of clouds among them) and whatever
else is not of the public internet is refused, also where it is written inside an IPv6 address.
Rule 3: nothing is sent to an address that is refused, not even the beginning of a connection.
Rule 4: each address has its seconds; when the time of the whole attempt is over, no other one is tried.
"""

from __future__ import annotations

import socket
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from threading import Event as Signal

from interlock.errors import DeniedError

PRIVATE_HINT = "write #private=1 behind the address if that is meant"
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


def reached(host: str, port: int, *, seconds: float, private: bool, late: Signal | None = None) -> socket.socket:
    """A connection to a host, at an address that may be reached; `late` says that the time is over.

    Raises DeniedError when it has no such address, OSError when nobody answers.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
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
