"""The external services of the demo: bank, warehouse, carrier, network, disks and hypervisor, with their failures.

Rule 1: they have no state. The result of a request depends on the seed, its key and the number of the attempt, so a
killed demo resumes with the same services, and one seed always shows the same demo.
Rule 2: the same key always gets the same answer: nothing is done twice.
"""

from __future__ import annotations

from collections import Counter
from hashlib import blake2b

from interlock.errors import RejectedError, UnavailableError
from interlock.ports.clock import Clock

SEED = 24
"""The default seed: its first ten seconds have every kind of failure."""

REFUSAL_RATES = {
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
"""How often a request is refused permanently: sagas then compensate, and receipts become dead letters."""

UNREACHABLE_RATE = 0.18
"""How often a service is unreachable, per attempt."""

SILENT_RATE = 0.05
"""How often the bank does not answer a charge, so that it must be looked up."""

BANK_FAILURE_RATE = 0.60
"""How often a lookup or a refund fails, per attempt."""

CHARGED_RATE = 0.5
"""How often the card was charged although the bank did not answer."""

RESPONSE_MS = (30, 450)
"""The shortest and the longest response time."""

NO_ANSWER_MS = 600_000
"""Longer than any timeout of the charts."""


class Services:
    """All services. `done` counts what they did, by action."""

    def __init__(self, clock: Clock, seed: int) -> None:
        self._clock = clock
        self._seed = seed
        self.done: Counter[str] = Counter()

    def chance(self, *words: object) -> float:
        """Return a number from 0 to 1 that depends only on the seed and the words."""
        return int.from_bytes(self._digest(*words)) / 2**64

    async def do(self, action: str, key: str, entity: str, number: int) -> str:
        """Perform an action and return its id. Raises RejectedError and UnavailableError."""
        await self._respond_slowly(action, key, number)
        if self.chance("refused", action, entity) < REFUSAL_RATES[action]:
            raise RejectedError(f"no {action} for {entity}", code=f"{action}.refused")
        if action == "charge" and self.chance("silent", entity) < SILENT_RATE:
            await self._clock.sleep_ms(NO_ANSWER_MS)
        self._check_reachable(action, key, number, UNREACHABLE_RATE)
        return self._record(action, key)

    async def undo(self, action: str, key: str, number: int) -> None:
        """Perform a compensating action. Raises UnavailableError if the service is unreachable."""
        await self._respond_slowly(action, key, number)
        self._check_reachable(action, key, number, BANK_FAILURE_RATE if action == "refund" else UNREACHABLE_RATE)
        self._record(action, key)

    async def find(self, charge: str, key: str, number: int) -> str | None:
        """Return the id of a charge, or None if it was not made. Raises UnavailableError if the lookup fails."""
        await self._respond_slowly("lookup", key, number)
        self._check_reachable("lookup", key, number, BANK_FAILURE_RATE)
        self.done["lookup"] += 1
        return self._id("charge", charge) if self.chance("charged", charge) < CHARGED_RATE else None

    async def _respond_slowly(self, action: str, key: str, number: int) -> None:
        shortest, longest = RESPONSE_MS
        await self._clock.sleep_ms(shortest + (longest - shortest) * self.chance("time", action, key, number))

    def _check_reachable(self, action: str, key: str, number: int, share: float) -> None:
        if self.chance("line", action, key, number) < share:
            code = "bank.unreachable" if action in ("charge", "lookup", "refund") else "service.unreachable"
            raise UnavailableError("the service is unreachable", code=code)

    def _record(self, action: str, key: str) -> str:
        self.done[action] += 1
        return self._id(action, key)

    def _id(self, action: str, key: str) -> str:
        return f"{action}-{self._digest(action, key).hex()[:8]}"

    def _digest(self, *words: object) -> bytes:
        return blake2b("\n".join(map(str, (self._seed, *words))).encode(), digest_size=8).digest()
