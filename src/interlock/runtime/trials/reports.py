"""Reports of shadow runs, shadow replays and refolds, saved in the store for other processes and the console.

Rule 1: a report is an entity of the kind `interlock-report`, so every store can keep it, without a table. Saving again
        replaces what is shown; the journal has the earlier ones.
Rule 2: a replay or a refold has one report per chart. A shadow run has one per process.
Rule 3: a report is bounded: groups that do not fit are counted as `other`.
Rule 4: values of sensitive fields are not saved, nor what may contain them.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from interlock.model.charts.chart import Chart
from interlock.model.encoding.codec import encode
from interlock.model.event import Event
from interlock.model.limits import REPORT_BYTES_MAX, REPORTS_MAX
from interlock.model.snapshot import Snapshot
from interlock.ports.reading.paging import pages
from interlock.ports.store import PAGE_MAX, EntityQuery
from interlock.runtime.charts.registry import CONSOLE_ROLE, REPORT_KIND
from interlock.runtime.entities.entities import Entities
from interlock.runtime.entities.send_request import SendRequest
from interlock.runtime.entities.sender import EntitySender

ReportType = Literal["shadow.run", "shadow.replay", "refold"]

WITHHELD = "(sensitive)"
"""What a report has instead of a value that may be sensitive."""

_OPEN_PARTS = ("configuration", "outcome", "reason", "ended")
"""Parts of a difference that never contain values of fields."""


class StoredReport(Struct, frozen=True, kw_only=True):
    """A report as it was saved last.

    `what` is `shadow.run`, `shadow.replay` or `refold`; `kind`, `revision` and `label` are those of the new chart;
    `who` asked for it, or the process that runs it. `report` is plain JSON.
    """

    id: str
    what: ReportType
    kind: str
    revision: str
    label: str | None
    who: str
    began_ms: int
    saved_ms: int
    running: bool
    report: dict[str, Any]


def report_id(what: ReportType, kind: str, revision: str, *, process: str = "") -> str:
    """Return the id of a report; `process` distinguishes the shadow runs of several processes."""
    seed = encode([kind, revision, process])
    return f"{what}-{blake2b(seed, digest_size=8).hexdigest()}"


def plain_report(report: Struct, *charts: Chart) -> dict[str, Any]:
    """Return a report as plain JSON, without values that these charts declare as sensitive, and not too large."""
    found: dict[str, Any] = msgspec.json.decode(encode(report))
    declared = [each.sensitive for chart in charts for each in chart.states if each.sensitive is not None]
    if declared:
        found = masked_report(found, frozenset(name for each in declared for name in each.fields))
    groups = found["groups"] = list(found["groups"])
    while groups and len(encode(found)) > REPORT_BYTES_MAX:
        removed = groups.pop()
        found["other"] += removed["count"]
    return found


def masked_report(report: dict[str, Any], fields: frozenset[str]) -> dict[str, Any]:
    """Return a plain report without the values of these fields, which may be paths, and of what may contain them."""
    names = frozenset(each.partition(".")[0] for each in fields)
    groups = [
        {
            **group,
            "samples": [
                {**sample, "differences": [_open_text(each, names) for each in sample["differences"]]}
                for sample in group["samples"]
            ],
        }
        for group in report["groups"]
    ]
    return {**report, "groups": groups, "gaps": [{**gap, "text": WITHHELD} for gap in report["gaps"]]}


def _open_text(text: str, sensitive: frozenset[str]) -> str:
    """Return a difference without its values, if they may be sensitive."""
    part, _, _ = text.partition(": ")
    field = part.removeprefix("context.")
    is_open = part in _OPEN_PARTS or (field != part and bool(sensitive) and field not in sensitive)
    return text if is_open else f"{part}: {WITHHELD}"


async def save_report(entities: Entities, sender: EntitySender, stored: StoredReport) -> None:
    """Save a report, or replace the one that was saved before. Raises UnavailableError when the store cannot."""
    entity = f"{REPORT_KIND}/{stored.id}"
    principal = {"id": stored.who, "roles": [CONSOLE_ROLE]}
    values = {name: value for name, value in asdict(stored).items() if name not in ("id", "kind")}
    values["of"] = stored.kind
    if await entities.store.load(entity) is None:
        kernel = entities.charts.for_new_entity(REPORT_KIND)
        receipt = await sender.create(entity, kernel, values, principal=principal)
        if receipt.outcome == "applied":
            return
    changed = {name: values[name] for name in ("who", "began_ms", "saved_ms", "running", "report")}
    event = Event("report.saved", changed, principal=principal)
    await sender.send(entity, SendRequest(event, f"_{entities.clock.token()}"))


async def read_reports(entities: Entities) -> tuple[StoredReport, ...]:
    """Return the saved reports, the one that was saved last first: at most `REPORTS_MAX`."""
    found = []
    query = EntityQuery(kind=REPORT_KIND, limit=PAGE_MAX, by_id=True)
    async for page in pages(entities.store.find, query, rows_max=REPORTS_MAX):
        for row in page.rows:
            is_cached = row.entity in entities.snapshots
            snapshot, _ = await entities.load_snapshot(row.entity)
            if not is_cached:
                entities.snapshots.pop(row.entity, None)
            found.append(_stored(snapshot))
    return tuple(sorted(found, key=lambda each: each.saved_ms, reverse=True))


def _stored(snapshot: Snapshot) -> StoredReport:
    values: Mapping[str, Any] = snapshot.context
    return StoredReport(
        id=snapshot.entity.partition("/")[2],
        what=values["what"],
        kind=values["of"],
        revision=values["revision"],
        label=values.get("label"),
        who=values["who"],
        began_ms=values["began_ms"],
        saved_ms=values["saved_ms"],
        running=values["running"],
        report=values["report"],
    )
