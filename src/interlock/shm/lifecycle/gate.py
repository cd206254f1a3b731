"""A gate: phase and number of permits in one word, for threads and for processes that start and end together.

Rule 1: the word is `phase << 32 | permits` and changes by swaps only, INIT -> RUNNING -> DRAINING -> CLOSED.
Rule 2: exactly one swap decides CLOSED, and its caller knows it: the last exit, or a drain without permits in use.
Rule 3: a process killed inside leaves its count, and the gate never closes. A `Lifecycle` does not have this weakness,
but needs a slot per process.
"""

from __future__ import annotations

from interlock.shm.lifecycle.drain import CloseReport, Drain, DrainWait, check_timeout
from interlock.shm.lifecycle.permits import Phase, open_permit_counter, raise_refusal
from interlock.shm.memory.region import LINE, MemoryRegion


class Gate:
    """Admits while running, drains, closes once. Every process that opens the same name shares it.

    >>> from interlock.shm.memory.region import MemoryRegion
    >>> with MemoryRegion.create() as region:
    ...     gate = Gate(region)
    ...     started = gate.start()
    ...     with gate.enter():
    ...         draining = gate.drain().started
    ...         late = gate.try_enter()
    ...     started, draining, late, gate.phase.name
    (True, True, None, 'CLOSED')
    """

    def __init__(self, region: MemoryRegion, name: str = "main") -> None:
        self._words = region.words
        self._word = region.area(f"gate.{name}", LINE)
        self._what = f"gate `{name}`"
        self._counter = open_permit_counter(
            region,
            word=self._word,
            identity=(region.epoch, 0, 0),
            refuse=self._refuse,
            on_last_exit=lambda: True,
        )
        self._wait = DrainWait(self._words, self._word)
        # Bound once: the calls go directly into the C core.
        self.try_enter = self._counter.try_enter
        """Return a permit while running, else None. Use it in `with`, or pass it to `exit`."""
        self.enter = self._counter.enter
        """Return a permit while running. Raises RejectedError (`gate.not_running`) otherwise."""
        self.exit = self._counter.exit
        """Return a permit. True if this exit closed the gate. Raises UsageError for a second exit."""
        self.enter_unchecked = self._counter.enter_unchecked
        """Enter without a permit, for the fastest code. True if the caller is inside."""
        self.exit_unchecked = self._counter.exit_unchecked
        """Exit after `enter_unchecked`. True if this exit closed the gate. The pairing is not checked."""

    @property
    def phase(self) -> Phase:
        """The phase of the gate."""
        return Phase(self._wait.phase())

    @property
    def permits(self) -> int:
        """The number of permits in use."""
        return self._words.load(self._word) & 0xFFFFFFFF

    def start(self) -> bool:
        """Move INIT to RUNNING. True if this call did."""
        return self._counter.start(Phase.RUNNING)

    def abort(self) -> bool:
        """Move INIT to CLOSED, without running. True if this call did."""
        return self._counter.start(Phase.CLOSED)

    def drain(self, *, timeout: float = 30.0) -> Drain:
        """Refuse new work from now on. Returns a `Drain`, which waits at most `timeout` seconds for the permits."""
        check_timeout(timeout)
        started = self._counter.drain() != Phase.INIT
        return Drain(self._wait, self._report, started=started, timeout=timeout)

    def wait_closed(self, *, timeout: float | None = None) -> bool:
        """Block this thread until closed. False if the timeout expired. Raises UsageError in an event loop."""
        return self._wait.in_thread(timeout)

    async def closed(self) -> None:
        """Wait until closed without blocking the event loop. Use `asyncio.timeout` to limit it."""
        await self._wait.in_loop(None)

    def _report(self) -> CloseReport:
        word = self._words.load(self._word)
        phase = Phase(word >> 32)
        return CloseReport(closed=phase is Phase.CLOSED, phase=phase, permits=word & 0xFFFFFFFF)

    def _refuse(self, reason: int) -> None:
        raise_refusal(reason, what=self._what, phase=self.phase.name.lower())
