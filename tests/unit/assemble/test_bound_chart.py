"""BoundChart: registering functions, stepping, replaying, pickling."""

import pickle
from typing import Any

import pytest

from interlock.assemble.charts import BoundChart, done_event, failed_event, loads, timer_event
from interlock.effects.handlers import Attempt
from interlock.errors import DefinitionError, UsageError
from interlock.kernel.step import Kernel
from interlock.model.effect import Effect
from interlock.model.event import Event
from interlock.model.snapshot import Timer

TEXT = """
interlock: 1
kind: order
revision: "3"
context: {n: {type: integer, default: 0}}
states:
  open:
    on:
      pay: [{target: paid, guard: enough, actions: [send_receipt, {assign: count}]}, {actions: [{assign: {n: 1}}]}]
      wait: {actions: [{send: {event: due, id: t, delay: 5s, data: {x: 1}}}]}
  paid: {invoke: {id: job, src: ship}, on: {done.invoke.job: open, error.invoke.job: open}}
"""


def order() -> BoundChart:
    """Return the chart with its functions registered."""
    chart = loads(TEXT)
    chart.guard("enough")(lambda context, event: event.data >= 10)
    chart.assign("count")(lambda context, event: {"n": context["n"] + 1})
    return chart


def test_a_chart_lists_the_names_to_register() -> None:
    chart = loads(TEXT).chart

    assert (("enough",), ("count",), ("send_receipt", "ship")) == (chart.guards, chart.assigns, chart.handlers)


def test_a_decorator_returns_its_function() -> None:
    chart = loads(TEXT)

    @chart.guard("enough")
    def enough(context: Any, event: Any) -> bool:
        return bool(event.data)

    @chart.handler("send_receipt")
    def send_receipt(attempt: Attempt) -> None:
        return None

    assert enough({}, Event("e", 1))
    assert {"enough": enough} == chart.guards
    assert {"send_receipt": send_receipt} == chart.handlers


@pytest.mark.parametrize(
    ("what", "name", "hint"),
    [
        ("guard", "enogh", 'did you mean "enough"?'),
        ("guard", "q", "it uses enough; if another revision uses it: other_revisions=True"),
        ("assign", "counts", 'did you mean "count"?'),
        ("handler", "send_reciept", 'did you mean "send_receipt"?'),
        ("handler", "q", "it uses send_receipt, ship; if another revision uses it: other_revisions=True"),
        ("handler", "enough", "it uses send_receipt, ship; if another revision uses it: other_revisions=True"),
    ],
)
def test_a_name_that_the_chart_does_not_use_cannot_be_registered(what: str, name: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        getattr(loads(TEXT), what)(name)

    assert f"{what}.unknown" == caught.value.code
    assert hint == caught.value.hint


def test_nothing_can_be_registered_for_a_chart_without_functions() -> None:
    with pytest.raises(UsageError) as caught:
        loads("interlock: 1\nkind: x\nstates: {a: {}}").guard("enough")
    assert "guard.unknown" == caught.value.code


def test_a_function_that_only_another_revision_uses_is_registered_on_purpose() -> None:
    chart = order()
    chart.guard("rich", other_revisions=True)(lambda context, event: True)
    chart.assign("note", other_revisions=True)(lambda context, event: {"n": 1})
    chart.handler("refund", other_revisions=True)(lambda attempt: None)

    assert ({"enough", "rich"}, {"count", "note"}, {"refund"}) == (
        set(chart.guards),
        set(chart.assigns),
        set(chart.handlers),
    )
    assert ("open",) == chart.start(entity="order/1").snapshot.configuration


def test_a_chart_does_not_run_before_its_functions_are_registered() -> None:
    chart = loads(TEXT)
    with pytest.raises(UsageError) as caught:
        chart.start(entity="order/1")
    assert "register it with @chart.guard('enough')" == caught.value.hint

    chart.guard("enough")(lambda context, event: True)
    chart.assign("count")(lambda context, event: {})
    assert ("open",) == chart.start(entity="order/1").snapshot.configuration


def test_registering_again_takes_effect_at_once() -> None:
    chart = order()
    first = chart.start(entity="order/1").snapshot
    kernel = chart.kernel
    assert isinstance(kernel, Kernel)
    assert kernel is chart.kernel
    assert ("open",) == chart.step(first, "pay", 5).snapshot.configuration

    chart.guard("enough")(lambda context, event: True)
    assert kernel is not chart.kernel
    assert ("paid",) == chart.step(first, "pay", 5).snapshot.configuration


def test_a_name_with_data_is_an_event() -> None:
    chart = order()
    first = chart.start({"n": 4}, entity="order/1", time_ms=7).snapshot

    assert chart.step(first, Event("pay", 12, time_ms=9)) == chart.step(first, "pay", 12, time_ms=9)
    assert [5_009] == [timer.due_ms for timer in chart.step(first, "wait", time_ms=9).snapshot.timers]


@pytest.mark.parametrize("data", [{1}, float("inf"), {1: 2}, 2**300, object()])
def test_a_payload_must_be_json(data: object) -> None:
    chart = order()
    with pytest.raises(UsageError) as caught:
        chart.step(chart.start(entity="order/1").snapshot, "wait", data)

    assert "event.payload" == caught.value.code


def test_a_step_requires_a_snapshot() -> None:
    """The hint helps a caller who passes the whole `Step`."""
    chart = order()
    first = chart.start(entity="order/1")
    for given, hint in ((first, "pass its `.snapshot`"), ({}, None), (None, None)):
        with pytest.raises(UsageError) as caught:
            chart.step(given, "pay", 10)  # type: ignore[arg-type]  # the mistake in question
        assert ("snapshot.type", hint) == (caught.value.code, caught.value.hint)


def test_a_step_requires_an_event_or_a_name() -> None:
    chart = order()
    with pytest.raises(UsageError) as caught:
        chart.step(chart.start(entity="order/1").snapshot, 5)  # type: ignore[arg-type]  # the mistake in question

    assert "event.type" == caught.value.code


def test_the_kernel_is_called_directly_after_the_start() -> None:
    chart = order()
    first = chart.start(entity="order/1").snapshot
    step = chart.step
    assert step == chart.kernel.step

    chart.guard("enough")(lambda context, event: True)
    assert chart.step != step
    assert ("paid",) == chart.step(first, "pay", 5).snapshot.configuration
    assert chart.step == chart.kernel.step


def test_time_is_whole_milliseconds() -> None:
    chart = order()
    first = chart.start(entity="order/1").snapshot
    with pytest.raises(UsageError) as caught:
        chart.start(entity="order/1", time_ms=1.5)  # type: ignore[arg-type]  # the mistake in question
    assert ("time.type", "write int(time.time() * 1000)") == (caught.value.code, caught.value.hint)

    with pytest.raises(UsageError) as caught:
        chart.step(first, "wait", time_ms=1.5)  # type: ignore[arg-type]  # the mistake in question
    assert "time.type" == caught.value.code


def test_the_id_of_an_entity_is_a_string() -> None:
    with pytest.raises(UsageError) as caught:
        order().start(entity=5)  # type: ignore[arg-type]  # the mistake in question
    assert "entity.id" == caught.value.code


@pytest.mark.parametrize("what", ["guard", "assign", "handler"])
def test_a_decorator_requires_a_name(what: str) -> None:
    with pytest.raises(UsageError) as caught:
        getattr(order(), what)(print)

    assert f'write @chart.{what}("name")' == caught.value.hint


def test_a_second_handler_under_one_name_is_refused() -> None:
    chart = order()
    chart.handler("ship")(lambda attempt: "first")
    with pytest.raises(UsageError) as caught:
        chart.handler("ship")(lambda attempt: "second")

    assert ("handler.twice", True) == (caught.value.code, "ship" in caught.value.message)
    assert "first" == chart.handlers["ship"](None)


def test_the_same_definition_may_be_registered_again_and_a_removed_one_replaced() -> None:
    chart = order()
    for _ in range(2):
        chart.handler("ship")(lambda attempt: None)  # one definition, made twice: as when a module is imported again
    del chart.handlers["ship"]
    shipped = chart.handler("ship")(lambda attempt: "shipped")

    assert {"ship": shipped} == chart.handlers


def test_an_interactive_session_may_replace_a_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.ps1", ">>> ", raising=False)
    chart = order()
    chart.handler("ship")(lambda attempt: None)
    shipped = chart.handler("ship")(lambda attempt: "shipped")

    assert {"ship": shipped} == chart.handlers


def _no_attempt() -> None: ...


def test_a_refused_handler_leaves_no_trace() -> None:
    chart = order()
    with pytest.raises(UsageError):
        chart.handler("ship", cpu=True, heartbeat="3s")(_no_attempt)  # type: ignore[arg-type]  # it takes no attempt

    assert ({}, set(), {}) == (chart.handlers, chart.busy, chart.heartbeats)


def test_folding_is_stepping_without_effects() -> None:
    chart = order()
    first = chart.start(entity="order/1").snapshot
    stepped = chart.step(chart.step(first, "pay", 1).snapshot, "pay", 10).snapshot

    assert stepped == chart.fold(first, [Event("pay", 1), Event("pay", 10)])


def test_candidates_say_what_may_happen_now() -> None:
    chart = order()
    first = chart.start(entity="order/1").snapshot

    assert [("pay", False), ("pay", True), ("wait", True)] == [
        (each.event, each.accepted) for each in chart.candidates(first, Event("pay", 1))
    ]


def test_a_chart_tells_its_size() -> None:
    chart = loads(TEXT)

    assert f"<chart order 3 {chart.chart.revision}: 2 states, 5 transitions>" == repr(chart)


def test_a_chart_survives_pickling() -> None:
    """P9: it is data; the code and the plans stay behind."""
    chart = order()
    chart.step(chart.start(entity="order/1").snapshot, "pay", 10)
    copy = pickle.loads(pickle.dumps(chart.chart))

    assert chart.chart == copy
    kernel = Kernel(copy, guards=chart.guards, assigns=chart.assigns)
    first = chart.start(entity="order/1").snapshot
    assert chart.kernel.step(first, Event("pay", 10)) == kernel.step(first, Event("pay", 10))


def test_the_same_definition_gives_the_same_chart_and_another_does_not() -> None:
    other = TEXT.replace("n: {type: integer, default: 0}", "n: {default: 0, type: integer}")
    changed = TEXT.replace("default: 0", "default: 1")

    assert loads(TEXT).chart == loads(other).chart
    assert loads(TEXT).chart.revision != loads(changed).chart.revision


def test_an_error_of_a_definition_survives_pickling() -> None:
    with pytest.raises(DefinitionError) as caught:
        loads("interlock: 1\nkind: x\nstates: {a: {on: {e: nowhere}}}")
    copy = pickle.loads(pickle.dumps(caught.value))

    assert (str(caught.value), caught.value.diagnostics) == (str(copy), copy.diagnostics)


def test_a_firing_is_the_event_of_its_timer() -> None:
    """S37: id and source name the timer and the version that set it."""
    timer = Timer("t~3.1", "due", 5_000, 3, 1, "t", {"x": 1})

    assert Event("due", {"x": 1}, id="timer/t~3.1/3", time_ms=5_000, sendid="t", source="timer/t~3.1/3") == timer_event(
        timer
    )


def test_an_answer_brings_the_result_back() -> None:
    """S31: the entity takes it as the end of its invoke."""
    chart = order()
    step = chart.step(chart.start(entity="order/1").snapshot, "pay", 10)
    (effect,) = (each for each in step.effects if each.type == "invoke")
    event = done_event(effect, {"ok": True}, time_ms=9)

    assert (
        Event(
            "done.invoke.job", {"ok": True}, time_ms=9, type="platform", invokeid="job", source=f"invoke/{effect.key}"
        )
        == event
    )
    assert (("open",), ()) == (
        chart.step(step.snapshot, event).snapshot.configuration,
        chart.step(step.snapshot, event).snapshot.invokes,
    )


def test_a_failure_brings_the_error_back() -> None:
    """S31: with what a saga needs to know."""
    chart = order()
    step = chart.step(chart.start(entity="order/1").snapshot, "pay", 10)
    call, invoke = (each for each in step.effects if each.type in ("call", "invoke"))

    assert ("error.invoke.job", {"code": "c", "message": "m", "attempts": 1, "done": "no"}) == (
        failed_event(invoke, "c", "m", done="no").name,
        failed_event(invoke, "c", "m", done="no").data,
    )
    assert ("error.communication", {"effect": "send_receipt", "key": call.key, "code": "c"}) == (
        failed_event(call, "c").name,
        failed_event(call, "c").data,
    )


def test_an_effect_that_has_no_result_has_no_answer() -> None:
    with pytest.raises(UsageError) as caught:
        done_event(Effect("log", 0, "k", {}))

    assert "effect.result" == caught.value.code


def test_only_effects_have_results_and_only_timers_fire() -> None:
    with pytest.raises(UsageError) as no_result:
        done_event("job")  # type: ignore[arg-type]  # the mistake in question
    with pytest.raises(UsageError) as no_failure:
        failed_event("job", "c")  # type: ignore[arg-type]  # the mistake in question
    with pytest.raises(UsageError) as no_timer:
        timer_event(Effect("timer", 0, "k", {}))  # type: ignore[arg-type]  # the mistake in question

    codes = [caught.value.code for caught in (no_result, no_failure, no_timer)]
    assert ["effect.result", "effect.result", "timer.type"] == codes


def test_a_result_must_be_json() -> None:
    effect = Effect("invoke", 0, "k", {"id": "job"})
    with pytest.raises(UsageError) as caught:
        done_event(effect, {1})
    assert "event.payload" == caught.value.code
    with pytest.raises(UsageError) as caught:
        failed_event(effect, ValueError("x"))  # type: ignore[arg-type]  # the exception instead of its code
    assert "event.payload" == caught.value.code


def test_a_chart_that_has_run_can_be_pickled() -> None:
    """Without its kernel, which is made again (P9)."""
    chart = loads("interlock: 1\nkind: lamp\nstates: {off: {on: {press: on}}, on: {on: {press: off}}}")
    snapshot = chart.fold(chart.start(entity="lamp/1").snapshot, [Event("press")] * 301)
    chart.step(snapshot, "press")
    again = pickle.loads(pickle.dumps(chart))

    assert chart.chart == again.chart
    assert ("off",) == again.step(snapshot, "press").snapshot.configuration
