"""A chart in one shared word: its state in the high half, the number of permits in the low half.

Rule 1: a chart must fit: flat, one chain in document order, every transition to a later state, and no data. A chart
that does not fit is refused with all reasons (`word_diagnostics`).
Rule 2: `send` does what every driver does, on a word: load, step (the kernel's), swap; a lost swap steps again.
Rule 3: effects are passed to `perform` once, in the process whose swap succeeded. The word is not durable; use a store.
Rule 4: permits are admitted in the state tagged `admits`. The swap that returns the last permit also leaves the state
tagged `drains`, by its one transition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from interlock.errors import NO_LOCATION, ConflictError, DefinitionError, Diagnostic, SourceLocation, UsageError
from interlock.kernel.step import Kernel
from interlock.model.charts.chart import Chart, State, Transition
from interlock.model.charts.sendable_events import knows_event, unknown_event
from interlock.model.document.actions import Block, Do, Emit, Log, Send
from interlock.model.effect import Effect
from interlock.model.event import Event, check_sendable
from interlock.model.journal.entry import Receipt
from interlock.model.refusal_text import explain_refusal
from interlock.model.snapshot import Ended, Snapshot
from interlock.model.step import Step
from interlock.shm.lifecycle.drain import DrainWait, check_timeout
from interlock.shm.lifecycle.permits import IN_WORD, Permit, PlainPermitCounter, raise_refusal
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
"""The lifecycle of a gate as a chart."""

NO_STATE = -1

ADMITS = "admits"
"""The tag of the state in which `enter` returns permits."""

DRAINS = "drains"
"""The tag of the state in which the chart waits for the last exit."""

STATES_MAX = 1 << 16
"""States of a chain. A typical chart has five."""


class Bound(Protocol):
    """A chart with its code, as `interlock.load` returns it."""

    @property
    def chart(self) -> Chart: ...


class AtomicChart:
    """A chart with one entity in a word of a region, shared by all processes that attach to the region.

    Raises DefinitionError with every reason if the chart does not fit, UsageError if the region has another revision.

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
        reasons = word_diagnostics(self.chart)
        if reasons:
            raise DefinitionError(reasons)
        self._chain: tuple[State, ...] = tuple(self.chart.states[child] for child in self.chart.states[0].children)
        self._numbers = {state.id: number for number, state in enumerate(self._chain)}
        self._entity = f"{region.epoch:016x}"
        self._words = region.words
        self._perform = perform
        self._kernel = Kernel(self.chart)
        revision = region.word(f"{self.chart.kind[:20]}.revision", initial=_fingerprint(self.chart))
        if revision.load() != _fingerprint(self.chart):
            raise UsageError(
                f"the region has another revision of chart `{self.chart.kind}`",
                code="chart.revision",
                hint="run one revision in all processes, or use another region",
            )
        self._word = region.area(f"chart.{self.chart.kind[:30]}", LINE)
        self._drains = self._state_tagged(DRAINS)
        self._after = self._numbers[self._last_exit_step().snapshot.configuration[0]] if self._drains >= 0 else NO_STATE
        self._counter = PlainPermitCounter(
            self._words,
            self._word,
            IN_WORD,
            (region.epoch, 0, 0),
            self._refuse,
            self._on_last_exit,
            phases=(self._state_tagged(ADMITS), self._drains, self._after),
        )
        self._wait = DrainWait(self._words, self._word, is_last=self._is_final)

    @property
    def state(self) -> str:
        """The id of the current state."""
        return self._chain[self._words.load(self._word) >> 32].id

    @property
    def permits(self) -> int:
        """The number of permits in use."""
        return self._words.load(self._word) & 0xFFFFFFFF

    def send(self, event: str, payload: Any = None, *, expected: str | None = None) -> Receipt:
        """Send an event to the chart. If it is applied, its effects have been performed here when this returns.

        Raises ConflictError if the chart is not in the state `expected`, UsageError (`event.unknown`) for an event that
        the chart does not have. An event that leaves the state tagged
        `drains` while permits are in use is `rejected`, reason `permits`.
        """
        if expected is not None and expected not in self._numbers:
            raise UsageError(
                f"unknown state `{expected}` in chart `{self.chart.kind}`",
                code="state.unknown",
                hint=", ".join(self._numbers),
            )
        check_sendable(event)
        input_event = Event(event, payload)
        seen = self._words.load(self._word)
        while True:  # ends: a lost swap means that another one succeeded
            number, permits = seen >> 32, seen & 0xFFFFFFFF
            if expected is not None and self._numbers[expected] != number:
                raise ConflictError(
                    f"the chart is in `{self._chain[number].id}`, not `{expected}`", code="conflict.state"
                )
            step = self._kernel.step(self._snapshot(number), input_event)
            if step.outcome != "applied":
                return self._refusal(number, input_event, step)
            if permits and number == self._drains:
                text = f"`{self._entity}` rejected `{event}`: permits are in use"
                return Receipt(self._entity, "rejected", number + 1, "permits", explanation=text)
            after = self._numbers[step.snapshot.configuration[0]]
            drained = after == self._drains and not permits  # without permits, draining ends immediately
            before, seen = seen, self._words.swap(self._word, seen, (self._after if drained else after) << 32 | permits)
            if seen == before:
                break
        self._words.wake(self._word + 4)
        effects = step.effects + (self._last_exit_step().effects if drained else ())
        self._perform_all(effects)
        snapshot = self._last_exit_step().snapshot if drained else step.snapshot
        return Receipt(self._entity, "applied", snapshot.version, None, snapshot, effects)

    def _refusal(self, number: int, event: Event, step: Step) -> Receipt:
        """Return the receipt of an event that changed nothing. Raises UsageError for an event of no chart."""
        if not knows_event(self.chart, event.name):
            raise unknown_event((self.chart,), event.name)
        text = explain_refusal(
            self.chart,
            self._snapshot(number),
            event,
            outcome=step.outcome,
            reason=step.reason,
            failed_guards=step.failed_guards,
            faults=step.faults,
        )
        return Receipt(
            self._entity,
            step.outcome,
            number + 1,
            step.reason,
            faults=step.faults,
            failed_guards=step.failed_guards,
            explanation=None if step.outcome == "ignored" else text,
        )

    def try_enter(self) -> Permit | None:
        """Return a permit in the state tagged `admits`, else None."""
        return self._counter.try_enter()

    def enter(self) -> Permit:
        """Return a permit in the state tagged `admits`. Raises RejectedError (`gate.not_running`) otherwise."""
        return self._counter.enter()

    def exit(self, permit: Permit) -> bool:
        """Return a permit. True if this exit moved the chart to the next state."""
        return self._counter.exit(permit)

    def wait_ended(self, *, timeout: float | None = None) -> bool:
        """Block this thread until a final state. False if the timeout expired. Raises UsageError in an event loop."""
        return self._wait.in_thread(check_timeout(timeout))

    async def ended(self) -> None:
        """Wait for a final state without blocking the event loop. Use `asyncio.timeout` to limit it."""
        await self._wait.in_loop(None)

    def __repr__(self) -> str:
        return f"<AtomicChart {self.chart.kind} {self.state} permits={self.permits}>"

    def _snapshot(self, number: int) -> Snapshot:
        state = self._chain[number]
        ended: Ended | None = "done" if state.type == "final" else None
        # The word has no version. A chain never goes back, so the number of the state serves as one.
        chart = self.chart
        return Snapshot(chart.kind, self._entity, number + 1, chart.revision, (state.id,), {}, ended=ended)

    def _last_exit_step(self) -> Step:
        """Return the step that leaves the state tagged `drains`."""
        [number] = self._chain[self._drains].transitions
        transition = self.chart.transitions[number]
        step = self._kernel.step(self._snapshot(self._drains), Event(".".join(transition.descriptors[0].tokens)))
        if step.outcome != "applied":
            message = f"the last exit sends `{transition.label}` without a payload; outcome: {step.outcome}"
            raise DefinitionError([Diagnostic(code="word.drains", message=message, location=transition.location)])
        return step

    def _on_last_exit(self) -> bool:
        self._perform_all(self._last_exit_step().effects)
        return True

    def _perform_all(self, effects: tuple[Effect, ...]) -> None:
        if self._perform is not None:
            for effect in effects:
                self._perform(effect)

    def _state_tagged(self, tag: str) -> int:
        return next((number for number, state in enumerate(self._chain) if tag in state.tags), NO_STATE)

    def _is_final(self, number: int) -> bool:
        return self._chain[number].type == "final"

    def _refuse(self, reason: int) -> None:
        raise_refusal(reason, what=f"chart `{self.chart.kind}`", phase=self.state)


def _fingerprint(chart: Chart) -> int:
    """Return the revision as a word: the end of its content hash."""
    digits = "".join(each for each in chart.revision.rpartition("+")[2] if each in "0123456789abcdef")
    return int(digits[-16:] or "0", 16)


def word_diagnostics(chart: Chart) -> tuple[Diagnostic, ...]:
    """Return every reason why the chart does not fit into a word, with its place; empty if it fits."""
    root = chart.states[0]
    chain = [chart.states[child] for child in root.children]
    found = list(_check_chart(chart, root, chain))
    for state in chain:
        found += _check_state(chart, state)
    for transition in chart.transitions:
        found += _check_transition(chart, transition)
    found += _check_tags(chart, chain)
    return tuple(found)


def _reason(code: str, message: str, location: SourceLocation = NO_LOCATION, hint: str | None = None) -> Diagnostic:
    return Diagnostic(code=f"word.{code}", message=message, location=location, hint=hint)


def _check_chart(chart: Chart, root: State, chain: list[State]) -> Iterator[Diagnostic]:
    if root.type != "compound" or chart.completion_root != 0:
        yield _reason("root", "the root is not a chain of states", root.location, "use one compound root, or a store")
        return
    if root.initial != (chain[0].index,):
        yield _reason("initial", "the initial state is not the first one", root.location, "write the states in order")
    if chain[-1].type != "final":
        yield _reason("final", f"the last state (`{chain[-1].id}`) is not final", chain[-1].location, "make it final")
    if len(chain) > STATES_MAX:
        yield _reason("states", f"{len(chain)} states, more than {STATES_MAX}", root.location)
    if root.context or chart.script:
        yield _reason("context", "a word cannot store a context", root.location, "use a store")
    if root.transitions:
        yield _reason("root_transition", "the root has transitions", root.location, "write them on its states")
    if root.entry or root.exit or root.initial_block or root.invokes:
        yield _reason("root_actions", "the root has actions or invokes", root.location, "write them on its states")
    if chart.unhandled == "defer":
        yield _reason("defer", "a word cannot store deferred events", root.location, "unhandled: reject or ignore")
    if any(event.roles is not None or event.permit is not None for event in chart.events or ()):
        yield _reason("roles", "an event of a word has no principal", root.location, "use a runtime to check roles")


def _check_state(chart: Chart, state: State) -> Iterator[Diagnostic]:
    if state.type not in {"atomic", "final"}:
        yield _reason("flat", f"state `{state.id}` is {state.type}", state.location, "only atomic and final states fit")
    if state.context:
        yield _reason("context", f"state `{state.id}` has a context", state.location, "use a store")
    if state.after:
        yield _reason("timer", f"state `{state.id}` sets a timer", state.location, "send the event from your own timer")
    if state.invokes:
        yield _reason("invoke", f"state `{state.id}` invokes", state.location, "a word is not durable: use a store")
    if chart.states[0].initial == (state.index,) and state.entry:
        yield _reason(
            "entry", f"the entry of the first state (`{state.id}`) never runs", state.location, "use its exit"
        )
    for block in (*state.entry, *state.exit):
        yield from _check_block(block, state.location)


def _check_transition(chart: Chart, transition: Transition) -> Iterator[Diagnostic]:
    source, location = chart.states[transition.source], transition.location
    if not transition.descriptors:
        yield _reason("eventless", f"`{source.id}` has a transition without an event", location, "name the event")
    if transition.guard is not None:
        yield _reason("guard", f"a transition of `{source.id}` has a guard", location, "a word has no data for it")
    if transition.roles is not None:
        yield _reason("roles", "an event of a word has no principal", location, "use a runtime to check roles")
    for number in transition.targets:
        target = chart.states[number]
        if number <= transition.source:
            yield _reason("backward", f"targets an earlier state (`{target.id}`): a word only moves forward", location)
    if not transition.targets and transition.block:
        yield _reason(
            "targetless", f"a transition of `{source.id}` has actions but no target", location, "add a target"
        )
    yield from _check_block(transition.block, location)


def _check_block(block: Block, location: SourceLocation) -> Iterator[Diagnostic]:
    for action in block:
        where = action.location if action.location != NO_LOCATION else location
        if isinstance(action, Do | Emit | Log) or (isinstance(action, Send) and action.delay is None):
            continue
        word = "send with a delay" if isinstance(action, Send) else type(action).__name__.lower()
        yield _reason("action", f"a word does not support `{word}`", where, "use call, send, emit or log")


def _check_tags(chart: Chart, chain: list[State]) -> Iterator[Diagnostic]:
    admits = [state for state in chain if ADMITS in state.tags]
    drains = [state for state in chain if DRAINS in state.tags]
    for tag, tagged in ((ADMITS, admits), (DRAINS, drains)):
        for state in tagged[1:]:
            yield _reason("tags", f"`{state.id}` is a second state tagged `{tag}`", state.location, "at most one")
    if len(admits) == 1 and not drains:
        yield _reason(
            "tags", f"`{admits[0].id}` admits, but no state drains", admits[0].location, f"tag one `{DRAINS}`"
        )
    if len(drains) != 1:
        return
    [draining] = drains
    if not admits:
        yield _reason("tags", f"`{draining.id}` drains, but no state admits", draining.location, f"tag one `{ADMITS}`")
    leaving = [chart.transitions[number] for number in draining.transitions]
    fits = len(leaving) == 1 and len(leaving[0].targets) == 1 and len(leaving[0].descriptors) == 1
    if not fits or not leaving[0].descriptors[0].tokens:
        hint = "write one transition with one event and one target, which the last exit takes"
        yield _reason("drains", f"`{draining.id}` does not have exactly one transition", draining.location, hint)
    for state in admits:
        for number in state.transitions:
            transition = chart.transitions[number]
            if transition.targets and transition.targets != (draining.index,):
                hint = f"target `{draining.id}` first"
                yield _reason(
                    "undrained", f"leaves `{state.id}` while permits may be in use", transition.location, hint
                )
