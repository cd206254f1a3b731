"""End an epoch: wrap every live data key under a new master key, and destroy the old ones.

Rule 1: the store refuses keys of old epochs before the first key is wrapped again, so none is added behind the walk.
Rule 2: old master keys are destroyed only when no key of the store is wrapped under them.
Rule 3: it may be interrupted and repeated: it continues with what is left.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from interlock.errors import UsageError
from interlock.ports.threads import in_thread
from interlock.ports.trust.data_keys import DataKey, DataKeys
from interlock.ports.trust.keyring import Keyring


class Rotation(Struct, frozen=True):
    """The epoch that is the newest now, how many keys were wrapped again, and which epochs were destroyed.

    `kept` are epochs that only their keyring can destroy, because it is managed elsewhere.
    """

    epoch: int
    rewrapped: int
    destroyed: tuple[int, ...]
    kept: tuple[int, ...] = ()


async def rotate_epoch(keys: DataKeys, keyring: Keyring) -> Rotation:
    """Start a new epoch, and end the older ones. Raises UsageError (`keyring.read_only`) if there are none to end."""
    before = await in_thread(keyring.epochs)
    counts = await keys.count_keys()
    is_unfinished = len(before) > 1 or any(epoch < before[-1] for epoch in counts)
    epoch = before[-1] if is_unfinished else await in_thread(keyring.add_epoch)
    await keys.retire_epochs(epoch)
    rewrapped = 0
    while page := await keys.keys_before(epoch):
        rows = page
        await keys.replace_keys(await in_thread(lambda: tuple(_wrap_again(keyring, keys.tenant, epoch, rows))))  # noqa: B023 - awaited before the next page
        rewrapped += len(page)
    destroyed, kept = [], []
    for old in (each for each in before if each < epoch):
        try:
            await in_thread(lambda: keyring.destroy_epoch(old))  # noqa: B023 - awaited before the next one
        except UsageError:
            kept.append(old)
        else:
            destroyed.append(old)
    return Rotation(epoch, rewrapped, tuple(destroyed), tuple(kept))


def _wrap_again(keyring: Keyring, tenant: str, epoch: int, rows: tuple[DataKey, ...]) -> list[DataKey]:
    found = []
    for row in rows:
        key = keyring.unwrap(row.epoch, row.wrapped, kid=row.kid, tenant=tenant)
        found.append(replace(row, epoch=epoch, wrapped=keyring.wrap(epoch, key, kid=row.kid, tenant=tenant)))
    return found
