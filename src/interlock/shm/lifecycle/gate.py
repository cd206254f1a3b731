"""A gate: phase and number of permits in one word, for threads and for processes that live and die together.

Rule 1: the word is `phase << 32 | permits` and moves by swaps only, INIT -> RUNNING -> DRAINING -> CLOSED.
Rule 2: exactly one swap decides CLOSED, and its caller knows it: the last exit, or a drain that finds nobody inside.
Rule 3: a process killed inside leaves its count behind, and the gate never closes; a `Lifecycle` does not have this
weakness, at the price of a slot per process.
"""

from __future__ import annotations

from interlock.shm.lifecycle.drain import CloseReport, Drain, DrainWait, checked_timeout
from interlock.shm.memory.permits import Pair, Permit, Phase, refuse
from interlock.shm.memory.region import LINE, MemoryRegion


class Gate:
    """Admits while running, drains, closes once. Every process that opens the same name shares it.

    >>> from interlock.shm.memory.region import MemoryRegion
    >>> with MemoryRegion.create() as region:
    ...     gate = Gate(region)
    ...     started = gate.start()
    ...     with gate.enter():
    ...         draining = gate.drain().began
    ...         late = gate.try_enter()
    ...     started, draining, late, gate.phase.name
    (True, True, None, 'CLOSED')
    """

    def __init__(self, region: MemoryRegion, name: str = "main") -> None:
        self._words = region.words
        self._word = region.area(f"gate.{name}", LINE)
        self._what = f"gate `{name}`"
        self._door = region.door(
            word=self._word,
            count=-1,
            identity=(region.epoch, 0, 0),
            refuse=self._refuse,
            last=lambda: True,
            aside=self._aside,
        )
        self._waiting = DrainWait(self._words, self._word, tend=lambda: None, owners=tuple)
        # Bound once: the calls go straight into the core.
        self.try_enter = self._door.try_enter
        """A permit while running, else None. `with` it, or give it to `exit`."""
        self.enter = self._door.enter
        """A permit while running. Raises RejectedError (`gate.not_running`) otherwise."""
        self.exit = self._door.exit
        """Give a permit back; True when this exit closed the gate. Raises UsageError for any but the first exit."""

    @property
    def phase(self) -> Phase:
        """Where the gate is."""
        return Phase(self._waiting.phase())

    @property
    def permits(self) -> int:
        """How many are inside."""
        return self._words.load(self._word) & 0xFFFFFFFF

    def start(self) -> bool:
        """Move INIT to RUNNING; True when this call did."""
        return self._door.begin(Phase.RUNNING)

    def abort(self) -> bool:
        """Move INIT to CLOSED: it never ran. True when this call did."""
        return self._door.begin(Phase.CLOSED)

    def drain(self, *, timeout: float = 30.0) -> Drain:
        """Refuse new work from now on; gives what to wait for the rest with, at most `timeout` seconds."""
        checked_timeout(timeout)
        began = self._door.drain() != Phase.INIT
        return Drain(self._waiting, self._report, began=began, timeout=timeout)

    def wait_closed(self, *, timeout: float | None = None) -> bool:
        """Block this thread until closed; False when the time is over. Raises UsageError in an event loop."""
        return self._waiting.in_thread(timeout)

    async def closed(self) -> None:
        """Wait until closed without blocking the event loop. `asyncio.timeout` bounds it."""
        await self._waiting.in_loop(None)

    def bare(self) -> Pair:
        """`enter() -> bool` and `exit() -> bool` without permits, for the hottest code. Nobody checks the pairing."""
        return self._door.come, self._door.go

    def _report(self) -> CloseReport:
        word = self._words.load(self._word)
        phase = Phase(word >> 32)
        return CloseReport(closed=phase is Phase.CLOSED, phase=phase, permits=word & 0xFFFFFFFF)

    def _refuse(self, reason: int) -> None:
        refuse(reason, what=self._what, phase=self.phase.name.lower())

    async def _aside(self, permit: Permit, leaving: bool) -> Permit | None:  # noqa: FBT001  # called by position
        if not leaving:
            return permit
        self._door.exit(permit)
        return None
