"""ReadResult endpoints: kinds, lists, entities, journals, accepted events."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.errors import RejectedError
from interlock.model.driver_events import timer_fired
from interlock.model.visible import MASK
from interlock.ports.clock import SystemClock
from interlock.testing.clock import VirtualClock
from tests.support.eventually import eventually
from tests.support.old_stores import forget_definitions
from tests.unit.web.consoles import KEY, ORDER, Client, create_orders, make_user, open_console, order


async def test_overview_has_the_population_of_each_kind() -> None:
    async with open_console() as client:
        await create_orders(client)
        fleet = await client.json("kinds")

    (kind,) = fleet["kinds"]
    assert ("order", 3, 0) == (kind["kind"], kind["entities"], kind["stuck"])
    assert {"unpaid": 2, "paid": 1} == {each["id"]: each["entities"] for each in kind["states"] if each["entities"]}
    assert 4 == sum(each["steps"] for each in kind["minutes"])


async def test_entity_beyond_expect_is_stuck() -> None:
    clock = VirtualClock(1_000_000_000_000)
    async with open_console(clock=clock) as client:
        await create_orders(client)
        before = await client.json("kinds/order")
        clock.time_ms += 2 * 86_400_000 + 1
        after = (await client.get("kinds/order", headers={"Authorization": f"Bearer {KEY}"})).json()

    assert (0, 1) == (before["kind"]["stuck"], after["kind"]["stuck"])
    assert [1] == [each["stuck"] for each in after["kind"]["states"] if each["stuck"]]


async def test_kind_lists_its_events_with_payload_schemas() -> None:
    async with open_console() as client:
        detail = await client.json("kinds/order")

    events = {each["name"]: each for each in detail["events"]}
    assert {"type": "string"} == events["payment.confirmed"]["payload"]["properties"]["id"]
    assert ["id"] == events["payment.confirmed"]["payload"]["required"]
    assert "The customer changed their mind" == events["order.cancelled"]["description"]
    assert 1 == detail["context"]["properties"]["amount"]["minimum"]


async def test_population_includes_states_of_other_revisions(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/o.db"
    text = ORDER.replace("2.0.0", "1.0.0").replace("  expired: {type: final}", "  expired: {type: final}\n  lost: {}")
    old = order(text.replace("initial: unpaid", "initial: lost"))
    async with open_console(url, charts=(old,)) as client:
        await client.runtime.create("order/L-1", {"amount": 1})
    async with open_console(url, charts=(old, order())) as client:
        await client.runtime.create("order/A-1", {"amount": 1})
        view = (await client.json("kinds/order"))["kind"]

    assert 2 == view["entities"]
    assert [("lost", 1)] == [(each["id"], each["entities"]) for each in view["states"] if each["type"] == "removed"]
    assert [False, True] == [each["current"] for each in view["revisions"]]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", ["A-1", "A-2", "A-3"]),
        ("?state=unpaid", ["A-1", "A-3"]),
        ("?state=paid", ["A-2"]),
        ("?state=nowhere", []),
        ("?tag=open", ["A-2"]),
        ("?q=A-3", ["A-3"]),
        ("?q=B", []),
        ("?older=1h", []),
        ("?revision=none", []),
        ("?error=any", []),
    ],
)
async def test_list_is_filtered(query: str, found: list[str]) -> None:
    async with open_console() as client:
        await create_orders(client)
        page = await client.json(f"kinds/order/entities{query}")

    assert found == sorted(each["entity"].partition("/")[2] for each in page["rows"])


async def test_list_is_paged_without_gaps() -> None:
    async with open_console() as client:
        await create_orders(client, 7)
        seen, after = [], ""
        while True:
            page = await client.json(f"kinds/order/entities?limit=3{after}")
            seen += [each["entity"] for each in page["rows"]]
            if page["after"] is None:
                break
            after = f"&after={page['after']}"

    assert sorted(f"order/A-{number}" for number in range(1, 8)) == sorted(seen)
    assert len(seen) == len(set(seen))


@pytest.mark.parametrize(
    "bend", [lambda text: text[:-2] + "AA", lambda text: "A" + text[1:], lambda _: "nonsense", lambda _: "%00"]
)
async def test_changed_cursor_is_refused(bend: Any) -> None:
    async with open_console() as client:
        await create_orders(client)
        page = await client.json("kinds/order/entities?limit=1")
        response = await client.get(f"kinds/order/entities?limit=1&after={bend(page['after'])}")

    assert (400, "cursor.foreign") == (response.status_code, response.json()["code"])


async def test_cursor_is_bound_to_its_filter() -> None:
    async with open_console() as client:
        await create_orders(client)
        page = await client.json("kinds/order/entities?limit=1")
        response = await client.get(f"kinds/order/entities?limit=1&state=unpaid&after={page['after']}")

    assert "cursor.foreign" == response.json()["code"]


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=201", "limit=x", "older=soon", "older=-5m", "q=a%00b", "state=%00"]
)
async def test_invalid_filter_is_a_problem(query: str) -> None:
    async with open_console() as client:
        response = await client.get(f"kinds/order/entities?{query}")

    assert 400 == response.status_code
    assert response.json()["code"] in ("query.malformed", "older.malformed")
    assert "application/problem+json" == response.headers["content-type"]


async def test_entity_has_its_last_entry_and_transitions() -> None:
    async with open_console() as client:
        await create_orders(client)
        view = await client.json("entity/order/A-2")

    assert (["paid"], 2, 2) == (view["configuration"], view["version"], view["latest"])
    assert [{"source": "unpaid", "ordinal": 0}] == [
        {"source": each["source"], "ordinal": 0} for each in view["transitions"] if each["source"] == "unpaid"
    ]
    assert (None, "p-1") == (view["context_before"]["payment"], view["context"]["payment"])
    assert ("payment.confirmed", "till") == (view["entry"]["event"], view["entry"]["principal"])
    assert ["send_receipt"] == [each["name"] for each in view["work"] if each["lane"] == "effect"]


async def test_entity_is_returned_at_a_version_and_at_a_time() -> None:
    clock = VirtualClock(1_000_000_000_000)
    async with open_console(clock=clock) as client:
        await client.runtime.create("order/A-1", {"amount": 10})
        clock.time_ms += 60_000
        payer = {"id": "till", "roles": ["payments"]}
        await client.runtime.send("order/A-1", "payment.confirmed", {"id": "p"}, principal=payer)
        by_version = await client.json("entity/order/A-1?version=1")
        by_time = await client.json("entity/order/A-1?at=2001-09-09T01:46:41Z")
        too_early = await client.get("entity/order/A-1?at=2000-01-01T00:00:00Z")
        too_late = await client.get("entity/order/A-1?version=9")

    assert (["unpaid"], 1, 2, []) == tuple(
        by_version[each] for each in ("configuration", "version", "latest", "accepted")
    )
    assert by_version["context"] == by_time["context"]
    assert [(404, "entity.not_then")] * 2 == [(each.status_code, each.json()["code"]) for each in (too_early, too_late)]


async def test_unknown_resource_is_a_problem_with_its_code() -> None:
    async with open_console() as client:
        await create_orders(client)
        found = [
            (await client.get(path)).json()["code"]
            for path in ("entity/order/none", "kinds/none", "jobs/none", "nothing", "kinds/order/chart.svg?revision=9")
        ]

    assert ["entity.unknown", "kind.unknown", "job.unknown", "path.unknown", "revision.unknown"] == found


@pytest.mark.parametrize("name", ["order", "order/", "/x", "order/%00", "order/" + "x" * 300])
async def test_malformed_entity_is_refused(name: str) -> None:
    async with open_console() as client:
        response = await client.get(f"entity/{name}")

    assert response.status_code in (400, 404)
    assert "internal" != response.json()["code"]


async def test_journal_is_paged_backwards_from_its_end() -> None:
    async with open_console() as client:
        await create_orders(client)
        last = await client.json("journal/order/A-2?limit=1")
        before = await client.json("journal/order/A-2?limit=5&before=2")
        after = await client.json("journal/order/A-2?after=1")
        none = [await client.json(f"journal/order/A-2?{each}") for each in ("before=1", "after=2", "after=99")]

    assert [[2], [1], [2]] == [[each["version"] for each in page["entries"]] for page in (last, before, after)]
    assert [[]] * 3 == [page["entries"] for page in none]
    assert {"id": "p-1"} == last["entries"][0]["data"]


async def test_each_event_is_accepted_or_has_a_reason() -> None:
    async with open_console(who=make_user(roles=("support", "payments"))) as client:
        await client.runtime.create("order/B-1", {"amount": 5_000})
        found = {each["event"]: each for each in await client.json("accepted/order/B-1")}

    assert (True, ["paid"]) == (found["payment.confirmed"]["accepted"], found["payment.confirmed"]["targets"])
    assert ("guard", {"context.amount": 5_000}) == (
        found["order.cancelled"]["why"],
        found["order.cancelled"]["guards"][0]["values"],
    )
    assert ("roles", [], ["warehouse"]) == tuple(found["parcel.shipped"][each] for each in ("why", "states", "roles"))


SECRET = ORDER.replace("  unpaid:\n", "  unpaid:\n    sensitive: [payment]\n").replace(
    "paid:\n    expect", "paid:\n    sensitive: [payment]\n    expect"
)


async def everything(client: Client) -> str:
    """Return all responses about A-2 as one text."""
    paths = ("entity/order/A-2", "journal/order/A-2", "accepted/order/A-2", "work", "kinds/order/entities")
    return "".join([(await client.get(path)).text for path in paths])


async def test_sensitive_fields_are_masked() -> None:
    blind = make_user(rights=("read", "send"))
    async with open_console(charts=(order(SECRET),), who=blind) as client:
        await client.runtime.create("order/A-2", {"amount": 10})
        payer = {"id": "till", "roles": ["payments"]}
        await client.runtime.send("order/A-2", "payment.confirmed", {"id": "canary-7"}, principal=payer)
        shown = await everything(client)
    async with open_console(charts=(order(SECRET),)) as client:
        await client.runtime.create("order/A-2", {"amount": 10})
        await client.runtime.send("order/A-2", "payment.confirmed", {"id": "canary-7"}, principal=payer)
        seen = await everything(client)

    assert "canary-7" not in shown
    assert "canary-7" in seen


NAMES = """
interlock: 1
kind: order
context: {card: {type: string, default: none}}
sensitive: [card]
events:
  noted: {payload: {card: string}, dedupe: "= event.data.card"}
  go: {}
  back: {}
  x: {}
initial: a
states:
  a:
    on:
      noted: {actions: [{assign: {card: "= event.data.card"}}]}
      go:
        target: b
        actions:
          - {send: {event: x, id: "= 'timer-' + context.card", delay: 1h}}
          - {send: {event: "= 'e.' + context.card", delay: 1h, to: order/other}}
          - {send: {event: x, to: "= 'order/' + context.card", id: written}}
          - {send: {event: x, id: written, delay: 2h}}
          - {send: {event: x, id: written, delay: 2h}}
  b:
    invoke: {src: "= 'w.' + context.card", id: job, onDone: a, onError: a}
    on: {x: {}, back: a}
"""


async def named(client: Client) -> str:
    """Return all responses about an entity whose timer, target and source names contain a sensitive value."""
    await client.runtime.create("order/A-2")
    await client.runtime.send("order/A-2", "noted", {"card": "canary-7"})
    rehearsed = await client.post("send/order/A-2", {"event": "go", "dry_run": True})
    sent = await client.post("send/order/A-2", {"event": "go"})
    snapshot = await client.runtime.state("order/A-2")
    (timer,) = (each for each in snapshot.timers if each.name == "timer-canary-7")
    fired = timer_fired(timer, time_ms=timer.due_ms)
    await client.runtime.sender.deliver("order/A-2", fired, key="_fired")
    return rehearsed.text + sent.text + await everything(client)


async def test_names_computed_from_sensitive_fields_are_masked() -> None:
    async with open_console(charts=(interlock.loads(NAMES),), who=make_user(rights=("read", "send"))) as client:
        shown = await named(client)
    async with open_console(charts=(interlock.loads(NAMES),)) as client:
        seen = await named(client)

    assert "canary-7" not in shown
    for text in ("timer-canary-7", "e.canary-7", "entity/order/canary-7", "w.canary-7", "_noted:canary-7"):
        assert text in seen, text
    for text in ("written~", "after", "job"):
        assert (text in shown) == (text in seen), text
    assert "written" in shown


async def quoting(attempt: Any) -> None:
    """Fail permanently and quote the input."""
    raise interlock.RejectedError("no mailbox canary-7", code="mailbox.gone")


async def test_errors_of_handlers_and_guards_are_masked() -> None:
    text = SECRET.replace('"= context.amount < 1000"', '"= context.payment < 1000"')
    chart = interlock.loads(text)
    chart.handler("send_receipt")(quoting)
    who = make_user(rights=("read", "send"))
    async with open_console(charts=(chart,), who=who, work=True, clock=SystemClock()) as client:
        await client.runtime.create("order/A-1", {"amount": 10, "payment": "x"})
        sent = await client.post("send/order/A-1", {"event": "order.cancelled"})
        await client.runtime.create("order/A-2", {"amount": 10})
        payer = {"id": "till", "roles": ["payments"]}
        await client.runtime.send("order/A-2", "payment.confirmed", {"id": "p"}, principal=payer)

        async def dead() -> Any:
            work = (await client.json("entity/order/A-2"))["work"]
            return work if work and work[0]["dead_ms"] else None

        work = await eventually(dead)
        shown = await everything(client)

    assert "canary-7" not in shown
    assert MASK == work[0]["error"]
    assert [{"guard": "context.payment < 1000", "values": {}, "error": None}] == sent.json()["receipt"]["guards"]
    assert all("compare" not in each for each in sent.json()["receipt"]["faults"])


async def test_kind_without_a_chart_needs_read_sensitive(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/orders.db"
    async with open_console(url) as client:
        await create_orders(client)
    lamp = interlock.loads("interlock: 1\nkind: lamp\ninitial: off\nstates: {off: {}}\n")
    async with open_console(url, charts=(lamp,), who=make_user(rights=("read",))) as client:
        stored = await client.json("kinds")
    forget_definitions(tmp_path / "orders.db")
    async with open_console(url, charts=(lamp,), who=make_user(rights=("read",))) as client:
        blind = await client.json("kinds")
        refused = await client.get("kinds/order/entities")
    async with open_console(url, charts=(lamp,)) as client:
        seeing = await client.json("kinds")

    assert [("lamp", True), ("order", True)] == [(each["kind"], each["chart"]) for each in stored["kinds"]]
    assert (["lamp"], 404) == ([each["kind"] for each in blind["kinds"]], refused.status_code)
    assert ["lamp", "order"] == [each["kind"] for each in seeing["kinds"]]


async def test_a_kind_whose_stored_definition_has_hidden_states_needs_read_sensitive(tmp_path: Path) -> None:
    """Also when the newest chart of this process has none: entities of the older revision have them."""
    url = f"sqlite:///{tmp_path}/cases.db"
    text = "interlock: 1\nkind: case\ninitial: open\nstates: {open: {on: {hide: away}}, away: {%s}}\n"
    hiding = interlock.loads(text % "sensitive: {as: private}")
    async with open_console(url, charts=(hiding,)) as client:
        await client.runtime.create("case/1")
    async with open_console(url, charts=(interlock.loads(text % ""),), who=make_user(rights=("read",))) as client:
        kinds = await client.json("kinds")
        pages = [await client.get(each) for each in ("entity/case/1", "journal/case/1", "kinds/case/entities")]

    assert ([], [404, 404, 404]) == (kinds["kinds"], [each.status_code for each in pages])


async def refusals(client: Client) -> Any:
    """Return the list of refusals once it has rows: they are written later."""
    found = await client.json("refusals")
    return found if found["rows"] else None


async def test_refused_creation_is_listed_as_create(tmp_path: Path) -> None:
    async with open_console(f"sqlite:///{tmp_path}/orders.db") as client:
        with pytest.raises(RejectedError):
            await client.runtime.create("order/1", {"amount": "much"}, principal={"id": "eve", "roles": ["support"]})
        found = await eventually(partial(refusals, client))
    (row,) = found["rows"]

    assert ("order/1", "create", "rejected", "context.refused", "eve") == (
        row["entity"], row["event"], row["outcome"], row["reason"], row["principal"],
    )  # fmt: skip


async def test_audit_excludes_hidden_kinds(tmp_path: Path) -> None:
    hidden = ORDER.replace("  paid:\n", "  paid:\n    sensitive: true\n").replace("kind: order", "kind: fraud")
    rights = ("read", "read:audit")
    url = f"sqlite:///{tmp_path}/orders.db"
    async with open_console(url, charts=(order(), order(hidden)), who=make_user(rights=rights)) as client:
        for kind in ("order", "fraud"):
            await client.runtime.create(f"{kind}/1", {"amount": 1})
            await client.runtime.send(f"{kind}/1", "parcel.shipped", principal={"id": "eve"})
        found = await eventually(partial(refusals, client))
        job = await client.job("verify", {})

    assert {"order/1"} == {each["entity"] for each in found["rows"]}
    assert (1, ["order/1"]) == (job["seen"], [each["entity"] for each in job["samples"]])


async def test_kind_with_hidden_states_needs_read_sensitive() -> None:
    hidden = ORDER.replace("  paid:\n", "  paid:\n    sensitive: true\n")
    async with open_console(
        charts=(order(hidden),), who=make_user(rights=("read", "send", "read:audit", "bulk"))
    ) as client:
        await create_orders(client)
        fleet = await client.json("kinds")
        paths = (
            "kinds/order",
            "kinds/order/chart.svg",
            "kinds/order/entities",
            "entity/order/A-2",
            "journal/order/A-2",
        )
        codes = {
            (await client.get(path)).status_code for path in (*paths, "accepted/order/A-2", "streams/entity/order/A-2")
        }
        sent = await client.post("send/order/A-2", {"event": "parcel.shipped"})
        work = await client.json("work")

    assert ([], []) == (fleet["kinds"], work["rows"])
    assert {404} == codes
    assert 404 == sent.status_code


async def test_population_of_a_store_without_counters_is_scanned(tmp_path: Path) -> None:
    async with open_console(f"file:{tmp_path}/orders") as client:
        await create_orders(client)
        (kind,) = (await client.json("kinds"))["kinds"]

    assert (3, False, []) == (kind["entities"], kind["partial"], kind["minutes"])
    assert {"unpaid": 2, "paid": 1} == {each["id"]: each["entities"] for each in kind["states"] if each["entities"]}


async def test_drawing_is_cached_until_the_revision_changes() -> None:
    async with open_console() as client:
        first = await client.get("kinds/order/chart.svg")
        second = await client.get("kinds/order/chart.svg", headers={"If-None-Match": first.headers["etag"]})

    assert "image/svg+xml" == first.headers["content-type"]
    assert '"s-unpaid"' in first.text
    assert "<style" not in first.text
    assert (304, b"") == (second.status_code, second.content)


async def test_diff_lists_added_removed_and_changed_parts() -> None:
    later = (
        ORDER.replace("2.0.0", "3.0.0").replace("  paid:\n", "  settled:\n").replace("target: paid", "target: settled")
    )
    async with open_console(charts=(order(later.replace("3.0.0", "3.0.0")), order())) as client:
        await create_orders(client)
        old, new = [each["revision"] for each in (await client.json("kinds/order"))["kind"]["revisions"]][::-1]
        asked = {"from": old, "to": new}
        diff = (await client.get("kinds/order/diff", params=asked)).json()
        same = (await client.get("kinds/order/diff", params={"from": old, "to": old})).json()
        picture = await client.get("kinds/order/diff.svg", params=asked)

    found = {(each["what"], each["change"], each["name"]): each["entities"] for each in diff["changes"]}
    assert 1 == found["state", "removed", "paid"]
    assert ("state", "added", "settled") in found
    assert 1 == diff["affected"]
    assert (True, []) == (same["same"], same["changes"])
    assert "removed" in picture.text
