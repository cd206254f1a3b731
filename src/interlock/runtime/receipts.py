"""What a step is told as: its entry, its receipt, and what the log hears of its errors.

Rule 1: nothing is written here; `steps` does that.
Rule 2: what is too large to keep is refused before anybody is asked to keep it.
Rule 3: the log never quotes what a sender gave.
"""

from __future__ import annotations

import logging

from interlock.errors import RejectedError
from interlock.model.codec import encode
from interlock.model.event import Event
from interlock.model.journal.entry import Entry, Receipt
from interlock.model.limits import ENTRY_BYTES_MAX, SNAPSHOT_BYTES_MAX
from interlock.model.snapshot import Snapshot
from interlock.model.step import Step

_log = logging.getLogger("interlock.runtime")


def build_entry(event: Event, before: tuple[str, ...], step: Step, key: str, trace: str | None) -> Entry:
    """The entry of a step. Raises RejectedError when it, or the snapshot it leads to, is too large to keep."""
    snapshot = step.snapshot
    entry = Entry(
        snapshot.version,
        event,
        step.outcome,
        before,
        snapshot.configuration,
        snapshot.revision,
        key,
        step.reason,
        trace,
        step.effects,
    )
    if len(encode(entry)) > ENTRY_BYTES_MAX:
        raise RejectedError(f"the entry of this step has more than {ENTRY_BYTES_MAX:,} bytes", code="entry.size")
    if len(encode(snapshot)) > SNAPSHOT_BYTES_MAX:
        raise RejectedError(f"the snapshot would have more than {SNAPSHOT_BYTES_MAX:,} bytes", code="snapshot.size")
    return entry


def log_faults(entry: Entry, step: Step) -> None:
    """Warn of what went wrong inside a step that was kept. Without its message: that may quote what a sender gave."""
    for fault in step.faults:
        facts = {"entity_id": step.snapshot.entity, "version": entry.version, "event": entry.event.name}
        _log.warning("no transition took an error", extra={**facts, "code": fault.code, "place": fault.place})


def build_receipt(snapshot: Snapshot, verdict: Step | str) -> Receipt:
    """The receipt of a verdict that nothing was written for: a denial, a refusal, or what a step would do."""
    entity = snapshot.entity
    if isinstance(verdict, str):
        return Receipt(entity, "denied", snapshot.version, verdict)
    after = verdict.snapshot
    return Receipt(
        entity, verdict.outcome, after.version, verdict.reason, after, verdict.effects, verdict.faults, verdict.trials
    )
