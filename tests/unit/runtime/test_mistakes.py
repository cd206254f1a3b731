"""Mistakes of the program raise at the call; answers of the chart stay receipts, which explain themselves."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import interlock
from interlock.errors import DeniedError, RejectedError, UsageError
from interlock.model.journal.entry import Receipt
from interlock.model.limits import EXPLANATION_LENGTH_MAX
from interlock.runtime.runtime import Runtime
from interlock.stores.memory import MemoryStore
from tests.support.audit import audit_rows
from tests.unit.runtime.scene import runtime

PARCEL = """
interlock: 1
kind: parcel
revision: "{revision}"
compatible: ">=1.0 <9"
context: {{weight: {{type: integer, default: 5000}}, pin: {{type: string, default: "1234"}}}}
events:
  packed: {{payload: {{by: string, boxes: {{type: integer, default: 1}}}}}}
  sent: {{}}
  opened: {{}}
  {extra}: {{}}
  scanned: {{direction: internal}}
states:
  open: {{on: {{packed: packed, opened: {{target: gone, guard: "= context.weight < 1000 and context.pin == '0000'"}}}}}}
  packed: {{sensitive: [pin], on: {{sent: gone, {extra}: gone}}}}
  gone: {{type: final}}
"""
ONE = PARCEL.format(revision="1.0", extra="lost")
TWO = PARCEL.format(revision="2.0", extra="stolen")


@asynccontextmanager
async def parcels(*texts: str, url: str = "memory:") -> AsyncGenerator[Runtime, None]:
    """A runtime with a parcel."""
    charts = [interlock.loads(each) for each in texts or (ONE,)]
    async with interlock.open(url, charts=charts, work=False) as opened:
        if url == "memory:":
            await opened.create("parcel/1")
        yield opened


async def raised(call: Any) -> UsageError:
    """The mistake that a call reports."""
    with pytest.raises(UsageError) as caught:
        await call
    return caught.value


# Events


@pytest.mark.parametrize("name", ["pakced", "parcel.packed", "lost.again", "scanned"])
async def test_an_event_that_no_revision_knows_raises_and_nothing_is_written(name: str) -> None:
    async with parcels() as opened:
        error = await raised(opened.send("parcel/1", name))
        after = await opened.state("parcel/1")

    assert ("event.unknown", 1) == (error.code, after.version)
    assert name in error.message
    assert error.hint


async def test_the_nearest_name_is_suggested() -> None:
    async with parcels() as opened:
        error = await raised(opened.send("parcel/1", "pakced", {"by": "ada"}))

    assert "packed" in str(error.hint)


async def test_an_event_of_another_loaded_revision_is_an_answer_of_the_chart() -> None:
    """An entity of the old revision does not know it: the program is right, the entity refuses."""
    async with parcels(TWO, ONE) as opened:
        receipt = await opened.send("parcel/1", "stolen")

    assert ("rejected", "undeclared") == (receipt.outcome, receipt.reason)
    assert "stolen" in str(receipt.explanation)


async def test_an_event_of_the_entitys_own_revision_is_applied_where_the_newest_chart_lost_it(tmp_path: Path) -> None:
    """It is loaded here, or the store has its definition."""
    one, two = (each.replace('compatible: ">=1.0 <9"', "") for each in (ONE, TWO))
    url = f"sqlite:///{tmp_path}/parcels.db"
    async with parcels(one, url=url) as opened:
        for number in (1, 2):
            await opened.create(f"parcel/{number}")
            await opened.send(f"parcel/{number}", "packed", {"by": "ada"})
    async with parcels(one, two, url=url) as opened:
        loaded = (await opened.send("parcel/1", "lost")).expect()
    async with parcels(two, url=url) as opened:
        stored = (await opened.send("parcel/2", "lost")).expect()
        error = await raised(opened.send("parcel/2", "lsot"))

    assert (("gone",), ("gone",)) == (loaded.snapshot.configuration, stored.snapshot.configuration)
    assert stored.snapshot.matches("gone")
    assert "event.unknown" == error.code


async def test_a_repeated_send_is_a_duplicate_also_when_no_chart_knows_its_event_any_more(tmp_path: Path) -> None:
    """The key is known: whatever the program does now, the event was applied."""
    url = f"sqlite:///{tmp_path}/parcels.db"
    async with parcels(ONE, url=url) as opened:
        await opened.create("parcel/1")
        await opened.send("parcel/1", "packed", {"by": "ada"})
        await opened.send("parcel/1", "lost", key="k")
    async with parcels(TWO, url=url) as opened:
        again = await opened.send("parcel/1", "lost", key="k")

    assert "duplicate" == again.outcome
    assert again.expect().snapshot.matches("gone")


WILD = """
interlock: 1
kind: wild
unhandled: {unhandled}
states:
  open: {{on: {{"pay.*": paid{star}}}}}
  paid: {{on: {{sent: open}}}}
"""


@pytest.mark.parametrize(
    ("star", "name", "known"), [("", "pay.card", True), ("", "payment", False), (', "*": paid', "payment", True)]
)
async def test_a_prefix_and_a_wildcard_know_more_names_than_they_write(star: str, name: str, known: bool) -> None:
    wild = runtime(WILD.format(unhandled="reject", star=star))
    await wild.create("wild/1")

    if known:
        assert "applied" == (await wild.send("wild/1", name)).outcome
    else:
        assert "event.unknown" == (await raised(wild.send("wild/1", name))).code


@pytest.mark.parametrize("unhandled", ["ignore", "defer"])
async def test_a_misspelt_event_is_neither_ignored_nor_deferred(unhandled: str) -> None:
    wild = runtime(WILD.format(unhandled=unhandled, star=""))
    await wild.create("wild/1")
    error = await raised(wild.send("wild/1", "snet"))
    known = await wild.send("wild/1", "sent")

    assert ("event.unknown", 1 if unhandled == "ignore" else 2) == (error.code, known.version)


async def test_a_mistake_is_recorded_like_any_other_refusal() -> None:
    store = MemoryStore()
    parcel = runtime(ONE, store=store)
    await parcel.create("parcel/1")
    await raised(parcel.send("parcel/1", "pakced"))
    await raised(parcel.send("parcel/1", "packed", {"boxes": 1}))

    assert [("pakced", "rejected", "event.unknown"), ("packed", "rejected", "payload")] == [
        (each.event, each.outcome, each.reason) for each in await audit_rows(store)
    ]


async def test_a_sender_without_the_role_is_denied_whatever_it_sends() -> None:
    """It must not learn from an error what it may not know."""
    secret = ONE.replace("packed: {payload:", "packed: {roles: [clerk], payload:", 1)
    async with parcels(secret) as opened:
        receipt = await opened.send("parcel/1", "packed", {"wrong": 1}, principal={"roles": ["guest"]})

    assert ("denied", "roles") == (receipt.outcome, receipt.reason)


# Payloads


@dataclass
class Packed:
    """A payload as a dataclass."""

    by: UUID
    boxes: Decimal


@pytest.mark.parametrize(
    ("payload", "hint"),
    [
        ({"bby": "ada"}, "by"),
        ({}, "by"),
        ({"by": 5}, "by"),
        ({"by": "ada", "boxes": "two"}, "by"),
        (["ada"], "by"),
        (Packed(UUID(int=1), Decimal(2)), "by"),
    ],
)
async def test_a_payload_that_its_declaration_refuses_raises_with_the_fields(payload: Any, hint: str) -> None:
    async with parcels() as opened:
        error = await raised(opened.send("parcel/1", "packed", payload))

    assert "event.payload" == error.code
    assert hint in str(error.hint)


async def test_a_payload_that_another_loaded_revision_accepts_is_an_answer_of_the_chart() -> None:
    wider = TWO.replace("by: string", "by: any")
    async with parcels(wider, ONE) as opened:
        receipt = await opened.send("parcel/1", "packed", {"by": 5})

    assert ("rejected", "payload") == (receipt.outcome, receipt.reason)


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"items": [{"price": 1}, {"price": float("nan")}]}, "items[1].price"),
        ({"tags": {"a"}}, "tags"),
        ({"at": datetime(2026, 1, 1)}, "at"),  # noqa: DTZ001 - that it has no zone is the point
        ({"deep": {1: 2}}, "deep"),
        ({"text": "\ud800"}, "text"),
    ],
)
async def test_a_value_without_a_json_form_is_named_by_its_path(value: Any, path: str) -> None:
    doors = runtime()
    await doors.create("door/1")
    error = await raised(doors.send("door/1", "noted", value))

    assert f"`{path}`" in error.message


# Arguments


@pytest.mark.parametrize(
    ("call", "code", "hint"),
    [
        ({"kye": "k"}, "argument.unknown", "key"),
        ({"principle": {}}, "argument.unknown", "principal"),
        ({"principal": {"roles": "staff"}}, "principal.malformed", "staff"),
        ({"principal": {"roles": {"staff"}}}, "principal.malformed", "sorted"),
        ({"principal": {"roles": [1]}}, "principal.malformed", "roles"),
        ({"principal": "ada"}, "principal.malformed", "id"),
        ({"reason": ""}, "reason.malformed", "reason"),
        ({"reason": 5}, "reason.malformed", ""),
        ({"reason": "x" * 2_000}, "reason.malformed", "payload"),
        ({"event": 5}, "event.malformed", "model"),
        ({"event": ["packed"]}, "event.malformed", "model"),
        ({"event": Packed(UUID(int=1), Decimal(1))}, "event.unknown", "models"),
    ],
)
async def test_a_wrong_argument_raises_with_the_fix(call: dict[str, Any], code: str, hint: str) -> None:
    async with parcels() as opened:
        error = await raised(opened.send(**{"entity": "parcel/1", "event": "sent"} | call))

    assert code == error.code
    assert hint in f"{error.hint}"


async def test_other_calls_name_unknown_arguments_too() -> None:
    async with parcels() as opened:
        errors = [
            await raised(opened.create("parcel/2", contxt={})),  # type: ignore[call-arg]  # that is the mistake
            await raised(opened.dry_run("parcel/1", "sent", reason="x")),  # type: ignore[call-overload]  # as above
        ]
    with pytest.raises(UsageError) as loaded:
        interlock.loads(ONE, model={})  # type: ignore[call-overload]  # that is the mistake

    assert ["argument.unknown"] * 3 == [each.code for each in (*errors, loaded.value)]


def test_a_blocking_runtime_raises_the_same_errors() -> None:
    with interlock.connect("memory:", charts=[interlock.loads(ONE)]) as opened:
        opened.create("parcel/1", reason="ordered")
        with pytest.raises(UsageError) as event:
            opened.send("parcel/1", "pakced")
        with pytest.raises(UsageError) as argument:
            opened.send("parcel/1", "sent", kye="k")  # type: ignore[call-overload]  # that is the mistake

    assert ["event.unknown", "argument.unknown"] == [event.value.code, argument.value.code]


# Answers


def refusal(receipt: Receipt) -> str:
    """The text that `expect` raises."""
    with pytest.raises((RejectedError, DeniedError)) as caught:
        receipt.expect()
    assert f"{receipt.outcome}.{receipt.reason}" == caught.value.code
    return str(caught.value)


async def test_a_rejection_names_the_event_the_state_and_where_it_is_accepted() -> None:
    async with parcels() as opened:
        text = refusal(await opened.send("parcel/1", "sent"))

    for word in ("parcel/1", "`sent`", "`open`", "accepted in packed"):
        assert word in text


async def test_a_rejection_names_the_guard_and_its_values_without_sensitive_ones() -> None:
    async with parcels() as opened:
        text = refusal(await opened.send("parcel/1", "opened"))

    for word in ("context.weight < 1000", "context.weight = 5000", "context.pin = •••"):
        assert word in text
    assert "1234" not in text


async def test_a_payload_is_not_shown_where_the_chart_has_anything_sensitive() -> None:
    text = ONE.replace("context.weight < 1000", "event.data.code == 1")
    async with parcels(text.replace("opened: {}", "opened: {payload: {code: integer}}")) as opened:
        shown = refusal(await opened.send("parcel/1", "opened", {"code": 77}))

    assert "77" not in shown


async def test_an_explanation_is_short() -> None:
    guards = ", ".join(f"{{target: b, guard: \"= context.text == '{number}'\"}}" for number in range(50))
    states = f"states: {{a: {{on: {{go: [{guards}]}}}}, b: {{}}}}"
    opened = runtime(f"interlock: 1\nkind: long\ncontext: {{text: {{type: string, required: true}}}}\n{states}")
    await opened.create("long/1", {"text": "x" * 10_000})
    text = refusal(await opened.send("long/1", "go"))

    assert len(text) <= EXPLANATION_LENGTH_MAX


async def test_a_denial_names_the_role_and_no_state() -> None:
    text = ONE.replace("sent: {}", "sent: {roles: [clerk]}").replace("opened: {}", "opened: {roles: [boss]}")
    async with parcels(text) as opened:
        shown = refusal(await opened.send("parcel/1", "sent", principal={"id": "ada", "roles": ["guest"]}))

    for word in ("`sent`", "clerk", "ada", "guest"):
        assert word in shown
    assert "packed" not in shown


async def test_a_refused_creation_and_an_ended_entity_say_so() -> None:
    async with parcels() as opened:
        exists = refusal(await opened.create("parcel/1"))
        await opened.send("parcel/1", "packed", {"by": "ada"})
        await opened.send("parcel/1", "sent")
        ended = refusal(await opened.send("parcel/1", "sent"))

    assert "exists" in exists
    assert "ended" in ended


# What a snapshot and a runtime can be asked


async def test_a_duplicate_has_the_entity_as_it_is_now() -> None:
    async with parcels() as opened:
        await opened.send("parcel/1", "packed", {"by": "ada"}, key="k")
        await opened.send("parcel/1", "sent")
        again = (await opened.send("parcel/1", "packed", {"by": "ada"}, key="k")).expect()
        tried = (await opened.dry_run("parcel/1", "packed", {"by": "ada"}, key="k")).expect()

    assert ("duplicate", 2, 3) == (again.outcome, again.version, again.snapshot.version)
    assert tried.snapshot == again.snapshot


async def test_a_reason_is_kept_in_the_journal() -> None:
    async with parcels() as opened:
        await opened.create("parcel/2", reason="ordered twice")
        await opened.send("parcel/2", "packed", {"by": "ada"}, reason="by hand")
        await opened.send("parcel/2", "sent")
        entries = await opened.journal("parcel/2")
        found = await opened.verify("parcel/2")

    assert ["ordered twice", "by hand", None] == [each.reason_given for each in entries]
    assert found.problem is None


@pytest.fixture(params=["memory:", "sqlite:///{}/c.db", "file:{}/c"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An address of each kind of store."""
    return str(request.param).format(tmp_path)


async def test_entities_are_counted_by_state(url: str) -> None:
    nested = """
interlock: 1
kind: job
states:
  busy: {tags: [active], initial: one, states: {one: {on: {next: two}}, two: {}}}
  over: {type: final}
on: {stop: over}
"""
    async with interlock.open(url, charts=[interlock.loads(nested)], work=False) as jobs:
        for number in range(5):
            await jobs.create(f"job/{number}")
        await jobs.send("job/0", "next")
        await jobs.send("job/1", "stop")
        counts = await jobs.counts("job")
        with pytest.raises(interlock.NotFoundError):
            await jobs.counts("jobs")

    assert {"busy": 4, "busy.one": 3, "busy.two": 1, "over": 1} == counts


async def test_a_payload_may_have_python_values(tmp_path: Path) -> None:
    """They are stored as JSON, and the journal replays to the same snapshot."""
    text = """
interlock: 1
kind: note
context: {last: {type: any, default: null}}
states: {open: {on: {noted: {actions: [{assign: {last: "= event.data"}}]}}}}
"""
    at = datetime(2026, 1, 1, 12, tzinfo=UTC)
    async with interlock.open(f"sqlite:///{tmp_path}/n.db", charts=[interlock.loads(text)]) as notes:
        await notes.create("note/1")
        receipt = await notes.send("note/1", "noted", {"at": at, "price": Decimal("1E+3"), "ids": (UUID(int=1),)})
        found = await notes.verify("note/1")

    expected = {"at": "2026-01-01T12:00:00Z", "price": "1000", "ids": ["00000000-0000-0000-0000-000000000001"]}
    assert expected == receipt.expect().snapshot.context["last"]
    assert found.problem is None


# Ten more mistakes of a first day


@pytest.mark.parametrize(
    ("query", "error", "code", "hint"),
    [
        ({"kind": "parcle"}, interlock.NotFoundError, "kind.unknown", "parcel"),
        ({"kind": "parcel", "state": "pakced"}, UsageError, "state.unknown", "packed"),
        ({"kind": "parcel", "tag": "urgent"}, UsageError, "tag.unknown", "none"),
    ],
)
async def test_a_misspelt_name_in_a_query_is_not_an_empty_list(
    query: dict[str, Any], error: type[Exception], code: str, hint: str, url: str
) -> None:
    async with parcels(url=url) as opened:
        known = await opened.list(interlock.EntityQuery(kind="parcel", state="gone"))
        cancelled = await opened.list(interlock.EntityQuery(kind="parcel", state=":cancelled"))
        with pytest.raises(error) as caught:
            await opened.list(interlock.EntityQuery(**query))

    assert ((), ()) == (known.rows, cancelled.rows)
    assert code == getattr(caught.value, "code", None)
    assert hint in str(caught.value)


async def test_a_state_that_only_an_older_revision_has_is_still_listed(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/parcels.db"
    async with parcels(ONE, url=url) as opened:
        await opened.create("parcel/1")
    newer = TWO.replace("  open:", "  fresh:").replace('compatible: ">=1.0 <9"', "")
    async with parcels(newer, url=url) as opened:
        page = await opened.list(interlock.EntityQuery(kind="parcel", state="open"))

    assert ["parcel/1"] == [each.entity for each in page.rows]


def test_a_file_and_a_text_are_not_confused(tmp_path: Path) -> None:
    file = tmp_path / "parcel.interlock.yaml"
    file.write_text(ONE)
    errors = []
    calls: tuple[Callable[[], object], ...] = (
        lambda: interlock.load(ONE),
        lambda: interlock.loads("parcel.interlock.yaml"),
        lambda: interlock.load(tmp_path / "parcel.yaml"),
        lambda: interlock.load(tmp_path / "prcel.interlock.yaml"),
    )
    for call in calls:
        with pytest.raises((UsageError, interlock.NotFoundError)) as caught:
            call()
        errors.append((caught.value.code, str(caught.value.hint)))

    assert ["text.file", "text.file", "file.not_found", "file.not_found"] == [code for code, _ in errors]
    assert "loads" in errors[0][1]
    assert "load(" in errors[1][1]
    assert all("parcel.interlock.yaml" in hint for _, hint in errors[2:])


@pytest.mark.parametrize("charts", ["parcel.yaml", Path("parcel.yaml"), 5])
def test_charts_that_are_no_list_name_the_fix(charts: Any) -> None:
    with pytest.raises(UsageError) as caught:
        interlock.open("memory:", charts=charts)

    assert ("charts.malformed", True) == (caught.value.code, "interlock.load(" in str(caught.value.hint))


@pytest.mark.parametrize(
    ("call", "hint"), [({"entity": "parcel"}, "order/1"), ({"entity": 5}, "str"), ({"key": 5}, "str")]
)
async def test_an_id_or_a_key_of_another_form_names_the_fix(call: dict[str, Any], hint: str) -> None:
    async with parcels() as opened:
        error = await raised(opened.send(**{"entity": "parcel/1", "event": "sent"} | call))

    assert hint in str(error.hint)
