"""Spans of a runtime, as the SDK of OpenTelemetry exports them: which there are, below which, and what they say."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased

import interlock
from interlock.buses.memory import MemoryBus
from interlock.errors import UsageError
from interlock.model.journal.cause import CAUSE, Cause, cause_body, cause_of, is_traceparent, trace_id
from interlock.model.journal.message import decode_message
from interlock.observe.open_telemetry import installed_tracer, tracer_of
from interlock.ports.store import EntityQuery
from interlock.testing import VirtualClock
from tests.support.eventually import PATIENCE_SECONDS, eventually

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SENT = f"00-{TRACE}-00f067aa0ba902b7-01"
OTHER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
DAY_MS = 86_400_000

ORDER = """
interlock: 1
kind: order
context: {looks: {type: integer, default: 0}}
states:
  unpaid: {on: {pay: charging, look: {actions: [{assign: {looks: "= context.looks + 1"}}]}}}
  charging:
    invoke: {id: charge, src: payment.charge, retry: {max: 2, backoff: 10ms, jitter: none}}
    on: {done.invoke.charge: waiting, error.invoke.charge: unpaid}
  waiting: {after: {1h: packing}}
  packing:
    invoke: {id: parcel, src: parcel, type: chart}
    on: {done.invoke.parcel: shipped}
  shipped: {type: final}
"""

PARCEL = """
interlock: 1
kind: parcel
states:
  booked: {after: {1s: sent}}
  sent: {type: final}
"""

ACCOUNT = """
interlock: 1
kind: account
unhandled: defer
create: {roles: [customer]}
context: {touched: {type: integer, default: 0}}
events:
  touch: {roles: [customer]}
  freeze: {roles: [police]}
  thaw: {roles: [police]}
  close: {roles: [police]}
initial: active
states:
  active:
    on:
      touch: {actions: [{assign: {touched: "= context.touched + 1"}}]}
      freeze: frozen
  frozen:
    sensitive: {as: active, roles: [police]}
    invoke: {id: report, src: police.report}
    on: {thaw: active, close: closed}
  closed: {}
"""


class Exported:
    """What was exported."""

    def __init__(self, **options: Any) -> None:
        self.memory, self.provider = InMemorySpanExporter(), TracerProvider(**options)
        self.provider.add_span_processor(SimpleSpanProcessor(self.memory))

    @property
    def spans(self) -> list[ReadableSpan]:
        """The spans, in the order of their ends."""
        return list(self.memory.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        """The spans of a name."""
        return [each for each in self.spans if each.name == name]

    def tree(self) -> list[tuple[str, str]]:
        """Each span with the name of the one above it; `-` if that is not ours. Sorted by start."""
        names = {each.context.span_id: each.name for each in self.spans}
        rows = sorted(self.spans, key=lambda each: each.start_time or 0)
        return [(each.name, "-" if each.parent is None else names.get(each.parent.span_id, "-")) for each in rows]

    def traces(self) -> set[str]:
        """The ids of the traces."""
        return {f"{each.context.trace_id:032x}" for each in self.spans}


@pytest.fixture
def exported() -> Exported:
    """An exporter that keeps what it gets."""
    return Exported()


def _order(calls: list[interlock.Attempt], failing: int = 1) -> interlock.BoundChart:
    order = interlock.loads(ORDER)

    @order.handler("payment.charge")
    async def charge(attempt: interlock.Attempt) -> None:
        calls.append(attempt)
        if attempt.number <= failing:
            raise ConnectionError("the bank is away: card 4111")

    return order


async def test_one_life_is_one_tree(exported: Exported) -> None:
    clock, calls = VirtualClock(1_000_000), list[interlock.Attempt]()
    charts = [_order(calls), interlock.loads(PARCEL)]
    async with interlock.open("memory:", charts=charts, clock=clock, tracer_provider=exported.provider) as orders:
        await orders.create("order/1", trace=SENT)
        await orders.send("order/1", "pay", trace=SENT, principal={"id": "ada", "roles": []})
        for state, wait_ms in (("waiting", 10), ("packing", 3_600_000), ("shipped", 1_000)):
            await _reached(orders, clock, "order/1", state, wait_ms)
        entries = await orders.journal("order/1")
        child = (await _entities(orders, "parcel"))[0]
        child_entries = await orders.journal(child)

    assert {TRACE} == exported.traces()
    assert [
        ("interlock.create", "-"),
        ("interlock.append", "interlock.create"),
        ("interlock.send", "-"),
        ("interlock.step", "interlock.send"),
        ("interlock.append", "interlock.step"),
        ("interlock.effect", "interlock.step"),
        ("interlock.effect", "interlock.step"),
        ("interlock.step", "interlock.effect"),
        ("interlock.append", "interlock.step"),
        ("interlock.timer", "interlock.step"),
        ("interlock.step", "interlock.timer"),
        ("interlock.append", "interlock.step"),
        ("interlock.create", "interlock.step"),
        ("interlock.append", "interlock.create"),
        ("interlock.timer", "interlock.create"),
        ("interlock.step", "interlock.timer"),
        ("interlock.append", "interlock.step"),
        ("interlock.send", "interlock.step"),
        ("interlock.step", "interlock.send"),
        ("interlock.append", "interlock.step"),
    ] == exported.tree()
    steps = {
        api_traceparent(each): each for each in exported.spans if each.name in ("interlock.step", "interlock.create")
    }
    assert [True] * 5 == [entry.trace in steps for entry in entries]
    assert [True] * 2 == [entry.trace in steps for entry in child_entries]
    for_ada = [None, None, "ada", "ada", None]  # the principal of the last one, the child, says for whom
    assert for_ada == [None if each.originator is None else each.originator.id for each in entries]
    assert ["ada", "ada"] == [each.originator and each.originator.id for each in child_entries]


async def test_each_attempt_is_a_span_whose_parent_is_the_step_that_asked(exported: Exported) -> None:
    clock, calls = VirtualClock(1_000_000), list[interlock.Attempt]()
    charts = [_order(calls), interlock.loads(PARCEL)]
    async with interlock.open("memory:", charts=charts, clock=clock, tracer_provider=exported.provider) as orders:
        await orders.create("order/1", trace=SENT)
        await orders.send("order/1", "pay", trace=SENT)
        await _reached(orders, clock, "order/1", "waiting", 10)

    first, second = exported.named("interlock.effect")
    assert [1, 2] == [_attributes(each)["interlock.attempt"] for each in (first, second)]
    assert ["ConnectionError", None] == [_attributes(each).get("error.type") for each in (first, second)]
    assert [api_traceparent(each) for each in (first, second)] == [each.trace for each in calls]
    assert first.parent == second.parent
    assert "CLIENT" == first.kind.name
    assert "4111" not in "".join(each.to_json() for each in exported.spans)


async def test_a_handler_runs_inside_the_span_of_its_attempt(exported: Exported) -> None:
    order = interlock.loads(ORDER)
    tracer, seen = exported.provider.get_tracer("shop"), list[str]()

    @order.handler("payment.charge")
    def charge(attempt: interlock.Attempt) -> None:  # in a thread
        with tracer.start_as_current_span("POST"):
            seen.append(attempt.key)

    clock = VirtualClock(1_000_000)
    charts = [order, interlock.loads(PARCEL)]
    async with interlock.open("memory:", charts=charts, clock=clock, tracer_provider=exported.provider) as orders:
        await orders.create("order/1", trace=SENT)
        await orders.send("order/1", "pay", trace=SENT)
        await _reached(orders, clock, "order/1", "waiting", 0)

    assert ("POST", "interlock.effect") in exported.tree()


async def test_a_send_inside_a_span_of_the_program_is_below_it(exported: Exported) -> None:
    tracer = exported.provider.get_tracer("shop")
    charts = [_order([]), interlock.loads(PARCEL)]
    async with interlock.open("memory:", charts=charts, work=False, tracer_provider=exported.provider) as orders:
        with tracer.start_as_current_span("GET /"):
            await orders.create("order/1")
        await orders.send("order/1", "look")

    assert [("interlock.create", "GET /"), ("interlock.send", "interlock.create")] == [
        each for each in exported.tree() if each[0] in ("interlock.create", "interlock.send")
    ]
    assert 1 == len(exported.traces())


async def test_a_request_with_another_trace_keeps_it_and_links_to_the_creation(exported: Exported) -> None:
    charts = [_order([]), interlock.loads(PARCEL)]
    async with interlock.open("memory:", charts=charts, work=False, tracer_provider=exported.provider) as orders:
        await orders.create("order/1", trace=SENT)
        await orders.send("order/1", "look", trace=OTHER)
        created = (await orders.journal("order/1"))[0]

    (send,) = exported.named("interlock.send")
    assert trace_id(OTHER) == f"{send.context.trace_id:032x}"
    assert [trace_id(created.trace)] == [f"{each.context.trace_id:032x}" for each in send.links]
    assert TRACE == _attributes(send)["interlock.life"]


async def test_after_a_day_a_new_trace_starts_and_links_to_the_old_one(exported: Exported) -> None:
    chart = interlock.loads("""
interlock: 1
kind: reminder
states:
  waiting: {after: {20h: {target: waiting, reenter: true}}}
""")
    clock = VirtualClock(1_000_000)
    async with interlock.open("memory:", charts=[chart], clock=clock, tracer_provider=exported.provider) as reminders:
        await reminders.create("reminder/1", trace=SENT)
        for version in (2, 3, 4):
            await clock.advance(20 * 3_600_000)
            await eventually(partial(_is_at, reminders, "reminder/1", version))

    timers = exported.named("interlock.timer")
    ids = [f"{each.context.trace_id:032x}" for each in timers]
    assert [TRACE, True, True] == [ids[0], ids[1] != TRACE, ids[2] == ids[1]]  # 20 hours, 40 hours, 20 hours of the new
    assert [[], [TRACE], []] == [[f"{one.context.trace_id:032x}" for one in each.links] for each in timers]


async def test_a_send_after_a_day_starts_a_trace_that_links_to_the_creation(exported: Exported) -> None:
    clock = VirtualClock(1_000_000)
    charts = [_order([]), interlock.loads(PARCEL)]
    async with interlock.open(
        "memory:", charts=charts, clock=clock, work=False, tracer_provider=exported.provider
    ) as orders:
        await orders.create("order/1", trace=SENT)
        await clock.advance(DAY_MS - 1)
        await orders.send("order/1", "look")
        await clock.advance(1)
        await orders.send("order/1", "look")

    first, second = exported.named("interlock.send")
    assert (TRACE, True) == (f"{first.context.trace_id:032x}", f"{second.context.trace_id:032x}" != TRACE)
    assert [TRACE] == [f"{each.context.trace_id:032x}" for each in second.links]


async def test_a_life_that_is_not_sampled_stays_so() -> None:
    exported = Exported(sampler=ParentBased(ALWAYS_OFF))
    clock, calls = VirtualClock(1_000_000), list[interlock.Attempt]()
    charts = [_order(calls, failing=0), interlock.loads(PARCEL)]
    async with interlock.open("memory:", charts=charts, clock=clock, tracer_provider=exported.provider) as orders:
        await orders.create("order/1")
        await orders.send("order/1", "pay")
        await _reached(orders, clock, "order/1", "waiting", 0)
        traces = [each.trace or "" for each in await orders.journal("order/1")]

    assert [] == exported.spans
    assert ["00"] * 3 == [each[-2:] for each in traces]
    assert 1 == len({trace_id(each) for each in traces})


async def test_a_hidden_step_and_its_effects_are_not_exported(exported: Exported) -> None:
    account, traces = interlock.loads(ACCOUNT), list[str | None]()

    @account.handler("police.report")
    async def report(attempt: interlock.Attempt) -> None:
        traces.append(attempt.trace)

    owner, officer = {"id": "ada", "roles": ["customer"]}, {"id": "eve", "roles": ["police"]}
    async with interlock.open("memory:", charts=[account], tracer_provider=exported.provider) as accounts:
        await accounts.create("account/1", trace=SENT, principal=owner)
        await accounts.send("account/1", "touch", trace=SENT, principal=owner)
        shown = len(exported.spans)
        await accounts.send("account/1", "freeze", trace=SENT, principal=officer)
        await eventually(lambda: traces)
        await eventually(lambda: _is_at(accounts, "account/1", 4))
        await accounts.send("account/1", "touch", trace=SENT, principal=owner)

    assert 0 < shown == len(exported.spans)
    assert [None] == traces
    assert "freeze" not in "".join(each.to_json() for each in exported.spans)


async def test_a_trace_of_the_senders_own_form_is_passed_on_and_has_no_spans(exported: Exported) -> None:
    clock, calls = VirtualClock(1_000_000), list[interlock.Attempt]()
    charts = [_order(calls, failing=0), interlock.loads(PARCEL)]
    async with interlock.open("memory:", charts=charts, clock=clock, tracer_provider=exported.provider) as orders:
        await orders.create("order/1", trace="request-77")
        await orders.send("order/1", "pay", trace="request-77")
        await _reached(orders, clock, "order/1", "waiting", 0)
        entries = await orders.journal("order/1")

    assert ["request-77"] * 3 == [each.trace for each in entries]
    assert ["request-77"] == [each.trace for each in calls]
    assert [] == exported.spans


async def test_without_a_provider_the_trace_of_the_sender_is_passed_on() -> None:
    clock, calls = VirtualClock(1_000_000), list[interlock.Attempt]()
    charts = [_order(calls), interlock.loads(PARCEL)]
    async with interlock.open("memory:", charts=charts, clock=clock) as orders:
        await orders.create("order/1")
        await orders.send("order/1", "pay", trace=SENT)
        for state, wait_ms in (("waiting", 10), ("packing", 3_600_000), ("shipped", 1_000)):
            await _reached(orders, clock, "order/1", state, wait_ms)
        entries = await orders.journal("order/1")
        child = (await _entities(orders, "parcel"))[0]
        child_entries = await orders.journal(child)

    assert [None, *[SENT] * 4] == [each.trace for each in entries]
    assert [SENT, SENT] == [each.trace for each in child_entries]
    assert [SENT, SENT] == [each.trace for each in calls]


async def test_a_refused_step_and_an_error_end_their_spans(exported: Exported) -> None:
    charts = [_order([]), interlock.loads(PARCEL)]
    async with interlock.open("memory:", charts=charts, work=False, tracer_provider=exported.provider) as orders:
        await orders.create("order/1", trace=SENT)
        with pytest.raises(interlock.ConflictError):
            await orders.send("order/1", "look", expected=7, trace=SENT)
        with pytest.raises(interlock.NotFoundError):
            await orders.send("order/2", "look", trace=SENT)

    found = [_attributes(each).get("error.type") for each in exported.named("interlock.send")]
    assert ["conflict.expected", "entity.unknown"] == found


def test_a_provider_is_used_only_if_the_program_has_installed_one() -> None:
    assert installed_tracer() is None  # the API is loaded here, and has no provider
    with pytest.raises(UsageError, match="expected a tracer provider, got 'jaeger'"):
        tracer_of("jaeger")  # type: ignore[arg-type]  # what a program may do


def test_a_program_without_opentelemetry_imports_nothing_of_it() -> None:
    code = (
        "import sys, interlock\n"
        "chart = interlock.loads('interlock: 1\\nkind: a\\nstates: {b: {}}')\n"
        "with interlock.connect('memory:', charts=[chart]) as runtime: runtime.create('a/1')\n"
        "print([each for each in sys.modules if each.startswith('opentelemetry') or 'traced' in each])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=PATIENCE_SECONDS
    )

    assert "[]\n" == ended.stdout


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "t",
        SENT.upper(),
        SENT + "-1",
        "ff" + SENT[2:],
        "00-" + "0" * 32 + SENT[35:],
        SENT[:36] + "0" * 16 + "-01",
    ],
)
def test_an_invalid_traceparent_is_not_one(text: str | None) -> None:
    assert not is_traceparent(text)


def test_the_cause_of_a_row_of_another_release_is_ignored() -> None:
    cause = Cause(SENT, 7)
    assert cause == cause_of({CAUSE: cause_body(cause)})
    assert (None, None, None) == (cause_of({CAUSE: 3}), cause_of({}), cause_of(7))


def api_traceparent(span: ReadableSpan) -> str:
    """The identity of a span."""
    return f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}-01"


def _attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


async def _reached(orders: interlock.Runtime, clock: VirtualClock, entity: str, state: str, wait_ms: int) -> None:
    """Advance the clock until an entity is in a state."""

    async def is_there() -> bool:
        await clock.advance(wait_ms)
        return (await orders.state(entity)).configuration == (state,)

    await eventually(is_there, state)


async def _is_at(runtime: interlock.Runtime, entity: str, version: int) -> bool:
    return (await runtime.state(entity)).version == version


async def _entities(runtime: interlock.Runtime, kind: str) -> list[str]:
    return [each.entity for each in (await runtime.list(EntityQuery(kind=kind))).rows]


async def test_messages_have_the_trace_of_their_step_and_say_for_whom(exported: Exported) -> None:
    bus, clock = MemoryBus(), VirtualClock(1_000_000)
    bus_messages = bus.incoming()
    charts = [_order([], failing=0), interlock.loads(PARCEL)]
    async with interlock.open(
        "memory:", charts=charts, clock=clock, bus=bus, tracer_provider=exported.provider
    ) as orders:
        await orders.create("order/1", trace=SENT)
        await orders.send("order/1", "pay", trace=SENT, principal={"id": "ada", "roles": []})
        found = [decode_message((await anext(bus_messages)).body) for _ in range(3)]
        entries = await orders.journal("order/1")

    assert [each.trace for each in entries[:3]] == [each.trace for each in found]
    assert [(None, None), ("ada", None), (None, "ada")] == [(each.principal, each.originator) for each in found]


async def test_another_process_continues_the_trace_of_a_life(exported: Exported, tmp_path: Path) -> None:
    url, charts = f"sqlite:///{tmp_path}/orders.db", [_order([]), interlock.loads(PARCEL)]
    async with interlock.open(url, charts=charts, work=False, tracer_provider=exported.provider) as orders:
        await orders.create("order/1", trace=SENT)
    async with interlock.open(url, charts=charts, work=False, tracer_provider=exported.provider) as orders:
        await orders.send("order/1", "look")
        await orders.send("order/1", "look")

    assert {TRACE} == exported.traces()
    assert [("interlock.send", "interlock.create")] * 2 == [
        each for each in exported.tree() if each[0] == "interlock.send"
    ]


def test_a_joined_send_has_spans(exported: Exported, tmp_path: Path) -> None:
    url, charts = f"sqlite:///{tmp_path}/orders.db", [_order([]), interlock.loads(PARCEL)]
    with interlock.connect(url, charts=charts, tracer_provider=exported.provider) as orders:
        orders.create("order/1", trace=SENT)
        connection = sqlite3.connect(tmp_path / "orders.db", isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        orders.join(connection).send("order/1", "look", trace=SENT)
        connection.execute("COMMIT")
        connection.close()
        entry = list(orders.journal("order/1"))[-1]

    (step,) = exported.named("interlock.step")
    assert api_traceparent(step) == entry.trace


async def test_timers_that_are_due_together_keep_their_causes(exported: Exported) -> None:
    chart = interlock.loads("""
interlock: 1
kind: pair
states:
  both:
    type: parallel
    states:
      left: {initial: waiting, states: {waiting: {after: {1h: rung}}, rung: {}}}
      right: {initial: waiting, states: {waiting: {after: {1h: rung}}, rung: {}}}
""")
    clock = VirtualClock(1_000_000)
    async with interlock.open("memory:", charts=[chart], clock=clock, tracer_provider=exported.provider) as pairs:
        await pairs.create("pair/1", trace=SENT)
        await clock.advance(3_600_000)
        await eventually(partial(_is_at, pairs, "pair/1", 3))

    assert [("interlock.timer", "interlock.create")] * 2 == [
        each for each in exported.tree() if each[0] == "interlock.timer"
    ]
