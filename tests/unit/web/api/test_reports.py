"""Saved reports in the API: the list, one report, and what a user without `read:sensitive` does not see."""

from __future__ import annotations

from msgspec import Struct

from interlock.assemble.charts import loads
from interlock.model.limits import REPORT_BYTES_MAX
from interlock.runtime.charts.registry import REPORT_KIND
from interlock.runtime.history.recorded_steps import RecordedSteps
from interlock.runtime.trials.reports import StoredReport, plain_report, save_report
from interlock.trust.users import RIGHTS
from tests.unit.web.consoles import ORDER, Client, make_user, open_console, order


class Large(Struct):
    """A report with many groups."""

    groups: list[dict[str, object]]
    other: int = 0
    gaps: tuple[str, ...] = ()


SENSITIVE = ORDER.replace("  unpaid:\n", "  unpaid:\n    sensitive: [amount]\n")
ALMOST_ALL = tuple(each for each in RIGHTS if each != "read:sensitive")


async def saved(client: Client) -> StoredReport:
    """Save a refold of the orders through a chart with another first value."""
    runtime = client.runtime
    await runtime.create("order/1", {"amount": 5})
    report = plain_report(await runtime.preview_refold("order"), loads(ORDER).chart)
    sample = {"entity": "order/1", "version": 1, "first_version": 1, "differences": ["context.amount: 5 -> 7"]}
    group = {"state": ["unpaid"], "parts": ["context.amount"], "reasons": [], "event": "x", "count": 1}
    report |= {"groups": [{**group, "samples": [sample]}], "correctable": 1, "same": 0}
    stored = StoredReport(
        id="refold-1",
        what="refold",
        kind="order",
        revision="b1.0",
        label="2.1.0",
        who="ada",
        began_ms=1,
        saved_ms=2,
        running=False,
        report=report,
    )
    await save_report(runtime.entities, runtime.sender, stored)
    return stored


async def test_a_report_is_listed_and_shown() -> None:
    async with open_console() as client:
        stored = await saved(client)
        listed = await client.json("reports")
        one = await client.json("reports/refold-1")
        kinds = await client.json("kinds")
        unknown = await client.get("reports/refold-2")

    assert [("refold-1", "refold", "different", 1)] == [
        (each["id"], each["what"], each["verdict"], each["differing"]) for each in listed["reports"]
    ]
    assert (listed["reports"][0], stored.report) == (one["row"], one["report"])
    assert REPORT_KIND not in {each["kind"] for each in kinds["kinds"]}
    assert (404, "report.unknown") == (unknown.status_code, unknown.json()["code"])


async def test_masked_fields_are_not_in_a_report() -> None:
    shown = {}
    for name, rights in {"all": RIGHTS, "almost": ALMOST_ALL}.items():
        async with open_console(charts=(order(SENSITIVE),), who=make_user(rights=rights)) as client:
            await saved(client)
            one = await client.json("reports/refold-1")
            shown[name] = one["report"]["groups"][0]["samples"][0]["differences"]

    assert {"all": ["context.amount: 5 -> 7"], "almost": ["context.amount: (sensitive)"]} == shown


async def test_a_report_that_is_too_large_counts_what_it_leaves_out() -> None:
    async with open_console() as client:
        runtime = client.runtime
        await runtime.create("order/1", {"amount": 5})
        report = await runtime.preview_refold("order")
        steps = RecordedSteps(loads(ORDER).kernel, runtime.revisions)
        assert [steps.new.chart] == steps.charts()
        plain = plain_report(report)
        group: dict[str, object] = {
            "state": [],
            "parts": [],
            "reasons": ["x" * 1_000],
            "event": None,
            "count": 2,
            "samples": [],
        }
        large = plain_report(Large(groups=[group] * 200))

    assert 0 == plain["other"]
    assert 200 == len(large["groups"]) + large["other"] // 2
    assert REPORT_BYTES_MAX // 1_200 < len(large["groups"]) < REPORT_BYTES_MAX // 1_000
