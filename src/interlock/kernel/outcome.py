"""Make the result of a step: the next snapshot, and the outcome of its event (S32-S34)."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from interlock.kernel.driver_events import Cause
from interlock.kernel.explain import Explainer
from interlock.kernel.microsteps import MicrostepResult
from interlock.kernel.plan import Configuration
from interlock.kernel.run import StepRun
from interlock.model.charts.chart import Chart
from interlock.model.event import Event
from interlock.model.limits import DEFERRED_MAX
from interlock.model.snapshot import Snapshot
from interlock.model.step import FailedGuard, Fault, Step


class Outcomes:
    """Makes the results of steps of one chart."""

    def __init__(self, chart: Chart, explainer: Explainer) -> None:
        self.chart = chart
        self.explainer = explainer
        self.restricted = any(each.roles is not None for each in chart.transitions)

    # Snapshots

    def snapshot(self, run: StepRun, result: MicrostepResult, version: int, deferred: tuple[Event, ...]) -> Snapshot:
        """Return the snapshot of a run that has settled."""
        configuration = result.configuration
        names = configuration.names
        if result.ended == "done":
            top = self.chart.completion_root
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
            run.moved,
        )

    def next_version(self, snapshot: Snapshot, **changes: Any) -> Snapshot:
        """Return the next version of a snapshot with these fields changed."""
        return replace(snapshot, version=snapshot.version + 1, revision=self.chart.revision, **changes)

    # Outcomes

    def settled(
        self,
        snapshot: Snapshot,
        configuration: Configuration,
        event: Event,
        run: StepRun,
        result: MicrostepResult,
        cause: Cause,
    ) -> Step:
        """Return the step of a run that has settled. Raises StepFailed when it resends too many deferred events."""
        if not run.transitions and not result.handled:
            return self._unhandled(snapshot, configuration, event, run, cause)
        chosen, faults = tuple(run.transitions), tuple(run.faults)
        if not result.handled and not cause.is_pending:
            return Step(snapshot, (), "ignored", "no_content", chosen, faults)
        deferred = snapshot.deferred
        if deferred and result.configuration.names != snapshot.configuration and result.ended is None:
            resend_deferred(snapshot, run)
            deferred = ()
        after = self.snapshot(run, result, run.version, deferred)
        if not result.handled:
            return Step(after, tuple(run.effects), "ignored", "no_content", chosen, faults)
        return Step(after, tuple(run.effects), "applied", None, chosen, faults)

    def _unhandled(
        self, snapshot: Snapshot, configuration: Configuration, event: Event, run: StepRun, cause: Cause
    ) -> Step:
        """Return the step of an event that no transition took, by the chart's `unhandled` mode (S32)."""
        faults = tuple(run.faults)
        if cause.is_pending:
            after = self.snapshot(run, MicrostepResult(configuration), run.version, snapshot.deferred)
            return Step(after, (), "ignored", "no_transition", (), faults)
        if event.source is not None:
            return Step(snapshot, (), "ignored", "no_transition", (), faults)
        mode = self.chart.unhandled
        guards: tuple[FailedGuard, ...] = ()
        denied = False
        if mode == "reject" or self.restricted:
            guards, denied = self.explainer.failed_guards(snapshot, configuration, event)
        if denied:  # in every mode: an event that its sender may not send is neither ignored nor deferred
            return Step(snapshot, (), "denied", "roles", (), faults, guards)
        if mode == "ignore":
            return Step(snapshot, (), "ignored", "no_transition", (), faults)
        if mode == "defer" and event.type != "platform":  # an error from the driver is never deferred
            return self._deferred(snapshot, event, faults)
        return Step(snapshot, (), "rejected", "guard" if guards else "no_transition", (), faults, guards)

    def _deferred(self, snapshot: Snapshot, event: Event, faults: tuple[Fault, ...]) -> Step:
        if len(snapshot.deferred) >= DEFERRED_MAX:
            fault = Fault("step.deferred_max", f"{DEFERRED_MAX} events are deferred already", event.name)
            return Step(snapshot, (), "rejected", "failed", (), (fault,))
        after = self.next_version(snapshot, deferred=(*snapshot.deferred, event))
        return Step(after, (), "applied", "deferred", (), faults)

    def failed(self, snapshot: Snapshot, fault: Fault, cause: Cause) -> Step:
        """Return the step that failed. It changes nothing, except that the timer or invoke of its event is removed."""
        after = snapshot
        if cause.is_pending:
            timers = tuple(each for each in snapshot.timers if each is not cause.timer)
            invokes = tuple(each for each in snapshot.invokes if each is not cause.invoke)
            after = self.next_version(snapshot, timers=timers, invokes=invokes)
        return Step(after, (), "rejected", "failed", (), (fault,))


def resend_deferred(snapshot: Snapshot, run: StepRun) -> None:
    """Send every deferred event to the entity again: its configuration has changed (S32)."""
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
