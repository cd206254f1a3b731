"""What a step's end means: the next snapshot, and the outcome of an event that was not taken (S32-S34)."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from interlock.kernel.explain import Explainer
from interlock.kernel.microsteps import MicrostepResult
from interlock.kernel.plan import Configuration
from interlock.kernel.run import StepRun
from interlock.model.chart import Chart
from interlock.model.event import Event
from interlock.model.limits import DEFERRED_MAX
from interlock.model.snapshot import Invocation, Snapshot, Timer
from interlock.model.step import Fault, Step


class Outcomes:
    """Gives the verdicts for one chart."""

    def __init__(self, chart: Chart, explainer: Explainer) -> None:
        self.chart = chart
        self.explainer = explainer
        self.restricted = any(each.roles is not None for each in chart.transitions)

    def snapshot(self, run: StepRun, result: MicrostepResult, version: int, deferred: tuple[Event, ...]) -> Snapshot:
        configuration = result.configuration
        names = configuration.names
        if result.ended == "done":
            top = self.chart.top
            finals = (each for each in configuration.atomic if self.chart.states[each].parent == top)
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
            () if result.ended == "done" else run.invokes,
            () if result.ended is not None else deferred,
            run.entered,
            result.ended,
            result.output,
            run.parent,
        )

    def next_version(self, snapshot: Snapshot, **changes: Any) -> Snapshot:
        """Return the next version of a snapshot with these fields changed."""
        return replace(snapshot, version=snapshot.version + 1, revision=self.chart.revision, **changes)

    def resend_deferred(self, snapshot: Snapshot, run: StepRun) -> tuple[Event, ...]:
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
            run.effect("send", payload, 1)
        return ()

    def unhandled(
        self, snapshot: Snapshot, configuration: Configuration, event: Event, run: StepRun, *, ours: bool
    ) -> Step:
        """No transition was chosen in the whole step: what that means by the chart's mode (S32)."""
        faults = tuple(run.faults)
        if ours or event.source is not None:
            after = (
                self.snapshot(run, MicrostepResult(configuration), run.version, snapshot.deferred) if ours else snapshot
            )
            return Step(after, (), "ignored", "no_transition", (), faults)
        mode = self.chart.unhandled
        asked = mode == "reject" or self.restricted
        trials, denied = self.explainer.failed_guards(snapshot, configuration, event) if asked else ((), False)
        if denied:  # whatever the mode: what a sender may not send is neither passed over nor kept for later
            return Step(snapshot, (), "denied", "roles", (), faults, trials)
        if mode == "ignore":
            return Step(snapshot, (), "ignored", "no_transition", (), faults)
        if mode == "defer" and event.type != "platform":  # an error of the driver's is for now, or for a person
            return self._deferred(snapshot, event, faults)
        return Step(snapshot, (), "rejected", "guard" if trials else "no_transition", (), faults, trials)

    def _deferred(self, snapshot: Snapshot, event: Event, faults: tuple[Fault, ...]) -> Step:
        if len(snapshot.deferred) >= DEFERRED_MAX:
            fault = Fault("step.deferred_max", f"{DEFERRED_MAX} events are kept back already", event.name)
            return Step(snapshot, (), "rejected", "failed", (), (fault,))
        after = self.next_version(snapshot, deferred=(*snapshot.deferred, event))
        return Step(after, (), "applied", "deferred", (), faults)

    def failed(self, snapshot: Snapshot, fault: Fault, timer: Timer | None, over: Invocation | None) -> Step:
        """A failed step leaves everything as it was, but for the timer or invoke whose event it was."""
        after = snapshot
        if timer is not None or over is not None:
            timers = tuple(each for each in snapshot.timers if each is not timer)
            invokes = tuple(each for each in snapshot.invokes if each is not over)
            after = self.next_version(snapshot, timers=timers, invokes=invokes)
        return Step(after, (), "rejected", "failed", (), (fault,))
