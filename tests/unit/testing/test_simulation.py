"""The simulation: delivery, timers, children, handlers and failures, in one fixed order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import interlock
from interlock.assemble.charts import loads
from interlock.compiler.build import compile_document
from interlock.definition.yaml.format import FORMAT
from interlock.effects.handlers import Attempt
from interlock.errors import NotFoundError, RejectedError, UsageError
from interlock.kernel.step import Kernel
from interlock.model.limits import CHILD_DEPTH_MAX
from interlock.testing.simulation import Simulation


def kernel(text: str, kind: str = "k", **fields: Any) -> Kernel:
    """The kernel of a definition, written without its head."""
    reading = FORMAT.read(f"interlock: 1\nkind: {kind}\nunhandled: ignore\n{text}", source="k.yaml")
    assert reading.document is not None, reading.diagnostics
    compilation = compile_document(reading.document)
    assert compilation.chart is not None, [str(each) for each in compilation.diagnostics]
    return Kernel(compilation.chart, **fields)


def steps(simulation: Simulation, entity: str | None = None) -> list[str]:
    """What happened, as `entity event => states`."""
    return [
        f"{each.entity} {each.event.name if each.event else '+'} => {','.join(each.step.snapshot.configuration)}"
        for each in simulation.trace
        if entity in (None, each.entity)
    ]


LIGHT = """
context: {n: {type: integer, default: 0}}
states:
  red: {on: {go: green}, entry: [{log: {label: colour, value: red}}]}
  green:
    entry:
      - {send: {event: shine}}
      - {assign: {n: "= context.n + 1"}}
      - {emit: {type: light.green, data: {n: "= context.n"}}}
    on: {shine: bright}
  bright: {after: {5s: red, 2s: {actions: [flash]}}}
"""


def test_an_event_is_one_step_and_its_effects_wait() -> None:
    simulation = Simulation(kernel(LIGHT), time_ms=100)
    created = simulation.create("k/1", {"n": 4})
    step = simulation.send("k/1", "go")

    assert ("red",) == created.snapshot.configuration
    assert ("applied", ("green",)) == (step.outcome, step.snapshot.configuration)
    assert ["k/1 + => red", "k/1 go => green"] == steps(simulation)

    simulation.settle()

    assert ("bright",) == simulation.snapshots["k/1"].configuration
    assert [("k/1", "colour", "red")] == simulation.logs
    assert [("k/1", "light.green", {"n": 5})] == simulation.messages
    assert 100 == simulation.time_ms


def test_timers_fire_in_order_of_due_time_when_the_clock_moves() -> None:
    simulation = Simulation(kernel(LIGHT), handlers={"flash": lambda attempt: None})
    simulation.create("k/1")
    simulation.send("k/1", "go")
    simulation.advance(10_000)

    assert [0, 0, 0, 2_000, 5_000] == [each.time_ms for each in simulation.trace]
    assert "k/1 after.5s.bright => red" == steps(simulation)[-1]
    assert 10_000 == simulation.time_ms


def test_a_cancelled_timer_does_not_fire() -> None:
    simulation = Simulation(kernel("states: {a: {after: {5s: c}, on: {go: b}}, b: {}, c: {}}"))
    simulation.create("k/1")
    simulation.send("k/1", "go")
    simulation.advance(6_000)

    assert ["k/1 + => a", "k/1 go => b"] == steps(simulation)


def test_equal_due_times_fire_in_the_order_set_across_entities() -> None:
    simulation = Simulation(kernel("states: {a: {after: {5s: b}}, b: {type: final}}"))
    for name in ("k/2", "k/1", "k/3"):
        simulation.create(name)
    simulation.run()

    assert ["k/2", "k/1", "k/3"] == [each.entity for each in simulation.trace[3:]]
    assert 5_000 == simulation.time_ms


def test_run_stops_at_its_limit() -> None:
    simulation = Simulation(kernel("states: {a: {after: {1s: {target: a, reenter: true}}}}"))
    simulation.create("k/1")
    simulation.run(10_500)

    assert 11 == len(simulation.trace)


@pytest.mark.slow
def test_entities_that_keep_each_other_busy_are_stopped() -> None:
    simulation = Simulation(kernel("states: {a: {entry: [{send: {event: x}}], on: {x: {target: a, reenter: true}}}}"))
    simulation.create("k/1")

    with pytest.raises(UsageError, match="never settle"):
        simulation.settle()


def test_entities_send_to_each_other_by_id() -> None:
    simulation = Simulation(
        kernel(
            "states: {a: {on: {go: {actions: [{send: {event: hi, to: other/1, id: one, data: {x: 1}}}, "
            "{send: {event: hi, to: other/2, id: two}}]}, error.communication: b}}, b: {}}"
        ),
        kernel("states: {a: {on: {hi: b}}, b: {}}", kind="other"),
    )
    simulation.create("k/1")
    simulation.create("other/1")
    simulation.send("k/1", "go", key="mine")
    simulation.settle()
    hi, error = (each.event for each in simulation.trace[-2:])

    assert hi is not None
    assert ("hi", {"x": 1}, "#_scxml_k/1", "one") == (hi.name, hi.data, hi.origin, hi.sendid)
    assert error is not None
    assert ("error.communication", "two", "platform") == (error.name, error.sendid, error.type)
    assert ("b",) == simulation.snapshots["k/1"].configuration == simulation.snapshots["other/1"].configuration


PARENT = """
context: {got: {type: any}}
states:
  a:
    invoke:
      {id: child, type: chart, src: other, input: {n: 3}, autoforward: true,
       onDone: {target: b, actions: [{assign: {got: "= event.data"}}]}}
    on:
      leave: c
      ask: {actions: [{send: {event: ask, to: child}}]}
      told: {actions: [{assign: {got: "= event.data"}}]}
  b: {}
  c: {}
"""
CHILD = """
context: {n: {type: integer, required: true}}
states:
  x:
    on:
      ask: {actions: [{send: {event: told, to: parent, data: "= context.n"}}]}
      finish: y
      seen: {actions: [{assign: {n: 9}}]}
    exit: [{send: {event: told, to: parent, data: left}}]
  y: {type: final, output: {n: "= context.n"}}
"""


def family() -> Simulation:
    """A parent with its child, settled."""
    simulation = Simulation(kernel(PARENT), kernel(CHILD, kind="other"))
    simulation.create("k/1")
    simulation.settle()
    return simulation


def test_an_invoked_chart_is_an_entity_of_its_own() -> None:
    simulation = family()
    child = simulation.children("k/1")["child"]

    assert child.startswith("other/child-")
    assert {"child": child} == family().children("k/1")
    assert {"n": 3} == simulation.snapshots[child].context
    parent = simulation.snapshots[child].parent
    assert parent is not None
    assert ("k/1", "child") == (parent.entity, parent.invokeid)


def test_parent_and_child_talk() -> None:
    simulation = family()
    child = simulation.children("k/1")["child"]
    simulation.send("k/1", "seen")
    simulation.send("k/1", "ask")
    simulation.settle()
    told = [
        each.event for each in simulation.trace if each.event and each.event.name == "told" and each.entity == "k/1"
    ]

    assert 9 == simulation.snapshots["k/1"].context["got"]
    assert [("child", f"#_scxml_{child}")] * 2 == [(each.invokeid, each.origin) for each in told]


def test_the_result_of_a_child_comes_last() -> None:
    simulation = family()
    simulation.send(simulation.children("k/1")["child"], "finish")
    simulation.settle()

    assert ["told", "done.invoke.child"] == [
        each.event.name for each in simulation.trace if each.event and each.entity == "k/1"
    ]
    assert {"n": 3} == simulation.snapshots["k/1"].context["got"]
    assert {} == simulation.children("k/1")


def test_a_child_is_cancelled_when_its_state_is_left() -> None:
    simulation = family()
    child = simulation.children("k/1")["child"]
    simulation.send("k/1", "leave")
    simulation.settle()

    assert "cancelled" == simulation.snapshots[child].ended
    assert ("ignored", "invoke_gone") == (simulation.trace[-1].step.outcome, simulation.trace[-1].step.reason)


@pytest.mark.parametrize(
    ("invoke", "code"),
    [
        ("{id: i, type: chart, src: other, input: {m: 3}, onError: e}", "context.unknown"),
        ("{id: i, type: chart, src: other, input: 3, onError: e}", "invoke.input"),
        ("{id: i, type: chart, src: self, onError: e}", "invoke.depth"),
        ("{id: i, src: fails, onError: e}", "KeyError"),
        ("{id: i, src: refuses, onError: e}", "rejected"),
        ("{id: i, src: nobody, timeout: 5s, onError: e}", "timeout"),
        ("{id: i, type: chart, src: slow, timeout: 5s, onError: e}", "timeout"),
    ],
)
def test_an_invoke_that_fails_is_an_error_event(invoke: str, code: str) -> None:
    def fails(attempt: Attempt) -> object:
        raise KeyError(attempt.key)

    def refuses(attempt: Attempt) -> object:
        raise RejectedError("no")

    text = f"context: {{code: {{type: any}}}}\nstates: {{a: {{invoke: {invoke}}}, e: {{}}}}"
    text = text.replace("onError: e", 'onError: {target: e, actions: [{assign: {code: "= event.data.code"}}]}')
    main = kernel(text)
    simulation = Simulation(
        main,
        handlers={"fails": fails, "refuses": refuses},
        charts={"other": kernel(CHILD, kind="other"), "self": main, "slow": kernel("states: {a: {}}", kind="slow")},
    )
    simulation.create("k/1")
    simulation.run()
    ended = max(simulation.snapshots.values(), key=lambda each: each.configuration == ("e",))

    assert code == ended.context["code"]
    assert len(simulation.snapshots) <= CHILD_DEPTH_MAX + 1


def test_a_handler_completes_an_invoke() -> None:
    seen: list[Attempt] = []

    def handler(attempt: Attempt) -> object:
        seen.append(attempt)
        return {"id": 7}

    text = "states: {a: {invoke: {id: i, src: f, input: {x: 1}, onDone: b}}, b: {}}"
    simulation = Simulation(kernel(text), handlers={"f": handler})
    simulation.create("k/1")
    simulation.settle()

    assert [("k/1/1/0", {"x": 1})] == [(each.key, each.input) for each in seen]
    assert ("b",) == simulation.snapshots["k/1"].configuration


def test_an_effect_without_a_handler_is_pending_and_can_be_completed() -> None:
    text = (
        "states: {a: {entry: [note], invoke: {id: i, src: f, onDone: b, onError: c}, on: {error.communication: c}}, "
        "b: {}, c: {}}"
    )
    simulation = Simulation(kernel(text))
    for name in ("k/1", "k/2", "k/3", "k/4"):
        simulation.create(name)
    simulation.settle()

    assert ["k/1/1/0", "k/1/1/1"] == [effect.key for _, effect in simulation.pending[:2]]

    simulation.complete("k/1/1/0")
    simulation.complete("k/1/1/1", {"x": 1})
    simulation.fail("k/2/1/1", "broken", "no luck")
    simulation.fail("k/3/1/0")

    assert [("b",), ("c",), ("c",), ("a",)] == [each.configuration for each in simulation.snapshots.values()]
    with pytest.raises(NotFoundError):
        simulation.complete("k/1/1/1")


def test_leaving_the_state_cancels_pending_effects() -> None:
    simulation = Simulation(kernel("states: {a: {invoke: {id: i, src: f}, on: {go: b}}, b: {}}"))
    simulation.create("k/1")
    simulation.settle()
    simulation.send("k/1", "go")
    simulation.settle()

    assert [] == simulation.pending


def test_a_chart_may_be_written_in_place_or_computed() -> None:
    inline = "{interlock: 1, kind: in, states: {x: {always: {target: y, guard: fine}}, y: {type: final}}}"
    text = (
        f"states: {{a: {{invoke: {{id: i, type: chart, src: {inline}, onDone: b}}}}, "
        "b: {invoke: {id: j, type: chart, src: \"= 'that'\", onDone: c}}, c: {on: {go: a}}}"
    )
    made: list[str] = []

    def compiled(src: str) -> Kernel:
        made.append(src)
        return kernel("states: {z: {type: final}}", kind="that")

    main = kernel(text, guards={"fine": lambda context, event: True})
    simulation = Simulation(main, compile=compiled)
    simulation.create("k/1")
    simulation.settle()
    simulation.send("k/1", "go")
    simulation.settle()

    assert ("c",) == simulation.snapshots["k/1"].configuration
    assert ["that", "that"] == made


def test_an_invoke_of_an_unknown_chart_is_pending() -> None:
    simulation = Simulation(kernel("states: {a: {invoke: {id: i, type: chart, src: unknown}}}"))
    simulation.create("k/1")
    simulation.settle()

    assert ["unknown"] == [effect.name for _, effect in simulation.pending]
    assert {} == simulation.children("k/1")


def test_a_child_that_fails_is_an_error_for_its_parent() -> None:
    child = kernel("errors: raise\nstates: {x: {invoke: {id: i, src: f}}}", kind="other")
    simulation = Simulation(kernel("states: {a: {invoke: {id: c, type: chart, src: other, onError: b}}, b: {}}"), child)
    simulation.create("k/1")
    simulation.settle()
    simulation.fail("other/c-" + simulation.children("k/1")["c"].rpartition("-")[2] + "/1/0")
    simulation.settle()

    assert ("b",) == simulation.snapshots["k/1"].configuration


def test_a_failed_call_is_an_event_of_its_entity() -> None:
    def breaks(attempt: Attempt) -> object:
        raise OSError("down")

    simulation = Simulation(
        kernel("states: {a: {entry: [note], on: {error.communication: b}}, b: {}}"), handlers={"note": breaks}
    )
    simulation.create("k/1")
    simulation.run()
    event = simulation.trace[-1].event

    assert event is not None
    assert {"effect": "note", "key": "k/1/1/0", "code": "OSError"} == event.data


def test_scxml_passes_over_input_that_the_child_does_not_declare() -> None:
    child = kernel("dialect: scxml\ncontext: {n: {type: any}}\nstates: {x: {}}", kind="other")
    simulation = Simulation(
        kernel("states: {a: {invoke: {id: c, type: chart, src: other, input: {n: 1, m: 2}}}}"), child
    )
    simulation.create("k/1")
    simulation.settle()

    assert {"n": 1} == simulation.snapshots[simulation.children("k/1")["c"]].context


def test_the_chart_of_an_entity_is_found_by_its_kind() -> None:
    simulation = Simulation(kernel("states: {a: {}}"), kernel("states: {b: {}}", kind="other"))

    assert ("a",) == simulation.create("anything").snapshot.configuration
    assert ("b",) == simulation.create("other/1").snapshot.configuration
    assert ("b",) == simulation.create("x", kind="other").snapshot.configuration


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda simulation: simulation.create("k/1"), UsageError),
        (lambda simulation: simulation.create("x", kind="nobody"), NotFoundError),
        (lambda simulation: Simulation().create("x"), NotFoundError),
        (lambda simulation: simulation.send("k/9", "go"), NotFoundError),
        (lambda simulation: simulation.advance(-1), UsageError),
        (lambda simulation: simulation.fail("nothing"), NotFoundError),
    ],
)
def test_wrong_calls_are_refused(call: Any, error: type[Exception]) -> None:
    simulation = Simulation(kernel("states: {a: {}}"))
    simulation.create("k/1")

    with pytest.raises(error):
        call(simulation)


def test_a_coroutine_handler_runs_to_completion() -> None:
    chart = loads(
        """
        interlock: 1
        kind: job
        context: {n: {type: integer, default: 0}}
        initial: a
        states:
          a: {invoke: {id: w, src: work, onDone: {target: b, actions: [{assign: {n: "= event.data"}}]}}}
          b: {}
        """
    )

    @chart.handler("work")
    async def work(attempt: Attempt) -> int:
        return 7

    world = Simulation(chart)
    world.create("job/1")
    world.settle()

    assert 7 == world.snapshots["job/1"].context["n"]


async def test_a_coroutine_handler_in_a_running_loop_is_refused() -> None:
    chart = loads("interlock: 1\nkind: job\nstates: {a: {entry: [work], on: {error.communication: b}}, b: {}}")

    @chart.handler("work")
    async def work(attempt: Attempt) -> None:
        return None

    world = Simulation(chart)
    world.create("job/1")
    world.settle()

    assert ("b",) == world.snapshots["job/1"].configuration


@pytest.mark.parametrize(
    ("error", "done"), [(RejectedError("no", code="card.unknown"), "no"), (ConnectionError("gone"), "unknown")]
)
def test_a_failure_has_whether_the_effect_may_have_happened(error: Exception, done: str) -> None:
    def fails(attempt: Attempt) -> object:
        raise error

    text = "states: {a: {invoke: {id: i, src: f, onError: b}}, b: {}}"
    simulation = Simulation(kernel(text), handlers={"f": fails})
    simulation.create("k/1")
    simulation.settle()
    event = simulation.trace[-1].event

    assert event is not None
    assert ("error.invoke.i", done) == (event.name, event.data["done"])


def test_a_result_that_cannot_be_stored_is_an_error() -> None:
    text = "states: {a: {invoke: {id: i, src: f, onDone: c, onError: b}}, b: {}, c: {}}"
    simulation = Simulation(kernel(text), handlers={"f": lambda attempt: object()})
    simulation.create("k/1")
    simulation.settle()
    event = simulation.trace[-1].event

    assert event is not None
    assert (("b",), "result.malformed") == (simulation.snapshots["k/1"].configuration, event.data["code"])


GUARDED = """
interlock: 1
kind: ticket
context: {owner: {type: string, default: ada}}
events:
  ticket.closed: {roles: [support]}
  ticket.noted: {roles: [anyone], permit: "= principal.id == context.owner"}
initial: open
states:
  open: {on: {ticket.closed: closed, ticket.noted: noted}}
  noted: {}
  closed: {type: final}
"""


@pytest.mark.parametrize(
    ("event", "principal", "outcome"),
    [
        ("ticket.closed", None, "denied"),
        ("ticket.closed", {"id": "bob", "roles": ["sales"]}, "denied"),
        ("ticket.closed", {"id": "bob", "roles": ["support"]}, "applied"),
        ("ticket.noted", {"id": "bob", "roles": ["anyone"]}, "denied"),
        ("ticket.noted", {"id": "ada", "roles": ["anyone"]}, "applied"),
    ],
)
def test_roles_and_permits_apply_to_what_the_test_sends(event: str, principal: Any, outcome: str) -> None:
    world = Simulation(interlock.loads(GUARDED))
    world.create("ticket/1")
    step = world.send("ticket/1", event, principal=principal)

    assert (outcome, outcome) == (step.outcome, world.trace[-1].step.outcome)
    assert (1 if outcome == "denied" else 2) == world.snapshots["ticket/1"].version


def test_roles_need_not_be_checked() -> None:
    world = Simulation(interlock.loads(GUARDED), check_roles=False)
    world.create("ticket/1")

    assert "applied" == world.send("ticket/1", "ticket.closed").outcome


RETRIED = (
    "states: {a: {invoke: {id: i, src: f, retry: {max: 2, backoff: 10s..20s, jitter: none}, onDone: b, onError: c}}, "
    "b: {}, c: {}}"
)


def test_a_handler_is_called_again_by_the_retry_policy_of_the_chart() -> None:
    attempts: list[tuple[int, int, str]] = []

    def fails(attempt: Attempt) -> object:
        attempts.append((world.time_ms, attempt.number, attempt.key))
        raise OSError("down")

    world = Simulation(kernel(RETRIED), handlers={"f": fails})
    world.create("k/1")
    world.run()
    event = world.trace[-1].event

    assert [(0, 1, "k/1/1/0"), (10_000, 2, "k/1/1/0"), (30_000, 3, "k/1/1/0")] == attempts
    assert event is not None
    assert (3, ("c",)) == (event.data["attempts"], world.snapshots["k/1"].configuration)


def test_a_rejection_is_not_tried_again() -> None:
    def refuses(attempt: Attempt) -> object:
        raise RejectedError("no such card")

    world = Simulation(kernel(RETRIED), handlers={"f": refuses})
    world.create("k/1")
    world.settle()

    assert ("c",) == world.snapshots["k/1"].configuration


def test_a_pending_invoke_that_times_out_is_pending_again_after_its_backoff() -> None:
    world = Simulation(kernel(RETRIED.replace("src: f,", "src: f, timeout: 5s,")))
    world.create("k/1")
    world.advance(5_000)
    assert [] == world.pending
    world.advance(10_000)
    ((_, effect),) = world.pending
    world.complete(effect.key)

    assert ("b",) == world.snapshots["k/1"].configuration


def test_several_charts_bring_their_handlers_and_defaults() -> None:
    text = "interlock: 1\nkind: x\nstates: {a: {invoke: {id: i, src: fx, onDone: b, onError: c}}, b: {}, c: {}}"
    first, second = interlock.loads(text), interlock.loads(text.replace("x", "y"))
    answers: Iterator[object] = iter([OSError("down"), 1])

    @first.handler("fx")
    def flaky(attempt: Attempt) -> object:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    second.handler("fy")(lambda attempt: None)
    first.handler_defaults = interlock.HandlerDefaults(retry={"max": 1, "backoff": "1s"})
    world = Simulation(first, charts={"y": second})
    world.create("x/1")
    world.create("y/1")
    world.run()

    assert (("b",), ("b",)) == (world.snapshots["x/1"].configuration, world.snapshots["y/1"].configuration)


def test_an_overdue_entity_gets_the_event_of_its_state_once() -> None:
    """As in a runtime: not before the time, not after it has left, and again when it comes back."""
    text = """
states:
  a: {expect: {within: 5s, then: late}, on: {late: {actions: [{log: "late"}]}, go: b}}
  b: {on: {back: a, late: c}}
  c: {}
"""
    simulation = Simulation(kernel(text))
    simulation.create("k/1")
    simulation.advance(5_000)
    assert ["k/1 + => a"] == steps(simulation)

    simulation.advance(60_000)
    simulation.send("k/1", "go")
    simulation.send("k/1", "back")
    simulation.advance(4_000)
    simulation.send("k/1", "go")
    simulation.advance(60_000)

    assert ["k/1 + => a", "k/1 late => a", "k/1 go => b", "k/1 back => a", "k/1 go => b"] == steps(simulation)
    assert ("b",) == simulation.snapshots["k/1"].configuration
