"""The data keys of a store in memory: lost with its journals when the process ends."""

from __future__ import annotations

from interlock.ports.trust.data_keys import DATA_KEYS_PAGE, DataKey, Destroyed, DestroyedKey


class MemoryKeys:
    """The data keys of one store."""

    tenant = ""

    def __init__(self) -> None:
        self._keys: dict[str, DataKey] = {}
        self._destroyed: dict[str, DestroyedKey] = {}
        self._oldest = 0

    async def add_keys(self, keys: tuple[DataKey, ...]) -> bool:
        """Store keys; False if an epoch of them is retired."""
        if any(each.epoch < self._oldest for each in keys):
            return False
        self._keys.update((each.kid, each) for each in keys)
        return True

    async def find_key(self, kid: str) -> DataKey | DestroyedKey | None:
        """Return a key, or that it was destroyed."""
        return self._destroyed.get(kid) or self._keys.get(kid)

    async def destroy_key(self, kid: str, *, now_ms: int) -> Destroyed:
        """Destroy a key."""
        self._keys.pop(kid, None)
        self._destroyed.setdefault(kid, DestroyedKey(kid, now_ms))
        return Destroyed.FINAL

    async def destroyed_keys(self, *, after: str = "", limit: int = DATA_KEYS_PAGE) -> tuple[DestroyedKey, ...]:
        """Return destroyed keys by id."""
        return tuple(each for kid, each in sorted(self._destroyed.items()) if kid > after)[:limit]

    async def retire_epochs(self, before: int) -> None:
        """Accept no key of an older epoch any more."""
        self._oldest = max(self._oldest, before)

    async def keys_before(self, epoch: int, *, limit: int = DATA_KEYS_PAGE) -> tuple[DataKey, ...]:
        """Return keys that are wrapped under an older epoch."""
        return tuple(each for _, each in sorted(self._keys.items()) if each.epoch < epoch)[:limit]

    async def replace_keys(self, keys: tuple[DataKey, ...]) -> None:
        """Store the new wraps of keys that were not destroyed meanwhile."""
        self._keys.update((each.kid, each) for each in keys if each.kid in self._keys)

    async def count_keys(self) -> dict[int, int]:
        """Return how many keys each epoch has."""
        found: dict[int, int] = {}
        for each in self._keys.values():
            found[each.epoch] = found.get(each.epoch, 0) + 1
        return found
