"""Settle an entity that comes from another revision: run what the new chart does before it waits for an event.

A snapshot that was stable on the old chart need not be stable on the new one: an eventless transition may be enabled.
Without settling, the next event would run it, also an event that no transition takes.
"""

from __future__ import annotations

from collections.abc import Callable

from interlock.kernel.driver_events import NO_CAUSE
from interlock.kernel.errors import StepFailed
from interlock.kernel.microsteps import MicrostepResult
from interlock.kernel.outcome import resend_deferred
from interlock.kernel.run import StepRun, run_from
from interlock.kernel.step import Kernel
from interlock.model.event import Event
from interlock.model.snapshot import Snapshot
from interlock.model.step import Step


def settle(kernel: Kernel, snapshot: Snapshot, event: Event, prepare: Callable[[StepRun], None]) -> Step:
    """Return the step that settles a snapshot, whose states the chart must have; rejected if it fails.

    `prepare` changes the run before anything else, such as its timers. Expressions see the event. Deferred events are
    sent again if the configuration changes.
    """
    configuration = kernel.planner.configuration(snapshot.configuration)
    assert configuration is not None
    run = run_from(
        snapshot, event.time_ms, kernel.actions.fields, raises=kernel.chart.dialect.errors == "raise", epoch=event.epoch
    )
    run.event, run.active = event, configuration.ids
    try:
        prepare(run)
        result = kernel.microsteps.run_until_stable(run, MicrostepResult(configuration))
        deferred = snapshot.deferred
        if deferred and result.configuration.names != snapshot.configuration and result.ended is None:
            resend_deferred(snapshot, run)
            deferred = ()
    except StepFailed as failure:
        return kernel.outcomes.failed(snapshot, failure.fault, NO_CAUSE)
    after = kernel.outcomes.snapshot(run, result, run.version, deferred)
    return Step(after, tuple(run.effects), "applied", None, tuple(run.transitions), tuple(run.faults))
