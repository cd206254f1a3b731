"""The keys that an entity remembers, as a table, and as `state.json` has them.

Rule 1: a key that was encoded once is not encoded again. Keys are most of `state.json`; all of them, encoded anew with
every snapshot, cost a third of an append.
Rule 2: the oldest go in pieces. So the encoding may hold some more than are remembered; whoever reads it drops them.
Rule 3: up to when keys are forgotten is known, too, so that an event from before that is not taken twice. The times of
some entries are enough for it: it is said to be later than it is, by less than `TIMES_APART` entries, never earlier.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice

import msgspec
from msgspec import Struct

KEYS_MAX = 10_000
"""Keys that an entity remembers: they stand in `state.json`, which must stay readable in one go."""

PIECE_MAX = 512
"""Keys of a piece: so many more than are remembered may stand in `state.json`."""

TIMES_APART = 64
"""Every which entry's time is remembered: few beside the keys, and near enough for a bound."""

_pairs = msgspec.json.Decoder(list[tuple[str, int]])


class Times(Struct, frozen=True, omit_defaults=True):
    """Up to when keys are forgotten (0: none is), and the times of some entries whose keys are not: version, time."""

    forgotten_ms: int = 0
    entries: tuple[tuple[int, int], ...] = ()


NO_TIMES = Times()


class RecentKeys:
    """Keys and the versions of their entries, oldest first; and up to when they are forgotten."""

    def __init__(self, pairs: Iterable[tuple[str, int]] = (), times: Times = NO_TIMES) -> None:
        self._versions = dict(pairs)
        self.forgotten_ms = times.forgotten_ms
        self._times = deque(times.entries)
        self._pieces: deque[tuple[int, bytes]] = deque()
        self._encoded = 0
        self._fresh = len(self._versions)

    @classmethod
    def decoded(cls, data: bytes, times: Times = NO_TIMES) -> RecentKeys:
        """The keys in these bytes. Raises MsgspecError when they are none.

        Those that an earlier release wrote have no times: when they are forgotten, nobody knows up to when.
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
        """The version of the entry that used a key; None when it is not known."""
        return self._versions.get(key)

    def remember(self, key: str, version: int, time_ms: int) -> None:
        """Adds the key of an entry as the newest, and forgets the oldest when there are too many.

        One that is known may come again in adopted records: other stores forget by age. Then all are encoded anew.
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
        """The entry of this version is not known by its key any more: nor is any before the next one with a time."""
        times = self._times
        while times and times[0][0] < version:
            times.popleft()
        self.forgotten_ms = max(self.forgotten_ms, times[0][1] if times else now_ms)

    def may_have_had(self, sent_ms: int) -> bool:
        """Whether an event that was first sent at a time may have a key that is forgotten."""
        return 0 < self.forgotten_ms >= sent_ms

    def times(self) -> Times:
        """What `state.json` has beside the keys."""
        if not self._times and self.forgotten_ms == 0:
            return NO_TIMES  # the very same: only then it is left out
        return Times(self.forgotten_ms, tuple(self._times))

    def encoded(self) -> bytes:
        """Keys as `state.json` has them: pairs, since the order of a mapping is not kept."""
        fresh = list(islice(reversed(self._versions.items()), self._fresh))
        fresh.reverse()
        for first in range(0, len(fresh), PIECE_MAX):
            piece = fresh[first : first + PIECE_MAX]
            self._pieces.append((len(piece), msgspec.json.encode(piece)[1:-1]))  # plain texts and numbers: canonical
        self._encoded += len(fresh)
        self._fresh = 0
        while self._pieces and self._encoded - self._pieces[0][0] >= len(self._versions):
            self._encoded -= self._pieces.popleft()[0]
        return b"[%b]" % b",".join(piece for _, piece in self._pieces)
