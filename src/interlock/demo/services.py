"""The outside of the demo: bank, warehouse, carrier, network, disks and hypervisor, and all that goes wrong with them.

Rule 1: they remember nothing. What happens to a deed follows from the seed, its key and the number of the attempt, so
a demo that was killed goes on with the same services, and one seed shows one world.
Rule 2: whatever they answer, they answer the same under the same key: nothing is done twice.
"""

from __future__ import annotations

from collections import Counter
from hashlib import blake2b

from interlock.errors import RejectedError, UnavailableError
from interlock.ports.clock import Clock

SEED = 24
"""The world that is shown unless another is asked for: its first ten seconds hold every kind of trouble."""

REFUSED = {
    "charge": 0.08,
    "reservation": 0.03,
    "parcel": 0.12,
    "receipt": 0.03,
    "address": 0.02,
    "route": 0.10,
    "volume": 0.02,
    "content": 0.10,
    "power": 0.06,
}
"""How often a deed is refused for good, by deed: sagas compensate then, and receipts become dead letters."""

UNREACHABLE = 0.18
"""How often a line is dead, per attempt: the retry shows."""

SILENT = 0.05
"""How often the bank takes a charge and says nothing: it has to be looked up."""

LOST = 0.60
"""How often, per attempt, the bank cannot tell about a charge or pay one back."""

CHARGED = 0.5
"""How often the card was charged when the bank said nothing."""

SLOW_MS = (30, 450)
"""The shortest and the longest answer."""

SILENCE_MS = 600_000
"""Longer than any timeout of the charts."""


class Services:
    """All of them, behind two doors: `do` and `undo`. `done` counts what they did, by deed."""

    def __init__(self, clock: Clock, seed: int) -> None:
        self._clock = clock
        self._seed = seed
        self.done: Counter[str] = Counter()

    def chance(self, *words: object) -> float:
        """A number from 0 to 1 that is the same for the same words."""
        return int.from_bytes(self._digest(*words)) / 2**64

    async def do(self, deed: str, key: str, entity: str, number: int) -> str:
        """Do it: its name. Raises RejectedError when it will never be done, UnavailableError when the line is dead."""
        await self._answer_time(deed, key, number)
        if self.chance("refused", deed, entity) < REFUSED[deed]:
            raise RejectedError(f"no {deed} for {entity}", code=f"{deed}.refused")
        if deed == "charge" and self.chance("silent", entity) < SILENT:
            await self._clock.sleep_ms(SILENCE_MS)
        self._reached(deed, key, number, UNREACHABLE)
        return self._told(deed, key)

    async def undo(self, deed: str, key: str, number: int) -> None:
        """Make up for it. Raises UnavailableError when the line is dead."""
        await self._answer_time(deed, key, number)
        self._reached(deed, key, number, LOST if deed == "refund" else UNREACHABLE)
        self._told(deed, key)

    async def find(self, charge: str, key: str, number: int) -> str | None:
        """The name of a charge, or None: it was not made. Raises UnavailableError when the bank cannot tell."""
        await self._answer_time("lookup", key, number)
        self._reached("lookup", key, number, LOST)
        self.done["lookup"] += 1
        return self._name("charge", charge) if self.chance("charged", charge) < CHARGED else None

    async def _answer_time(self, deed: str, key: str, number: int) -> None:
        shortest, longest = SLOW_MS
        await self._clock.sleep_ms(shortest + (longest - shortest) * self.chance("time", deed, key, number))

    def _reached(self, deed: str, key: str, number: int, share: float) -> None:
        if self.chance("line", deed, key, number) < share:
            code = "bank.unreachable" if deed in ("charge", "lookup", "refund") else "service.unreachable"
            raise UnavailableError("the line is dead", code=code)

    def _told(self, deed: str, key: str) -> str:
        self.done[deed] += 1
        return self._name(deed, key)

    def _name(self, deed: str, key: str) -> str:
        return f"{deed}-{self._digest(deed, key).hex()[:8]}"

    def _digest(self, *words: object) -> bytes:
        return blake2b("\n".join(map(str, (self._seed, *words))).encode(), digest_size=8).digest()
