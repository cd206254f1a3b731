"""The data keys of entities, as a store keeps them: wrapped, and apart from the journals.

Rule 1: a key is durable before the entry that uses it: `add_keys` returns after the flush.
Rule 2: a row does not name its entity. The entity knows the id of its key.
Rule 3: a destroyed key leaves its id and the time, so that a restored copy of the journal can be erased again.
Rule 4: after `retire_epochs` returns, no key of an older epoch is ever added: its master key is about to be destroyed.
"""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from msgspec import Struct

DATA_KEYS_PAGE = 500
"""Keys that are read and wrapped again at a time: rewrapping can be interrupted after each page."""


class DataKey(Struct, frozen=True):
    """A wrapped data key: its id (16 hex digits), the epoch of its master key, and when it was created."""

    kid: str
    epoch: int
    wrapped: bytes
    created_ms: int


class DestroyedKey(Struct, frozen=True):
    """The id of a data key that was destroyed, and when."""

    kid: str
    destroyed_ms: int


class Destroyed(Enum):
    """What is left of a key after `destroy_key`. Every answer means that no process can find it in the store."""

    FINAL = "final"
    """Its bytes are in no file of the store."""
    PENDING = "pending"
    """A reader kept the store from removing its log; the bytes are removed when another key is destroyed or added."""
    EPOCH = "epoch"
    """Wrapped copies remain in logs and dead rows, and are useless when the master key of the epoch is destroyed."""


class DataKeys(Protocol):
    """The data keys of a store."""

    @property
    def tenant(self) -> str:
        """The part of the store that the keys belong to; a wrapped key is bound to it."""

    async def add_keys(self, keys: tuple[DataKey, ...]) -> bool:
        """Store keys; False, and nothing is stored, if an epoch of them is retired."""

    async def find_key(self, kid: str) -> DataKey | DestroyedKey | None:
        """Return a key, or that it was destroyed; None if it is unknown."""

    async def destroy_key(self, kid: str, *, now_ms: int) -> Destroyed:
        """Destroy a key, and remember its id even if it is unknown. May be repeated."""

    async def destroyed_keys(self, *, after: str = "", limit: int = DATA_KEYS_PAGE) -> tuple[DestroyedKey, ...]:
        """Return destroyed keys by id, after one."""

    async def retire_epochs(self, before: int) -> None:
        """Accept no key of an epoch before this one any more."""

    async def keys_before(self, epoch: int, *, limit: int = DATA_KEYS_PAGE) -> tuple[DataKey, ...]:
        """Return keys that are wrapped under an older epoch."""

    async def replace_keys(self, keys: tuple[DataKey, ...]) -> None:
        """Store the new wraps of keys that were not destroyed meanwhile."""

    async def count_keys(self) -> dict[int, int]:
        """Return how many keys each epoch has."""
