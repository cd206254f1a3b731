"""A chart in one shared word: its state in the high half, the number of permits in the low half.

Rule 1: only charts that fit are taken: flat, one chain in document order, every transition to a later state, nothing
to remember beside the state. All reasons against a chart are told at once (`word_diagnostics`).
Rule 2: `send` is the six duties of a driver on a word: load, step (the kernel's own), swap; a lost swap steps again.
Rule 3: effects are given to `perform` in the process whose swap won, once; the word is not durable, a store is.
Rule 4: permits are admitted in the state tagged `admits`; the state tagged `drains` is left, by its one transition, in
the very swap that takes the last permit back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from interlock.errors import ConflictError, DefinitionError, Diagnostic, UsageError
from interlock.kernel.step import Kernel
from interlock.model.chart import Chart, State
from interlock.model.effect import Effect
from interlock.model.event import Event, check_sendable
from interlock.model.journal.entry import Receipt
from interlock.model.snapshot import Ended, Snapshot
from interlock.model.step import Step
from interlock.shm.lifecycle.chart_check import ADMITS, DRAINS, word_diagnostics
from interlock.shm.lifecycle.drain import DrainWait, checked_timeout
from interlock.shm.memory.permits import Permit, PlainPermitCounter, refuse
from interlock.shm.memory.region import LINE, MemoryRegion

LIFECYCLE_YAML = """\
interlock: 1
kind: lifecycle
revision: 1.0.0
initial: init
states:
  init:     {expect: {within: forever}, on: {lifecycle.started: running, lifecycle.aborted: closed}}
  running:  {expect: {within: forever}, tags: [admits], on: {drain.requested: draining}}
  draining: {expect: {within: 1m}, tags: [drains], on: {work.emptied: closed}}
  closed:   {type: final}
"""
"""The life of a gate as a chart: what `Gate` does, in the words of this module."""

NO_STATE = -1


class Bound(Protocol):
    """A chart with its code, as `interlock.load` gives it."""

    @property
    def chart(self) -> Chart: ...


class AtomicChart:
    """A chart whose one entity lives in a word of a region, shared by all processes that have the region.

    Raises DefinitionError with every reason when the chart does not fit, UsageError when the region holds another
    revision of it.

    >>> import interlock
    >>> from interlock.shm.memory.region import MemoryRegion
    >>> with MemoryRegion.create() as region:
    ...     life = AtomicChart(interlock.loads(LIFECYCLE_YAML), region)
    ...     started = life.send("lifecycle.started").outcome
    ...     with life.enter():
    ...         draining = life.send("drain.requested").outcome, life.state
    ...     started, draining, life.state
    ('applied', ('applied', 'draining'), 'closed')
    """

    def __init__(
        self, chart: Chart | Bound, region: MemoryRegion, *, perform: Callable[[Effect], object] | None = None
    ) -> None:
        self.chart = chart if isinstance(chart, Chart) else chart.chart
        found = word_diagnostics(self.chart)
        if found:
            raise DefinitionError(found)
        self._chain: tuple[State, ...] = tuple(self.chart.states[child] for child in self.chart.states[0].children)
        self._numbers = {state.id: number for number, state in enumerate(self._chain)}
        self._entity = f"{region.epoch:016x}"
        self._words = region.words
        self._perform = perform
        self._kernel = Kernel(self.chart)
        revision = region.word(f"{self.chart.kind[:20]}.revision", initial=_fingerprint(self.chart))
        if revision.load() != _fingerprint(self.chart):
            raise UsageError(
                f"the region holds another revision of chart `{self.chart.kind}`",
                code="chart.revision",
                hint="run one revision in all processes, or make another region",
            )
        self._word = region.area(f"chart.{self.chart.kind[:30]}", LINE)
        self._drains = self._tagged(DRAINS)
        self._after = self._numbers[self._emptied().snapshot.configuration[0]] if self._drains >= 0 else NO_STATE
        self._door = PlainPermitCounter(
            self._words,
            self._word,
            -1,
            (region.epoch, 0, 0),
            self._refuse,
            self._left_last,
            self._aside,
            phases=(self._tagged(ADMITS), self._drains, self._after),
        )
        self._waiting = DrainWait(self._words, self._word, tend=lambda: None, owners=tuple, ended=self._is_final)

    @property
    def state(self) -> str:
        """The id of the state now."""
        return self._chain[self._words.load(self._word) >> 32].id

    @property
    def permits(self) -> int:
        """How many are inside."""
        return self._words.load(self._word) & 0xFFFFFFFF

    def send(self, event: str, payload: Any = None, *, expected: str | None = None) -> Receipt:
        """Give an event to the chart. Effects of an applied one have been performed here when this returns.

        `expected` is the state it must be in: ConflictError otherwise. Leaving the state tagged `drains` while permits
        are out is `rejected`, reason `permits`.
        """
        if expected is not None and expected not in self._numbers:
            raise UsageError(
                f"chart `{self.chart.kind}` has no state `{expected}`",
                code="state.unknown",
                hint=", ".join(self._numbers),
            )
        check_sendable(event)
        given = Event(event, payload)
        seen = self._words.load(self._word)
        while True:  # ends: each lost swap is another's won one
            number, permits = seen >> 32, seen & 0xFFFFFFFF
            if expected is not None and self._numbers[expected] != number:
                raise ConflictError(
                    f"the chart is in `{self._chain[number].id}`, not `{expected}`", code="conflict.state"
                )
            step = self._kernel.step(self._snapshot(number), given)
            if step.outcome != "applied":
                return Receipt(self._entity, step.outcome, number + 1, step.reason, None, (), step.faults, step.trials)
            if permits and number == self._drains:
                return Receipt(self._entity, "rejected", number + 1, "permits")
            after = self._numbers[step.snapshot.configuration[0]]
            passed = after == self._drains and not permits  # nobody is inside: drained as soon as draining
            before, seen = seen, self._words.swap(self._word, seen, (self._after if passed else after) << 32 | permits)
            if seen == before:
                break
        self._words.wake(self._word + 4)
        effects = step.effects + (self._emptied().effects if passed else ())
        self._performed(effects)
        snapshot = self._emptied().snapshot if passed else step.snapshot
        return Receipt(self._entity, "applied", snapshot.version, None, snapshot, effects)

    def try_enter(self) -> Permit | None:
        """A permit in the state tagged `admits`, else None."""
        return self._door.try_enter()

    def enter(self) -> Permit:
        """A permit in the state tagged `admits`. Raises RejectedError (`gate.not_running`) otherwise."""
        return self._door.enter()

    def exit(self, permit: Permit) -> bool:
        """Give a permit back; True when this exit moved the chart on."""
        return self._door.exit(permit)

    def wait_ended(self, *, timeout: float | None = None) -> bool:
        """Block this thread until a final state; False when the time is over. Raises UsageError in an event loop."""
        return self._waiting.in_thread(checked_timeout(timeout))

    async def ended(self) -> None:
        """Wait for a final state without blocking the event loop. `asyncio.timeout` bounds it."""
        await self._waiting.in_loop(None)

    def __repr__(self) -> str:
        return f"<AtomicChart {self.chart.kind} {self.state} permits={self.permits}>"

    def _snapshot(self, number: int) -> Snapshot:
        state = self._chain[number]
        ended: Ended | None = "done" if state.type == "final" else None
        # The word has no versions; a chain has, because it never turns back: its states are numbered.
        chart = self.chart
        return Snapshot(chart.kind, self._entity, number + 1, chart.revision, (state.id,), {}, ended=ended)

    def _emptied(self) -> Step:
        """The step by which the state tagged `drains` is left."""
        [number] = self._chain[self._drains].transitions
        transition = self.chart.transitions[number]
        step = self._kernel.step(self._snapshot(self._drains), Event(".".join(transition.descriptors[0].tokens)))
        if step.outcome != "applied":
            message = f"the last exit sends `{transition.label}` without a payload, and it is {step.outcome}"
            raise DefinitionError([Diagnostic(code="word.drains", message=message, place=transition.place)])
        return step

    def _left_last(self) -> bool:
        self._performed(self._emptied().effects)
        return True

    def _performed(self, effects: tuple[Effect, ...]) -> None:
        if self._perform is not None:
            for effect in effects:
                self._perform(effect)

    def _tagged(self, tag: str) -> int:
        return next((number for number, state in enumerate(self._chain) if tag in state.tags), NO_STATE)

    def _is_final(self, number: int) -> bool:
        return self._chain[number].type == "final"

    def _refuse(self, reason: int) -> None:
        refuse(reason, what=f"chart `{self.chart.kind}`", phase=self.state)

    async def _aside(self, permit: Permit, leaving: bool) -> Permit | None:  # noqa: FBT001  # called by position
        if not leaving:
            return permit
        self._door.exit(permit)
        return None


def _fingerprint(chart: Chart) -> int:
    """The revision as a word: the end of its content hash."""
    digits = "".join(each for each in chart.revision.rpartition("+")[2] if each in "0123456789abcdef")
    return int(digits[-16:] or "0", 16)
