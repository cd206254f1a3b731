"""The recent keys of an entity: in memory, and as `state.json` contains them.

Rule 1: a key is encoded once. Keys are most of `state.json`; encoding all of them for every snapshot took a third of
the time of an append.
Rule 2: the oldest keys are dropped in pieces, so the encoding may contain some more than are remembered. Reading it
drops them.
Rule 3: it is known up to when keys were forgotten, so that an event from before that time is not applied twice. The
times of some entries are enough: the bound is too late by less than `TIMES_APART` entries, and never too early.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice

import msgspec
from msgspec import Struct

KEYS_MAX = 10_000
"""Keys that an entity remembers: they are in `state.json`, which must stay small enough for one read."""

PIECE_MAX = 512
"""Keys of a piece: `state.json` may contain so many more than are remembered."""

TIMES_APART = 64
"""The time of every 64th entry is remembered: few compared with the keys, and close enough for a bound."""

_pairs = msgspec.json.Decoder(list[tuple[str, int]])


class Times(Struct, frozen=True, omit_defaults=True):
    """Up to when keys were forgotten (0: none was), and version and time of some entries whose keys are remembered."""

    forgotten_ms: int = 0
    entries: tuple[tuple[int, int], ...] = ()


NO_TIMES = Times()


class RecentKeys:
    """Keys and the versions of their entries, oldest first; and up to when keys were forgotten."""

    def __init__(self, pairs: Iterable[tuple[str, int]] = (), times: Times = NO_TIMES) -> None:
        self._versions = dict(pairs)
        self.forgotten_ms = times.forgotten_ms
        self._times = deque(times.entries)
        self._pieces: deque[tuple[int, bytes]] = deque()
        self._encoded = 0
        self._fresh = len(self._versions)

    @classmethod
    def decode(cls, data: bytes, times: Times = NO_TIMES) -> RecentKeys:
        """The keys in these bytes. Raises MsgspecError when they are invalid.

        Keys that an earlier release wrote have no times: up to when they are forgotten is then unknown.
        """
        pairs = _pairs.decode(data)[-KEYS_MAX:]
        if times == NO_TIMES and pairs and pairs[-1][1] >= TIMES_APART:
            times = Times(0, ((pairs[-1][1], 0),))
        return cls(pairs, times)

    def __len__(self) -> int:
        return len(self._versions)

    def __iter__(self) -> Iterator[str]:
        return iter(self._versions)

    def get(self, key: str) -> int | None:
        """The version of the entry that used a key; None when the key is unknown."""
        return self._versions.get(key)

    def remember(self, key: str, version: int, time_ms: int) -> None:
        """Add the key of an entry as the newest, and forget the oldest when there are too many.

        A known key may come again in adopted records, since other stores forget by age. Then all are encoded again.
        """
        versions = self._versions
        if key in versions:
            del versions[key]
            self._pieces.clear()
            self._encoded, self._fresh = 0, len(versions)
        versions[key] = version
        self._fresh += 1
        if version % TIMES_APART == 0:
            self._times.append((version, time_ms))
        if len(versions) > KEYS_MAX:
            self._forget(versions.pop(next(iter(versions))), time_ms)

    def _forget(self, version: int, now_ms: int) -> None:
        """Forget the key of this version, and with it every time before that version."""
        times = self._times
        while times and times[0][0] < version:
            times.popleft()
        self.forgotten_ms = max(self.forgotten_ms, times[0][1] if times else now_ms)

    def may_be_forgotten(self, sent_ms: int) -> bool:
        """Whether the key of an event that was first sent at this time may have been forgotten."""
        return 0 < self.forgotten_ms >= sent_ms

    def times(self) -> Times:
        """The times for `state.json`."""
        if not self._times and self.forgotten_ms == 0:
            return NO_TIMES  # only the very default is left out
        return Times(self.forgotten_ms, tuple(self._times))

    def encode(self) -> bytes:
        """The keys for `state.json`: pairs, because JSON objects have no order."""
        fresh = list(islice(reversed(self._versions.items()), self._fresh))
        fresh.reverse()
        for first in range(0, len(fresh), PIECE_MAX):
            piece = fresh[first : first + PIECE_MAX]
            self._pieces.append(
                (len(piece), msgspec.json.encode(piece)[1:-1])
            )  # strings and integers only: deterministic
        self._encoded += len(fresh)
        self._fresh = 0
        while self._pieces and self._encoded - self._pieces[0][0] >= len(self._versions):
            self._encoded -= self._pieces.popleft()[0]
        return b"[%b]" % b",".join(piece for _, piece in self._pieces)
