"""Rate limits: how often a principal may do something, by the generic cell rate algorithm (GCRA).

Rule 1: a limit allows `burst` requests together and then `per_second` of them. Its whole state is one number: the time
at which the last allowed request is paid for. A refused request changes nothing, so waiting for `retry_after_ms` is
enough, however often the caller asked meanwhile.
Rule 2: a clock that was set back delays no caller by more than an empty limit does.
Rule 3: a limiter remembers `RATE_KEYS_MAX` keys per class, the least recently used is forgotten first, and a class
never displaces keys of another class. A forgotten key has its whole burst again.
Rule 4: limits count in one process. With several processes a principal gets at most the sum; a strict quota for all of
them belongs in the proxy.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import ceil

from interlock.errors import UsageError
from interlock.model.limits import RATE_BURST_MAX, RATE_KEYS_MAX, RATE_PER_SECOND_MAX


class RequestClass(StrEnum):
    """What a request does. `refuse` counts refused ones; `anonymous` those without a principal, by address."""

    SEND = "send"
    READ = "read"
    REFUSE = "refuse"
    OPERATE = "operate"
    ANONYMOUS = "anonymous"


@dataclass(frozen=True, slots=True)
class Rate:
    """Requests per second on average, and in a burst. Raises UsageError outside the limits."""

    per_second: float
    burst: int

    def __post_init__(self) -> None:
        if not 0 < self.per_second <= RATE_PER_SECOND_MAX or not 1 <= self.burst <= RATE_BURST_MAX:
            message = f"invalid rate: {self.per_second} per second, burst {self.burst}"
            hint = f"above 0 and at most {RATE_PER_SECOND_MAX:,} per second; a burst of 1 to {RATE_BURST_MAX:,}"
            raise UsageError(message, code="rate.range", hint=hint)


class Gcra:
    """One limit of one key. Pure: the caller gives the time."""

    __slots__ = ("_interval_ms", "_paid_ms", "_window_ms")

    def __init__(self, rate: Rate) -> None:
        self._interval_ms = 1000 / rate.per_second
        self._window_ms = self._interval_ms * rate.burst
        self._paid_ms = float("-inf")

    def take(self, now_ms: int) -> int | None:
        """Count a request that is allowed: None. Otherwise the milliseconds until one is."""
        paid_ms = min(max(self._paid_ms, now_ms), now_ms + self._window_ms)  # never further ahead, except by the clock
        over_ms = paid_ms + self._interval_ms - now_ms - self._window_ms
        if over_ms > _ROUNDING_MS:
            self._paid_ms = paid_ms
            return ceil(over_ms)
        self._paid_ms = paid_ms + self._interval_ms
        return None


_ROUNDING_MS = 1e-3
"""Sums of intervals such as a third of a second are not exact: a microsecond too early is in time."""


class RateLimiter:
    """The limits of one process, by class and key. A class without a rate is unlimited."""

    def __init__(self, rates: Mapping[RequestClass, Rate], *, keys_max: int = RATE_KEYS_MAX) -> None:
        self._rates = dict(rates)
        self._keys_max = keys_max
        self._limits: dict[RequestClass, OrderedDict[str, Gcra]] = {each: OrderedDict() for each in self._rates}

    def take(self, request_class: RequestClass, key: str, now_ms: int) -> int | None:
        """Count a request of a key that is allowed: None. Otherwise the milliseconds until one is."""
        limits = self._limits.get(request_class)
        if limits is None:
            return None
        limit = limits.get(key)
        if limit is None:
            limit = limits[key] = Gcra(self._rates[request_class])
            if len(limits) > self._keys_max:
                limits.popitem(last=False)
        else:
            limits.move_to_end(key)
        return limit.take(now_ms)
