"""The append of a step: its entry, its snapshot, the lists it is found by, and the work that it creates and ends.

Rule: the snapshot is encoded once, for the digest of the entry, for the limit of its size, and for the store.
"""

from __future__ import annotations

from msgspec.structs import replace

from interlock.effects.work_delta import work_delta
from interlock.errors import RejectedError
from interlock.kernel.step import Kernel
from interlock.model.actor import Actor, whom_of
from interlock.model.encoding.codec import digested_json, encode, snapshot_digest
from interlock.model.event import Event
from interlock.model.held import HELD_FIELD, HELD_TAG
from interlock.model.journal.attempts import PastAttempt
from interlock.model.journal.cause import Cause
from interlock.model.journal.entry import MOVED, Entry
from interlock.model.journal.work import WorkDelta, WorkId
from interlock.model.limits import ENTRY_BYTES_MAX, SNAPSHOT_BYTES_MAX
from interlock.model.snapshot import Snapshot
from interlock.model.step import Step
from interlock.ports.store import Append
from interlock.runtime.entities.send_request import SendRequest
from interlock.runtime.listed_states import ListedStates
from interlock.runtime.message_setting import MessageSetting

NO_WORK = WorkDelta()


class AppendBuilder:
    """Builds the appends of steps. `messages` says whether an entry is published; `keeps_work`: the store has work."""

    def __init__(self, messages: MessageSetting, listed: ListedStates, *, keeps_work: bool) -> None:
        self._messages = messages
        self._listed = listed
        self._keeps_work = keeps_work

    def build(
        self,
        kernel: Kernel,
        before: Snapshot | None,
        step: Step,
        event: Event,
        key: str,
        trace: str | None = None,
        request: SendRequest | None = None,
        *,
        reason: str | None = None,
        cause: Cause | None = None,
    ) -> Append:
        """Return the append of a step. Raises RejectedError when its entry or its snapshot is too large to store."""
        snapshot = step.snapshot
        snapshot_json = encode(snapshot)
        attempts = () if request is None else request.attempts
        whom = None if cause is None or event.principal is not None else cause.whom
        entry = build_entry(event, before, step, key, trace, snapshot_json, reason, whom, attempts)
        entry_json = encode(entry)
        if len(entry_json) > ENTRY_BYTES_MAX:
            raise RejectedError(f"the entry of this step exceeds {ENTRY_BYTES_MAX:,} bytes", code="entry.size")
        if len(snapshot_json) > SNAPSHOT_BYTES_MAX:
            raise RejectedError(f"the snapshot would exceed {SNAPSHOT_BYTES_MAX:,} bytes", code="snapshot.size")
        finishes = fence = sent_ms = None
        if request is not None:
            finishes, sent_ms = request.finishes, request.sent_ms
            if request.fence is not None:
                assert finishes is not None  # a fence protects a piece of work
                fence = (finishes, request.fence)
        states, tags = self._listed.active(kernel, snapshot)
        if HELD_FIELD in snapshot.context:
            tags = (HELD_TAG, *tags)
        return Append(
            snapshot.kind,
            snapshot.entity,
            0 if before is None else before.version,
            entry,
            snapshot,
            states,
            tags,
            self._work_delta(kernel, before, step, entry, finishes, cause),
            fence,
            sent_ms,
            before,
            self._listed.others(kernel, snapshot),
        ).with_json(entry_json=entry_json, snapshot_json=snapshot_json)

    def _work_delta(
        self,
        kernel: Kernel,
        before: Snapshot | None,
        step: Step,
        entry: Entry,
        finishes: WorkId | None,
        cause: Cause | None,
    ) -> WorkDelta:
        if not self._keeps_work:
            return NO_WORK
        event = entry.event
        work, time_ms = NO_WORK, event.at_ms
        after = step.snapshot
        if not (step.effects or after.timers or after.ended):
            cause = None  # the step creates no work
        elif entry.trace is not None or event.principal is not None or cause is not None:
            cause = _next_cause(entry, cause, is_concealed=is_concealed(kernel, before, step.snapshot))
        if self._messages.is_on:
            is_quiet = entry.event.name == MOVED and entry.before == entry.after
            hidden = is_quiet or self._listed.is_hidden(kernel, entry)
            work = work_delta(before, step, time_ms, published=entry, hidden=hidden, epoch=event.epoch, cause=cause)
        elif before is None or step.effects or before.timers or step.snapshot.ended is not None:
            work = work_delta(before, step, time_ms, epoch=event.epoch, cause=cause)
        return work if finishes is None else replace(work, finished=(*work.finished, finishes))


def is_concealed(kernel: Kernel, before: Snapshot | None, after: Snapshot) -> bool:
    """Whether readers who may not see hidden states do not see the whole of a step."""
    hidden = kernel.chart.hidden
    if hidden is None:
        return False
    if after.sight is not None and after.sight.shown != "whole":
        return True
    states = (*(() if before is None else before.configuration), *after.configuration)
    return not hidden.is_covered and not hidden.states.isdisjoint(states)


def _next_cause(entry: Entry, cause: Cause | None, *, is_concealed: bool) -> Cause | None:
    """Return the cause of the work of an entry; None if there is nothing to pass on."""
    event = entry.event
    whom = entry.originator if event.principal is None else whom_of(event.principal)
    trace = None if is_concealed else entry.trace
    if trace is None:
        return None if whom is None else Cause(whom=whom)
    is_older = cause is not None and cause.trace is not None
    return Cause(trace, cause.since_ms if cause is not None and is_older else event.at_ms, whom)


def build_entry(
    event: Event,
    before: Snapshot | None,
    step: Step,
    key: str,
    trace: str | None,
    snapshot_json: bytes,
    reason: str | None = None,
    originator: Actor | None = None,
    attempts: tuple[PastAttempt, ...] = (),
) -> Entry:
    """Return the entry of a step. `snapshot_json` is the snapshot after it, as it will be stored."""
    snapshot, sight = step.snapshot, step.snapshot.sight
    return Entry(
        snapshot.version,
        event,
        step.outcome,
        () if before is None else before.configuration,
        snapshot.configuration,
        snapshot.revision,
        key,
        step.reason,
        trace,
        step.effects,
        snapshot_digest(snapshot_json if sight is None else digested_json(snapshot)),
        reason,
        0 if sight is None else sight.unseen,
        "whole" if sight is None else sight.shown,
        originator,
        attempts,
    )
