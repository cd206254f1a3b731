"""The step: `start`, `step` and `fold` of one chart, pure functions of snapshots.

Rule 1: no clock, no randomness, no I/O. Time and ids are in the event.
Rule 2: arguments are never changed.
Rule 3: this module only connects the others. `select` chooses transitions, `plan` works out a microstep, `microsteps`
        runs them, `receive` and `outcome` decide what the result means, and `fast_path` compiles plain steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from interlock.errors import CorruptionError, RejectedError, UsageError
from interlock.expression.language import SAFE, Language
from interlock.kernel.codegen import ActionCompiler
from interlock.kernel.errors import StepFailed
from interlock.kernel.explain import Candidate, Explainer
from interlock.kernel.fast_path import Accelerator
from interlock.kernel.first_context import FirstContext
from interlock.kernel.microsteps import Microsteps
from interlock.kernel.outcome import Outcomes
from interlock.kernel.plan import Configuration, Plan, Planner
from interlock.kernel.receive import Receiver
from interlock.kernel.run import StepRun, run_from
from interlock.kernel.select import Selector
from interlock.kernel.sight import CoverKeeper
from interlock.model.charts.chart import Chart, State
from interlock.model.charts.known_charts import remember_chart
from interlock.model.charts.personal_plan import plan_of
from interlock.model.document.actions import Value
from interlock.model.document.field import json_problem
from interlock.model.encoding.convert import to_json
from interlock.model.event import Event, check_sendable
from interlock.model.snapshot import Parent, Snapshot
from interlock.model.step import Step

if TYPE_CHECKING:
    from interlock.kernel.speed_report import SpeedReport

_INIT = Event("xstate.init", type="internal")
_NO_CONTEXT: Mapping[str, Any] = {}


class Kernel:
    """A chart with its registered pure functions and its cached plans."""

    def __init__(
        self,
        chart: Chart,
        *,
        guards: Mapping[str, Callable[..., Any]] | None = None,
        assigns: Mapping[str, Callable[..., Any]] | None = None,
        language: Language = SAFE,
        fast: bool = True,
    ) -> None:
        remember_chart(chart)
        self.chart = chart
        self.fast = fast
        self._check_names(guards or {}, assigns or {})
        self.actions = ActionCompiler(chart, language, guards or {}, assigns or {})
        self.planner = Planner(chart, self.actions)
        self.selector = Selector(chart, self.planner.state_sets, self.actions)
        self.explainer = Explainer(chart, self.selector, self.actions)
        self.microsteps = Microsteps(chart, self.planner, self.selector, self.actions)
        self.outcomes = Outcomes(chart, self.explainer)
        self.receiver = Receiver(chart, self.planner, self.actions, self.microsteps, self.outcomes)
        self.accelerator = Accelerator(chart, self.planner, self.selector, self.actions)
        self.personal = plan_of(chart)
        self.first_context = FirstContext(chart, self.actions, keeps_key=self.personal is not None)
        self._kind = chart.kind
        self._revision = chart.revision
        # A chart that covers hidden states has empty tables, so that each of its steps passes `_general_step`.
        is_covered = chart.hidden is not None and chart.hidden.is_covered
        self.covers = CoverKeeper(chart, chart.hidden) if is_covered and chart.hidden is not None else None
        self._compiled = self.planner.compiled_steps if self.covers is None else {}
        self._named = self.planner.named_steps if self.covers is None else {}
        self._entry: Plan | None = None
        self._plain_start: tuple[dict[str, Any], tuple[str, ...]] | None = None

    def _check_names(self, guards: Mapping[str, Any], assigns: Mapping[str, Any]) -> None:
        for what, needed, given in (("guard", self.chart.guards, guards), ("assign", self.chart.assigns, assigns)):
            missing = [name for name in needed if name not in given]
            if missing:
                names = ", ".join(f"`{name}`" for name in missing)
                hint = f"register it with @chart.{what}({missing[0]!r})"
                message = f"chart `{self.chart.kind}` uses the {what} {names}, which is not registered"
                raise UsageError(message, code=f"{what}.unregistered", hint=hint)

    def start(
        self,
        context: Mapping[str, Any] | None = None,
        *,
        entity: str,
        time_ms: int = 0,
        parent: Parent | None = None,
        epoch: int = 0,
    ) -> Step:
        """Return the first step of an entity: version 1, with the initial states entered.

        `epoch` is the restore epoch of the store.

        Raises RejectedError when the context does not fit the chart, and when the first step fails.
        """
        first = self.first_context
        given = first.given(context) if context or first.required else _NO_CONTEXT
        if self._entry is None:
            self._entry = self.planner.start()
            plain = not (self._entry.operations or self._entry.ended) and self._entry.next.has_no_eventless
            if plain and first.constant is not None:
                self._plain_start = first.constant, self._entry.next.names
        if self._plain_start is not None:
            # Nothing has to run: the context is the defaults, overridden by the given values.
            defaults, names = self._plain_start
            values = first.first(defaults, given)
            snapshot = Snapshot(self._kind, entity, 1, self._revision, names, values, parent=parent)
            step = Step(snapshot)
        else:
            step = self._started(given, entity, time_ms, parent, self._entry, epoch)
        return step if self.covers is None else self.covers.after(None, step, time_ms)

    def _started(
        self, given: Mapping[str, Any], entity: str, time_ms: int, parent: Parent | None, entry: Plan, epoch: int
    ) -> Step:
        raises = self.chart.dialect.errors == "raise"
        run = StepRun(self._kind, entity, 1, time_ms, {}, None, (), (), (), parent, self.actions.fields, raises)
        run.owns_context, run.epoch = True, epoch
        try:
            self.first_context.bind(run, given)
            if self.chart.dialect.name == "xstate":
                run.event = _INIT
            result = self.microsteps.run_until_stable(run, self.microsteps.apply(run, entry))
        except StepFailed as failure:
            fault = failure.fault
            where = f" at {fault.place}" if fault.place else ""
            raise RejectedError(f"the first step failed: {fault.message}{where}", code=fault.code) from failure
        snapshot = self.outcomes.snapshot(run, result, 1, ())
        return Step(snapshot, tuple(run.effects), "applied", None, tuple(run.transitions), tuple(run.faults))

    def step(self, snapshot: Snapshot, event: Event | str, data: Any = None, time_ms: int = 0) -> Step:
        """Return the step of one event run to completion. `event` may be a name with `data`.

        Raises UsageError for arguments of the wrong type, for an event name that is reserved and for a payload that is
        not JSON; CorruptionError when the chart does not have the states of the snapshot.
        """
        # The only hot path: one lookup, one call. `fast_path` decides which steps are compiled.
        try:
            step: Step | None
            if event.__class__ is str:
                step = self._named[snapshot.configuration][event](snapshot, data, time_ms)
            else:
                step = self._compiled[snapshot.configuration][event.name](snapshot, event)  # type: ignore[union-attr]  # an Event
            if step is not None:
                return step
        except Exception:  # noqa: BLE001, S110  # no such function yet, or an error: the general step reports it
            pass
        return self._general_step(snapshot, event, data, time_ms)

    def _general_step(self, snapshot: Snapshot, event: Event | str, data: Any = None, time_ms: int = 0) -> Step:
        by_name = event.__class__ is str
        if type(event) is not Event or type(snapshot) is not Snapshot:
            event = _check_arguments(snapshot, event, data, time_ms)
        if self.covers is not None:
            return self.covers.after(snapshot, self._covered_step(snapshot, event), event.time_ms)
        if snapshot.ended is not None:
            return self.receiver.receive_after_end(snapshot, event)
        configuration = self._configuration(snapshot)
        if self.fast:
            self.accelerator.count_use(configuration, event.name, by_name=by_name)
        return self.receiver.receive(snapshot, configuration, event)

    def _covered_step(self, snapshot: Snapshot, event: Event) -> Step:
        """Return the step without what it shows to readers: compiled if there is a function, otherwise general."""
        try:
            step = self.planner.compiled_steps[snapshot.configuration][event.name](snapshot, event)
            if step is not None:
                return step
        except Exception:  # noqa: BLE001, S110  # as in `step`: the general step reports it
            pass
        if snapshot.ended is not None:
            return self.receiver.receive_after_end(snapshot, event)
        configuration = self._configuration(snapshot)
        if self.fast:
            self.accelerator.count_use(configuration, event.name, by_name=False)
        return self.receiver.receive(snapshot, configuration, event)

    def fold(self, snapshot: Snapshot, events: Iterable[Event]) -> Snapshot:
        """Return the snapshot after these events, without effects: replay. Compiled steps make no snapshots between."""
        configuration = self.planner.configuration(snapshot.configuration)
        context, version, entity = snapshot.context, snapshot.version, snapshot.entity
        if self.covers is not None:
            for event in events:
                snapshot = self.step(snapshot, event).snapshot
            return snapshot
        plain = snapshot.ended is None and not snapshot.deferred and snapshot.kind == self._kind
        for event in events:
            plain_step = None if configuration is None else configuration.plain_steps.get(event.name)
            if plain_step is not None and plain and event.source is None and event.invokeid is None:
                try:
                    configuration, context, _, _ = plain_step(context, event, entity, version + 1)
                    version += 1
                    continue
                except Exception:  # noqa: BLE001, S110  # as in `step`: the general step reports it
                    pass
            if version != snapshot.version:
                snapshot = self._at(snapshot, configuration, context, version)
            snapshot = self.step(snapshot, event).snapshot
            configuration = self.planner.configuration(snapshot.configuration)
            context, version = snapshot.context, snapshot.version
            plain = snapshot.ended is None and not snapshot.deferred
        return snapshot if version == snapshot.version else self._at(snapshot, configuration, context, version)

    def _at(
        self, snapshot: Snapshot, configuration: Configuration | None, context: dict[str, Any], version: int
    ) -> Snapshot:
        assert configuration is not None  # a compiled step has led there
        names = configuration.names
        return replace(snapshot, version=version, revision=self._revision, configuration=names, context=context)

    def candidates(self, snapshot: Snapshot, event: Event | None = None) -> tuple[Candidate, ...]:
        """Return the transitions that events could take now, each with the result of its guard; none after the end."""
        if snapshot.ended is not None:
            return ()
        return self.explainer.candidates(snapshot, self._configuration(snapshot), event)

    def explain_speed(self) -> SpeedReport:
        """Return which steps of the chart are compiled once they are used often, and why others are not."""
        from interlock.kernel.speed_report import speed_report  # loads the compiler of steps

        return speed_report(self.accelerator.compiler, self.planner, self.selector)

    def has(self, snapshot: Snapshot) -> bool:
        """Return whether the chart has the configuration of a snapshot, and the states that its histories recorded.

        For an entity that ended, only the single states are checked.
        """
        known = self.planner.by_id
        if snapshot.ended is not None:
            return all(name in known for name in snapshot.configuration)
        remembered = (name for names in (snapshot.history or {}).values() for name in names)
        return all(name in known for name in remembered) and (
            self.planner.configuration(snapshot.configuration) is not None
        )

    def active(self, snapshot: Snapshot) -> tuple[State, ...]:
        """Return the active states in document order without the root; after the end, the states in which it ended."""
        found = self.planner.state_sets.active(self.planner.by_id[name] for name in snapshot.configuration)
        return tuple(self.chart.states[index] for index in sorted(found) if index > 0)

    def evaluate(self, value: Value, snapshot: Snapshot, event: Event) -> Any:
        """Return a value of the chart that a driver needs, such as a key; None if it cannot be evaluated."""
        run = run_from(snapshot, event.time_ms, self.actions.fields, raises=False)
        run.event = event
        try:
            return run.attempt(self.actions.value(value), "value")
        except StepFailed:
            return None

    def _configuration(self, snapshot: Snapshot) -> Configuration:
        if snapshot.kind != self.chart.kind:
            message = f"`{snapshot.entity}` is of kind `{snapshot.kind}`, but the chart is `{self.chart.kind}`"
            raise UsageError(message, code="snapshot.kind", hint="use the chart of that kind")
        configuration = self.planner.configuration(snapshot.configuration)
        if configuration is None:
            states = ", ".join(snapshot.configuration)
            chart = f"`{self.chart.kind}` {self.chart.revision}"
            message = f"`{snapshot.entity}` is in states that chart {chart} cannot have active together: {states}"
            hint = f"the snapshot was written by revision {snapshot.revision}; migrate it, or load that revision"
            raise CorruptionError(message, code="snapshot.configuration", hint=hint)
        return configuration


def check_time(time_ms: int) -> None:
    """Raise UsageError unless a time is an integer. A float would give a snapshot that cannot be decoded again."""
    if not isinstance(time_ms, int):
        hint = "write int(time.time() * 1000)"
        raise UsageError(f"expected time_ms in whole milliseconds, got {time_ms!r:.60}", code="time.type", hint=hint)


def _check_arguments(snapshot: Snapshot, event: Event | str, data: Any, time_ms: int) -> Event:
    """Return the event of a step. Raises UsageError unless `snapshot` and `event` have the right types."""
    if not isinstance(snapshot, Snapshot):
        hint = "pass its `.snapshot`" if isinstance(snapshot, Step) else None
        message = f"expected a Snapshot, got `{type(snapshot).__name__}`"
        raise UsageError(message, code="snapshot.type", hint=hint)
    if isinstance(event, Event):
        return event
    if not isinstance(event, str):
        message = f"expected an event name or an Event, got `{type(event).__name__}`"
        raise UsageError(message, code="event.type")
    if json_problem(data) is not None:
        data = to_json(data, what=f"the payload of `{event[:80]}`", code="event.payload")
    check_sendable(event)
    check_time(time_ms)
    return Event(event, data, time_ms=time_ms)
