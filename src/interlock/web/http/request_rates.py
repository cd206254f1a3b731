"""How often a caller may ask: limits per principal and class of request, and per address prefix without a principal.

Rule 1: a request with a principal is counted after it was identified, before its body is read. One without a principal
(a login, an invalid key) is counted by the prefix of its address: /24 of IPv4, /56 of IPv6, as networks are given to
one customer. Behind a proxy, all strangers share the prefix of the proxy.
Rule 2: refused requests of a principal have a separate rate, that of their rows in the audit (`trust.audit`).
Rule 3: every refusal has the same body, so it does not say what the caller would have been allowed.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv6Address, ip_address, ip_network

from interlock.ports.clock import Clock
from interlock.trust.rate_limits import Rate, RateLimiter, RequestClass
from interlock.web.http.errors import HttpProblem

DEFAULTS: Mapping[RequestClass, Rate] = {
    RequestClass.SEND: Rate(2_000, 10_000),
    RequestClass.READ: Rate(1_000, 5_000),
    RequestClass.OPERATE: Rate(100, 500),
    RequestClass.ANONYMOUS: Rate(10, 100),
}
"""Sends and reads are about what one process serves, so that one caller does not displace all others."""


class RequestRates:
    """The limits of one server. `rates` replaces the defaults of the classes that it has."""

    def __init__(self, clock: Clock, rates: Mapping[RequestClass, Rate] | None = None) -> None:
        self._clock = clock
        self._rates = {**DEFAULTS, **(rates or {})}
        self._limiter = RateLimiter(self._rates)

    def use(self, rates: Mapping[RequestClass, Rate]) -> None:
        """Replace the rates. Unless they are the same, everyone has the whole burst again."""
        given = {**DEFAULTS, **rates}
        if given != self._rates:
            self._rates, self._limiter = given, RateLimiter(given)

    def count(self, request_class: RequestClass, key: str) -> None:
        """Count a request. Raises HttpProblem above the rate."""
        after_ms = self._limiter.take(request_class, key, self._clock.now_ms())
        if after_ms is not None:
            raise too_many_requests(after_ms)


def too_many_requests(after_ms: int) -> HttpProblem:
    """Return the problem for a caller above a rate."""
    hint = "wait as long as Retry-After says"
    text = "the caller sends too many requests"
    return HttpProblem(429, "Too many requests", text, code="rate.limited", hint=hint, retry_after_ms=after_ms)


def address_prefix(address: str | None) -> str:
    """Return the network of an address: /24 or /56. Callers without one, on a socket of this machine, are together."""
    try:
        found = ip_address((address or "").partition("%")[0])
    except ValueError:
        return "local"
    if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    return str(ip_network((found, 24 if found.version == 4 else 56), strict=False))
