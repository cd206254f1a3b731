"""The keys that an entity remembers, as a table, and as `state.json` has them.

Rule 1: a key that was encoded once is not encoded again. Keys are most of `state.json`; all of them, encoded anew with
every snapshot, cost a third of an append.
Rule 2: the oldest go in pieces. So the encoding may hold some more than are remembered; whoever reads it drops them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice

import msgspec

KEYS_MAX = 10_000
"""Keys that an entity remembers: they stand in `state.json`, which must stay readable in one go."""

PIECE_MAX = 512
"""Keys of a piece: so many more than are remembered may stand in `state.json`."""

_pairs = msgspec.json.Decoder(list[tuple[str, int]])


class Keys:
    """Keys and the versions of their entries, oldest first."""

    def __init__(self, pairs: Iterable[tuple[str, int]] = ()) -> None:
        self._versions = dict(pairs)
        self._pieces: deque[tuple[int, bytes]] = deque()
        self._encoded = 0
        self._fresh = len(self._versions)

    @classmethod
    def decoded(cls, data: bytes) -> Keys:
        """The keys in these bytes. Raises MsgspecError when they are none."""
        return cls(_pairs.decode(data)[-KEYS_MAX:])

    def __len__(self) -> int:
        return len(self._versions)

    def __iter__(self) -> Iterator[str]:
        return iter(self._versions)

    def get(self, key: str) -> int | None:
        """The version of the entry that used a key; None when it is not known."""
        return self._versions.get(key)

    def remember(self, key: str, version: int) -> None:
        """Adds a key as the newest, and forgets the oldest when there are too many.

        One that is known may come again in adopted records: other stores forget by age. Then all are encoded anew.
        """
        versions = self._versions
        if key in versions:
            del versions[key]
            self._pieces.clear()
            self._encoded, self._fresh = 0, len(versions)
        versions[key] = version
        self._fresh += 1
        if len(versions) > KEYS_MAX:
            del versions[next(iter(versions))]

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
