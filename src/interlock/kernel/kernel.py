"""The step: `start` and `step` of one chart, pure functions over snapshots (S5-S10, S30-S37).

Rule 1: no clock, no chance, no I/O: time and ids are inside the event.
Rule 2: a step either is whole or did not happen; what was given is never changed.
Rule 3: this file decides what an event means to an entity as a whole; `select` chooses, `plan` works out, `run` carries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from interlock.errors import CorruptionError, RejectedError, UsageError
from interlock.expression.language import SAFE, Language
from interlock.kernel.actions import Actions
from interlock.kernel.explain import Candidate, Explainer
from interlock.kernel.plan import Configuration, Plan, Planner, begin_invoke, fields_of, output_of
from interlock.kernel.run import Run, StepFailed, filled_payload, run_at
from interlock.kernel.select import Selector
from interlock.model.chart import Chart, State
from interlock.model.event import Event
from interlock.model.field import UNSET, plain_refusal, refusal
from interlock.model.limits import DEFERRED_MAX, MICROSTEPS_MAX
from interlock.model.snapshot import Ended, Invocation, Parent, Snapshot, Timer
from interlock.model.step import Fault, Outcome, Step

_INIT = Event("xstate.init", type="internal")
_NO_CONTEXT: Mapping[str, Any] = {}


@dataclass(slots=True)
class _Result:
    """Where a run ended: the configuration, whether and how the entity ended, and what it left for its parent."""

    configuration: Configuration
    ended: Ended | None = None
    output: Any = None
    moved: bool = False
    handled: bool = False


class Kernel:
    """One chart made runnable: with its registered pure functions, and the plans it has worked out so far."""

    def __init__(
        self,
        chart: Chart,
        *,
        guards: Mapping[str, Callable[..., Any]] | None = None,
        assigns: Mapping[str, Callable[..., Any]] | None = None,
        language: Language = SAFE,
        fast: bool = True,
    ) -> None:
        self.chart = chart
        self.fast = fast
        self._check_names(guards or {}, assigns or {})
        self.actions = Actions(chart, language, guards or {}, assigns or {})
        self.planner = Planner(chart, self.actions)
        self.selector = Selector(chart, self.planner.structure, self.actions)
        self.explainer = Explainer(chart, self.selector, self.actions)
        self.events = None if chart.events is None else {each.name: each for each in chart.events}
        self._start: Plan | None = None
        self._blocks: dict[tuple[str, int, int], Any] = {}

    def _check_names(self, guards: Mapping[str, Any], assigns: Mapping[str, Any]) -> None:
        for what, needed, given in (("guard", self.chart.guards, guards), ("assign", self.chart.assigns, assigns)):
            missing = [name for name in needed if name not in given]
            if missing:
                names = ", ".join(f"`{name}`" for name in missing)
                hint = f"register it with @chart.{what}({missing[0]!r})"
                message = f"chart `{self.chart.kind}` names the {what} {names}, which is not registered"
                raise UsageError(message, code=f"{what}.unregistered", hint=hint)

    # Start (S5, S6)

    def start(
        self,
        context: Mapping[str, Any] | None = None,
        *,
        entity: str,
        time_ms: int = 0,
        parent: Parent | None = None,
    ) -> Step:
        """The first step of an entity: version 1, the initial states entered.

        Raises RejectedError when the chart refuses the context, and when its very first step fails.
        """
        given = self._given(context or _NO_CONTEXT)
        run = Run(
            kind=self.chart.kind,
            entity=entity,
            version=1,
            time_ms=time_ms,
            context=given,
            history=None,
            timers=(),
            invokes=(),
            entered=(),
            parent=parent,
            fields=self.actions.fields,
            raises=self.chart.dialect.errors == "raise",
        )
        run.owned = True
        try:
            self._bind(run, given)
            if self.chart.dialect.name == "xstate":
                run.event = _INIT
            if self._start is None:
                self._start = self.planner.start()
            result = self._settled(run, self._carried(run, self._start), True)
        except StepFailed as failure:
            fault = failure.fault
            raise RejectedError(f"the first step failed: {fault.message} at {fault.place}", code=fault.code) from failure
        snapshot = self._snapshot(run, result, 1, ())
        return Step(snapshot, tuple(run.effects), "applied", None, tuple(run.chosen), tuple(run.faults))

    def _given(self, context: Mapping[str, Any]) -> dict[str, Any]:
        """The context given at creation, checked against the root's fields."""
        fields = {field.name: field for field in self.chart.states[0].context}
        for name, value in context.items():
            field = fields.get(name)
            if field is None:
                known = ", ".join(fields) or "none"
                raise RejectedError(f"`{name}` is not a field of chart `{self.chart.kind}`; its fields are {known}", code="context.unknown")
            problem = plain_refusal(value) or refusal(value, field)
            if problem is not None:
                raise RejectedError(f"the context is refused: {problem}", code="context.refused")
        for name, field in fields.items():
            if field.required and name not in context:
                raise RejectedError(f"the field `{name}` must be given at creation", code="context.missing")
        return dict(context)

    def _bind(self, run: Run, given: dict[str, Any]) -> None:
        """Build the context in document order: early binding all of it, late only the root's (S5)."""
        late = self.chart.binding == "late"
        run.context = {}
        for state in self.chart.states:
            if late and state.index > 0:
                break
            for field in state.context:
                if state.index == 0 and field.name in given:
                    run.context[field.name] = given[field.name]
                elif field.default is UNSET:
                    run.context[field.name] = None
                else:
                    self._bind_default(run, state, field)
        if self.chart.script is not None:
            self._run_script(run)

    def _bind_default(self, run: Run, state: State, field: Any) -> None:
        key = ("context", state.index, state.context.index(field))
        value = self._blocks.get(key)
        if value is None:
            value = self._blocks[key] = self.actions.value(field.default)
        try:
            run.field_init(field, value(run))
        except Exception as error:
            run.fail(error, f"{state.id}.context.{field.name}")

    def _run_script(self, run: Run) -> None:
        script = self.actions.language.script(self.chart.script or "")
        if script is None:
            raise UsageError("scripts are refused: they run code", code="script.untrusted")
        try:
            script(run.own(), run.event, run, run.active, run.meter)
        except Exception as error:
            run.fail(error, "script")

    # Step

    def step(self, snapshot: Snapshot, event: Event) -> Step:
        """One event run to completion: the next snapshot, the effects, and how the event was taken."""
        if snapshot.ended is not None:
            return Step(snapshot, (), "ignored" if event.source is not None else "rejected", "ended")
        configuration = self._configuration(snapshot)
        if event.name[:1] == "_":
            return self._reserved(snapshot, configuration, event)
        if event.source is not None or event.invokeid is not None:
            return self._returned(snapshot, configuration, event)
        if self.events is not None:
            checked = self._declared(snapshot, event)
            if isinstance(checked, Step):
                return checked
            event = checked
        return self._step(snapshot, configuration, event)

    def fold(self, snapshot: Snapshot, events: Iterable[Event]) -> Snapshot:
        """The snapshot after all these events, effects discarded: replay."""
        for event in events:
            snapshot = self.step(snapshot, event).snapshot
        return snapshot

    def candidates(self, snapshot: Snapshot, event: Event | None = None) -> tuple[Candidate, ...]:
        """The transitions in question now, with the verdict of each guard; none once the entity has ended."""
        if snapshot.ended is not None:
            return ()
        return self.explainer.candidates(snapshot, self._configuration(snapshot), event)

    def _configuration(self, snapshot: Snapshot) -> Configuration:
        configuration = self.planner.configuration(snapshot.configuration)
        if configuration is None:
            states = ", ".join(snapshot.configuration)
            message = f"`{snapshot.entity}` is in states that chart `{self.chart.kind}` {self.chart.revision} does not have together: {states}"
            hint = f"the snapshot was written by revision {snapshot.revision}; migrate it, or load that revision"
            raise CorruptionError(message, code="snapshot.configuration", hint=hint)
        return configuration

    def _declared(self, snapshot: Snapshot, event: Event) -> Event | Step:
        """The event with its payload checked and completed, or the refusal."""
        assert self.events is not None
        known = self.events.get(event.name)
        if known is None or known.direction == "out":
            return Step(snapshot, (), "rejected", "undeclared")
        if known.direction == "internal" and event.origin != f"#_scxml_{snapshot.entity}":
            return Step(snapshot, (), "rejected", "undeclared")
        if known.payload is None:
            return event
        data, problem = filled_payload(event.data, known.payload)
        if problem is not None:
            return Step(snapshot, (), "rejected", "payload", (), (Fault("event.payload", problem, event.name),))
        return event if data is event.data else _with_data(event, data)

    def _run(self, snapshot: Snapshot, event: Event) -> Run:
        run = run_at(snapshot, event.time_ms, self.actions.fields, raises=self.chart.dialect.errors == "raise")
        run.event = event
        return run

    def _step(self, snapshot: Snapshot, configuration: Configuration, event: Event) -> Step:
        """An event that reaches the chart: S9, then the loop of S7, then the verdict."""
        run = self._run(snapshot, event)
        return self._finished(snapshot, configuration, event, run)

    def _finished(
        self,
        snapshot: Snapshot,
        configuration: Configuration,
        event: Event,
        run: Run,
        timer: Timer | None = None,
        over: Invocation | None = None,
    ) -> Step:
        """Runs the step. The event of a timer that fired, or of an invoke that is `over`, changes the snapshot in any case."""
        ours = timer is not None or over is not None
        try:
            handled = self._before(run, configuration, event, over) if configuration.invoking else False
            plan = self._choice(run, configuration, event)
            if plan is None and not handled and not run.queue and configuration.quiet:
                return self._untaken(snapshot, configuration, event, run, ours)
            carried = _Result(configuration) if plan is None else self._carried(run, plan)
            result = self._settled(run, carried, plan is not None)
            result.handled |= handled
        except StepFailed as failure:
            return self._failed(snapshot, failure.fault, timer, over)
        if not run.chosen and not result.handled:
            return self._untaken(snapshot, configuration, event, run, ours)
        outcome: Outcome = "applied" if result.handled else "ignored"
        if outcome == "ignored" and not ours:
            return Step(snapshot, (), outcome, "no_content", tuple(run.chosen), tuple(run.faults))
        deferred = self._returned_deferred(snapshot, run) if snapshot.deferred and result.moved else snapshot.deferred
        after = self._snapshot(run, result, run.version, deferred)
        return Step(after, tuple(run.effects), outcome, None, tuple(run.chosen), tuple(run.faults))

    def _before(self, run: Run, configuration: Configuration, event: Event, over: Invocation | None) -> bool:
        """Finalize and autoforward, in document order (S9); whether either did something."""
        done = False
        for state in configuration.invoking:
            mine = [each for each in run.invokes if each.state == state.id]
            for each in sorted(mine, key=lambda each: each.position):
                done |= self._before_invoke(run, state, each, event, over)
        if over is not None:
            run.invokes = tuple(each for each in run.invokes if each is not over)
        return done

    def _before_invoke(
        self, run: Run, state: State, each: Invocation, event: Event, over: Invocation | None
    ) -> bool:
        invoke = state.invokes[each.position]
        done = False
        if invoke.finalize and event.invokeid == each.id and not event.forwarded:
            function, _ = self.planner.function(invoke.finalize, ("finalize", state.index, each.position))
            try:
                function(run)
            except Exception as error:
                run.fail(error, f"{state.id}.finalize")
            done = True
        if invoke.autoforward and each is not over:
            run.effect("forward", {"id": each.id, "event": _plain_event(event)})
            done = True
        return done

    # The loop (S7, S8, S10)

    def _choice(self, run: Run, configuration: Configuration, event: Event | None) -> Plan | None:
        enabled = self.selector.enabled(configuration, event, run)
        if not enabled:
            return None
        return self.planner.plan(configuration, enabled, run.history)

    def _carried(self, run: Run, plan: Plan) -> _Result:
        """One microstep: the plan's operations over the run."""
        run.chosen += plan.chosen
        if plan.records:
            run.history = {**(run.history or {}), **plan.records}
        for operation, place in plan.operations:
            try:
                operation(run)
            except Exception as error:
                run.fail(error, place)
        return _Result(plan.next, "done" if plan.ended else None, None, plan.changes, plan.content)

    def _settled(self, run: Run, result: _Result, evented: bool) -> _Result:
        """Microsteps until no eventless transition is enabled and the internal queue is empty; then the invokes."""
        until_unchanged = self.chart.dialect.eventless == "until_unchanged"
        eventless = True
        microsteps = 1
        while result.ended is None:
            configuration = result.configuration
            plan = None if configuration.quiet or not eventless else self._choice(run, configuration, None)
            from_eventless = plan is not None
            if plan is None:
                if not run.queue:
                    if run.pending:
                        self._begin_invokes(run)
                        continue
                    break
                event = run.queue.popleft()
                run.event = event
                eventless = True
                plan = self._choice(run, configuration, event)
                if plan is None:
                    self._unhandled(run, event)
                    continue
            microsteps += 1
            if microsteps > MICROSTEPS_MAX:
                raise StepFailed("step.microsteps_max", self._cycle(run), self.chart.states[0].id)
            writes = run.writes
            following = self._carried(run, plan)
            following.moved |= result.moved
            following.handled |= result.handled
            if from_eventless and until_unchanged:
                eventless = following.configuration is not configuration or run.writes != writes or bool(plan.records)
            result = following
        if result.ended is not None:
            self._end(run, result, result.ended)
        return result

    def _begin_invokes(self, run: Run) -> None:
        """Start the invokes of states entered and not exited since the last settling (S8)."""
        states, run.pending = sorted(run.pending, key=lambda each: each.index), []
        for state in states:
            for position in range(len(state.invokes)):
                key = ("invoke", state.index, position)
                begin = self._blocks.get(key)
                if begin is None:
                    begin = self._blocks[key] = begin_invoke(state, position, self.actions)
                try:
                    begin(run)
                except Exception as error:
                    run.fail(error, f"{state.id}.invoke")

    def _unhandled(self, run: Run, event: Event) -> None:
        """An internal event that no transition takes is dropped; an error among them is told (S33)."""
        if event.name.startswith("error."):
            data = event.data if isinstance(event.data, dict) else {}
            run.faults.append(Fault(str(data.get("code", event.name)), str(data.get("message", ""))))

    def _cycle(self, run: Run) -> str:
        numbers = run.chosen[-8:]
        names = [self.chart.states[self.chart.transitions[each].source].id or "root" for each in numbers]
        loop = " -> ".join(dict.fromkeys(names))
        return f"more than {MICROSTEPS_MAX:,} microsteps in one step; it goes round in {loop}"

    def _end(self, run: Run, result: _Result, ended: Ended) -> None:
        """The entity ends: every active state is left, timers are dropped, the parent hears last of all (S10)."""
        run.queue.clear()
        run.pending.clear()
        for state, operations in self.planner.ending(result.configuration):
            for operation, place in operations:
                try:
                    operation(run)
                except Exception as error:
                    run.fail(error, place)
            if ended == "done" and state.type == "final" and state.parent == self.chart.top:
                result.output = self._output(run, state)
        for event in run.queue:
            self._unhandled(run, event)
        run.drop_timers(run.timers)
        if run.parent is not None and ended == "done":
            run.effect("done", {"data": result.output})

    def _output(self, run: Run, state: State) -> Any:
        if state.output is None:
            return None
        key = ("output", state.index, 0)
        output = self._blocks.get(key)
        if output is None:
            output = self._blocks[key] = output_of(state, self.actions)
        return output(run)

    # Snapshots

    def _snapshot(self, run: Run, result: _Result, version: int, deferred: tuple[Event, ...]) -> Snapshot:
        configuration = result.configuration
        names = configuration.names
        if result.ended == "done":
            top = self.chart.top
            finals = (each for each in configuration.atoms if self.chart.states[each].parent == top)
            names = tuple(self.chart.states[each].id for each in finals) or names
        return Snapshot(
            run.kind,
            run.id,
            version,
            self.chart.revision,
            names,
            run.context,
            run.history,
            run.timers,
            () if result.ended is not None else run.invokes,
            () if result.ended is not None else deferred,
            run.entered,
            result.ended,
            result.output,
            run.parent,
        )

    def _returned_deferred(self, snapshot: Snapshot, run: Run) -> tuple[Event, ...]:
        """The configuration changed: every kept event comes back as a send to itself (S32)."""
        for event in snapshot.deferred:
            payload: dict[str, Any] = {"event": event.name, "to": run.id}
            if event.data is not None:
                payload["data"] = event.data
            for name in ("id", "key"):
                old = getattr(event, name)
                if old is not None:
                    payload[name] = f"{old}/{run.version}"
            if event.principal is not None:
                payload["principal"] = event.principal
            run.effect("send", payload)
        return ()

    # Verdicts

    def _untaken(
        self, snapshot: Snapshot, configuration: Configuration, event: Event, run: Run, ours: bool
    ) -> Step:
        """No transition was chosen in the whole step: what that means by the chart's mode (S32)."""
        faults = tuple(run.faults)
        if ours or event.source is not None:
            after = self._snapshot(run, _Result(configuration), run.version, snapshot.deferred) if ours else snapshot
            return Step(after, (), "ignored", "no_transition", (), faults)
        mode = self.chart.unhandled
        if mode == "ignore":
            return Step(snapshot, (), "ignored", "no_transition", (), faults)
        if mode == "defer":
            return self._deferred(snapshot, event)
        return self._rejected(snapshot, configuration, event, faults)

    def _deferred(self, snapshot: Snapshot, event: Event) -> Step:
        if len(snapshot.deferred) >= DEFERRED_MAX:
            fault = Fault("step.deferred_max", f"{DEFERRED_MAX} events are kept back already", event.name)
            return Step(snapshot, (), "rejected", "failed", (), (fault,))
        after = _replaced(snapshot, self.chart.revision, deferred=(*snapshot.deferred, event))
        return Step(after, (), "applied", "deferred")

    def _rejected(
        self, snapshot: Snapshot, configuration: Configuration, event: Event, faults: tuple[Fault, ...]
    ) -> Step:
        trials, denied = self.explainer.trials(snapshot, configuration, event)
        if denied:
            return Step(snapshot, (), "denied", "roles", (), faults, trials)
        return Step(snapshot, (), "rejected", "guard" if trials else "no_transition", (), faults, trials)

    def _failed(self, snapshot: Snapshot, fault: Fault, timer: Timer | None, over: Invocation | None) -> Step:
        """A failed step leaves everything as it was, but for the timer or invoke whose event it was."""
        after = snapshot
        if timer is not None or over is not None:
            timers = tuple(each for each in snapshot.timers if each is not timer)
            invokes = tuple(each for each in snapshot.invokes if each is not over)
            after = _replaced(snapshot, self.chart.revision, timers=timers, invokes=invokes)
        return Step(after, (), "rejected", "failed", (), (fault,))

    # What the driver brings back (S30, S31, S37)

    def _returned(self, snapshot: Snapshot, configuration: Configuration, event: Event) -> Step:
        source = event.source or ""
        if source.startswith("timer/"):
            return self._fired(snapshot, configuration, event, source)
        if event.invokeid is None or event.forwarded or event.last:
            return self._step(snapshot, configuration, event)
        found = next((each for each in snapshot.invokes if each.id == event.invokeid), None)
        if found is None or (source and source != f"invoke/{found.key}"):
            after = _replaced(snapshot, self.chart.revision) if source else snapshot
            return Step(after, (), "ignored", "invoke_gone")
        run = self._run(snapshot, event)
        ends = event.name in (f"done.invoke.{found.id}", f"error.invoke.{found.id}")
        if not ends:
            return self._finished(snapshot, configuration, event, run)
        step = self._finished(snapshot, configuration, event, run, None, found)
        if step.reason == "no_transition" and event.name.startswith("error.") and run.raises:
            return self._ended_as(snapshot, configuration, self._run(snapshot, event), event, "failed")
        return step

    def _fired(self, snapshot: Snapshot, configuration: Configuration, event: Event, source: str) -> Step:
        name, _, version = source.removeprefix("timer/").rpartition("/")
        timer = next((each for each in snapshot.timers if each.name == name and str(each.version) == version), None)
        if timer is None:
            return Step(snapshot, (), "ignored", "timer_gone")
        run = self._run(snapshot, event)
        run.timers = tuple(each for each in run.timers if each is not timer)
        if timer.to is not None:
            run.send_timer(timer)
            after = self._snapshot(run, _Result(configuration), run.version, snapshot.deferred)
            return Step(after, tuple(run.effects), "applied", "sent")
        run.event = event
        return self._finished(snapshot, configuration, event, run, timer)

    def _reserved(self, snapshot: Snapshot, configuration: Configuration, event: Event) -> Step:
        """The kernel's own events: a parent's cancel (S10), a timer moved after downtime (S39)."""
        run = self._run(snapshot, event)
        if event.name == "_cancel":
            return self._ended_as(snapshot, configuration, run, event, "cancelled")
        if event.name == "_timer.moved" and isinstance(event.data, dict):
            wanted = (event.data.get("name"), event.data.get("version"))
            timers = tuple(
                _moved(each, event.data["due_ms"]) if (each.name, each.version) == wanted else each
                for each in snapshot.timers
            )
            if timers == snapshot.timers:
                return Step(snapshot, (), "ignored", "timer_gone")
            return Step(_replaced(snapshot, self.chart.revision, timers=timers), (), "applied", "moved")
        return Step(snapshot, (), "rejected", "undeclared")

    def _ended_as(
        self, snapshot: Snapshot, configuration: Configuration, run: Run, event: Event, ended: Ended
    ) -> Step:
        run.event = event
        result = _Result(configuration, ended)
        try:
            self._end(run, result, ended)
        except StepFailed as failure:
            return self._failed(snapshot, failure.fault, None, None)
        after = self._snapshot(run, result, run.version, ())
        return Step(after, tuple(run.effects), "applied", ended, (), tuple(run.faults))


def _replaced(snapshot: Snapshot, revision: str, **changes: Any) -> Snapshot:
    """The next version of a snapshot in which little changed."""
    return Snapshot(
        snapshot.kind,
        snapshot.entity,
        snapshot.version + 1,
        revision,
        snapshot.configuration,
        snapshot.context,
        snapshot.history,
        changes.get("timers", snapshot.timers),
        changes.get("invokes", snapshot.invokes),
        changes.get("deferred", snapshot.deferred),
        snapshot.entered,
        snapshot.ended,
        snapshot.output,
        snapshot.parent,
    )


def _moved(timer: Timer, due_ms: int) -> Timer:
    return Timer(
        timer.name,
        timer.event,
        due_ms,
        timer.version,
        timer.ordinal,
        timer.id,
        timer.data,
        timer.to,
        timer.type,
        timer.restore,
        timer.state,
    )


def _with_data(event: Event, data: Any) -> Event:
    return Event(
        event.name,
        data,
        event.id,
        event.key,
        event.principal,
        event.time_ms,
        event.type,
        event.sendid,
        event.origin,
        event.origintype,
        event.invokeid,
        event.source,
        event.last,
        event.forwarded,
    )


def _plain_event(event: Event) -> dict[str, Any]:
    """An event as an effect carries it on to a child."""
    fields = {"name": event.name, "data": event.data, "sendid": event.sendid, "origin": event.origin}
    fields |= {"origintype": event.origintype, "invokeid": event.invokeid}
    return {name: value for name, value in fields.items() if value is not None}


