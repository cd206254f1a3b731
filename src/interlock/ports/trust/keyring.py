"""Master keys by epoch: what wraps the data keys of entities, and is destroyed when an epoch ends.

Rule 1: a master key never leaves its keyring. What a store keeps is a data key wrapped under the key of an epoch.
Rule 2: the newest epoch wraps; older ones only unwrap. After every live data key was wrapped again under the newest
epoch, the older master keys are destroyed, and with them every copy of an old wrap: in logs, dead rows and backups.
Rule 3: methods are called in threads, may be called at the same time, and may be slow.
"""

from __future__ import annotations

from typing import Protocol

KEYRING_VARIABLE = "INTERLOCK_KEYRING"
"""The environment variable with the address of the keyring, for every process of an installation."""

EPOCH_MAX = 2**31 - 1
"""The greatest number of an epoch: it fits into a column of 32 bits."""


class Keyring(Protocol):
    """Wraps and unwraps data keys."""

    @property
    def is_durable(self) -> bool:
        """Whether the keys outlive this process. A store that outlives it refuses a keyring without that."""

    def epochs(self) -> tuple[int, ...]:
        """Return the epochs that have a master key now, ascending, as they are at this moment."""

    def wrap(self, epoch: int, key: bytes, *, kid: str, tenant: str) -> bytes:
        """Return a data key wrapped under an epoch. Raises NotFoundError (`keyring.epoch`) for an epoch without key."""

    def unwrap(self, epoch: int, wrapped: bytes, *, kid: str, tenant: str) -> bytes:
        """Return a data key. Raises NotFoundError (`keyring.epoch`), and CorruptionError (`keyring.unwrap`)."""

    def add_epoch(self) -> int:
        """Create the master key of the next epoch, durably, and return its number.

        Raises UsageError (`keyring.read_only`) where keys are managed elsewhere.
        """

    def destroy_epoch(self, epoch: int) -> None:
        """Destroy the master key of an epoch. Raises UsageError (`keyring.read_only`) likewise."""
