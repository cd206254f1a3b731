"""A saga is ordinary states: what its compiled form does, step by step, in the kernel."""

import pytest

from interlock.compiler.saga import saga_info
from interlock.errors import SourceLocation
from interlock.kernel.step import Kernel
from interlock.model.charts.chart import Invoke, LateCompensation
from interlock.model.document.document import Document, Saga, SagaCall, SagaStep, State, Transition
from interlock.model.document.field import Field
from interlock.model.event import Event
from interlock.model.snapshot import Invocation
from interlock.model.step import Step
from tests.unit.compiler.diagnostics import chart_of, compiled, errors, read, reported

TRIP = """\
context: {flight: {type: string, nullable: true}, hotel: {type: string, nullable: true}}
initial: idle
states:
  idle: {on: {go: trip}}
  trip:
    saga:
      compensation: reverse
      steps:
        - {id: flight, do: {src: flight.book, output: flight},
           compensate: {src: flight.cancel, input: {id: "= context.flight"}}}
        - {id: hotel, do: {src: hotel.book, output: hotel}, compensate: {src: hotel.cancel}}
        - {id: mail, do: {src: mail.send, input: {to: "= context.hotel"}}}
      onDone: booked
      onCompensated: refused
      onError: stuck
  booked: {on: {again: trip}}
  refused: {on: {again: trip}}
  stuck: {}
"""


class Life:
    """One entity of a chart, driven by the results of its handlers."""

    def __init__(self, text: str, **guards: bool) -> None:
        made = {name: (lambda *_, answer=answer: answer) for name, answer in guards.items()}
        self.kernel = Kernel(chart_of(text), guards=made)
        self.step: Step = self.kernel.start(entity="trip/1")

    def send(self, name: str) -> "Life":
        """An event from outside."""
        self.step = self.kernel.step(self.step.snapshot, Event(name))
        return self

    def done(self, data: object = None, *, of: str | None = None) -> "Life":
        """A good result of the handler that is asked, or of the one named."""
        return self._answer("done", data, of)

    def failed(self, done: str = "no", *, of: str | None = None) -> "Life":
        """A failure; `done` says whether the effect may have happened."""
        return self._answer("error", {"code": "x", "message": "", "attempts": 1, "done": done}, of)

    def _answer(self, what: str, data: object, of: str | None) -> "Life":
        asked = self.asked(of)
        name, source = f"{what}.invoke.{asked.id}", f"invoke/{asked.key}"
        event = Event(name, data, type="platform", invokeid=asked.id, source=source)
        self.step = self.kernel.step(self.step.snapshot, event)
        return self

    def asked(self, of: str | None = None) -> Invocation:
        """The invoke that is under way."""
        found = [each for each in self.step.snapshot.invokes if of is None or each.state.endswith(of)]

        assert len(found) == 1
        return found[0]

    @property
    def states(self) -> tuple[str, ...]:
        """The atomic states."""
        return self.step.snapshot.configuration

    @property
    def effects(self) -> list[tuple[str | None, object]]:
        """The handlers asked by the last step, with their input."""
        return [(each.name, each.input) for each in self.step.effects if each.type == "invoke"]

    def listed(self, state: str = "trip") -> list[str]:
        """The steps that count as done."""
        return [name for name, record in self.step.snapshot.context[f"saga_{state}"]["done"].items() if record]


def test_every_step_succeeds() -> None:
    """Steps are asked one after the other; results go to their fields; the end is `onDone`."""
    life = Life(TRIP).send("go")

    assert [("flight.book", None)] == life.effects
    assert [("hotel.book", None)] == life.done("F1").effects
    assert [("mail.send", {"to": "H1"})] == life.done("H1").effects
    assert ("booked",) == life.done().states
    assert ("F1", "H1") == (life.step.snapshot.context["flight"], life.step.snapshot.context["hotel"])
    assert ["flight", "hotel", "mail"] == life.listed()


def test_the_first_step_that_was_not_done_leaves_nothing_to_compensate() -> None:
    """An error with `done: no` turns back immediately."""
    life = Life(TRIP).send("go").failed("no")

    assert ("refused",) == life.states
    assert [] == life.listed()


def test_a_step_that_was_not_done_turns_back_to_the_one_before() -> None:
    life = Life(TRIP).send("go").done("F1").failed("no")

    assert ("trip.flight_compensation",) == life.states
    assert ["flight"] == life.listed()


def test_a_step_that_was_perhaps_done_is_compensated_too() -> None:
    """An error with `done: unknown` lists the step before turning back."""
    life = Life(TRIP).send("go").done("F1").failed("unknown")

    assert ("trip.hotel_compensation",) == life.states
    assert ["flight", "hotel"] == life.listed()


@pytest.mark.parametrize("data", [None, {}, {"done": None}])
def test_a_failure_that_does_not_say_counts_as_perhaps_done(data: object) -> None:
    """Whatever does not say `no` may have happened."""
    life = Life(TRIP).send("go")
    life._answer("error", data, None)

    assert ("trip.flight_compensation",) == life.states
    assert () == life.step.faults


def test_a_last_step_without_compensation_turns_back_through_the_others() -> None:
    """Compensation goes from the last listed step to the first, and clears list and fields on its way."""
    life = Life(TRIP).send("go").done("F1").done("H1").failed("unknown")

    assert ["flight", "hotel", "mail"] == life.listed()
    assert ("trip.hotel_compensation",) == life.states
    life.done()
    assert (None, "F1") == (life.step.snapshot.context["hotel"], life.step.snapshot.context["flight"])
    life.done()
    assert ("refused",) == life.states
    assert ["mail"] == life.listed()
    assert life.step.snapshot.context["flight"] is None


def test_a_compensation_knows_the_key_of_what_it_answers() -> None:
    """`compensates` is the key that the step was asked under."""
    life = Life(TRIP).send("go")
    key = life.step.effects[-1].payload["key"]
    life.done("F1").failed("no")

    assert "trip/1/2/trip.flight" == key
    assert [("flight.cancel", {"id": "F1", "compensates": key})] == life.effects


def test_a_key_of_the_author_is_kept() -> None:
    """The key is computed once, on entry, and both the step and its compensation carry it."""
    text = TRIP.replace("output: flight}", "output: flight, key: \"= entity.id + '/flight'\"}")
    life = Life(text).send("go")

    assert "trip/1/flight" == life.step.effects[-1].payload["key"]
    assert [("flight.cancel", {"id": None, "compensates": "trip/1/flight"})] == life.failed("unknown").effects


def test_a_key_that_cannot_be_computed_is_not_that_of_another_step() -> None:
    """A failing key leaves none, so that the default is used; it never leaves an older one."""
    text = TRIP.replace("output: hotel}", 'output: hotel, key: "= context.flight.x"}')
    life = Life(text).send("go").done("F1")

    assert life.step.effects[-1].payload["key"] is None


def test_a_compensation_that_fails_permanently_needs_a_person() -> None:
    """`onError`, and the record still lists what is not compensated."""
    life = Life(TRIP).send("go").done("F1").done("H1").failed("no").failed()

    assert ("stuck",) == life.states
    assert ["flight", "hotel"] == life.listed()


def test_entering_the_saga_again_empties_the_list() -> None:
    life = Life(TRIP).send("go").done("F1").done("H1").done().send("again")

    assert [] == life.listed()
    assert ("trip.flight",) == life.states


CONDITIONAL = """\
context: {address: {type: string, nullable: true}}
initial: setup
states:
  setup:
    saga:
      steps:
        - {id: one, if: wanted, do: {src: a}, compensate: {src: b}}
        - {id: two, if: "= context.address == null", do: {src: c, output: address}, compensate: {src: d}}
        - {id: three, if: wanted, do: {src: e}}
      onDone: live
      onError: failed
  live: {on: {again: setup}}
  failed: {on: {again: setup}}
"""


def test_a_step_whose_if_does_not_hold_is_skipped() -> None:
    life = Life(CONDITIONAL, wanted=False)

    assert ("setup.two",) == life.states
    assert [("c", None)] == life.effects
    assert ("live",) == life.done("10.0.0.1").states
    assert ["two"] == life.listed("setup")


def test_an_if_tells_the_truth_on_the_next_try() -> None:
    """The output is there, so the step is not repeated; after its compensation it is null again."""
    life = Life(CONDITIONAL, wanted=False).done("10.0.0.1").send("again")

    assert ("live",) == life.states
    assert [] == life.listed("setup")


def test_an_if_is_asked_on_entry_only() -> None:
    life = Life(CONDITIONAL, wanted=True).done().done("10.0.0.1").failed("no")

    assert ("setup.two_compensation",) == life.states
    assert ("setup.one_compensation",) == life.done().states
    assert ("failed",) == life.done().states


def test_an_if_that_fails_counts_as_no() -> None:
    """A guard in error does not hold (S33)."""
    life = Life(
        CONDITIONAL.replace("if: wanted, do: {src: a}", 'if: "= context.address.x", do: {src: a}'), wanted=False
    )

    assert ("setup.two",) == life.states


def test_without_on_compensated_on_error_takes_both() -> None:
    """Compensated or blocked: `onError` handles it."""
    compensated = Life(CONDITIONAL, wanted=True).failed("no")
    blocked = Life(CONDITIONAL, wanted=True).failed("unknown").failed()

    assert ("failed",) == compensated.states
    assert ("failed",) == blocked.states


PARALLEL = TRIP.replace("compensation: reverse", "compensation: parallel")


def test_parallel_compensations_run_side_by_side() -> None:
    life = Life(PARALLEL).send("go").done("F1").done("H1").failed("no")

    assert ["flight.cancel", "hotel.cancel"] == [name for name, _ in life.effects]
    assert 2 == len(life.done(of="hotel_compensation.pending").states)
    assert ("refused",) == life.done(of="flight_compensation.pending").states
    assert [] == life.listed()


def test_a_parallel_compensation_that_fails_lets_the_others_end() -> None:
    life = Life(PARALLEL).send("go").done("F1").done("H1").failed("no")
    life.failed(of="hotel_compensation.pending")

    assert ["flight.cancel"] == [
        life.kernel.chart.state(each.state).invokes[0].src  # type: ignore[union-attr]  # active states exist
        for each in life.step.snapshot.invokes
    ]
    assert ("stuck",) == life.done(of="flight_compensation.pending").states
    assert ["hotel"] == life.listed()


def test_a_parallel_region_of_a_step_that_is_not_listed_is_done_at_once() -> None:
    life = Life(PARALLEL).send("go").done("F1").failed("no")

    assert ["flight.cancel"] == [name for name, _ in life.effects]
    assert ("refused",) == life.done().states


def test_a_single_compensation_is_not_parallel() -> None:
    """With one step to compensate `parallel` means the same as `reverse`."""
    text = PARALLEL.replace(", compensate: {src: hotel.cancel}", "")
    life = Life(text).send("go").done("F1").failed("unknown")

    assert ("trip.flight_compensation",) == life.states


def test_without_any_compensation_a_failure_is_compensated_as_it_is() -> None:
    text = TRIP.replace(", compensate: {src: hotel.cancel}", "").replace(
        ',\n           compensate: {src: flight.cancel, input: {id: "= context.flight"}}', ""
    )
    life = Life(text).send("go").done("F1").failed("unknown")

    assert ("refused",) == life.states
    assert ["flight", "hotel"] == life.listed()


def test_compensation_none_goes_forward_only() -> None:
    """Any failure is `onError`; what was done stays done."""
    text = TRIP.replace("compensation: reverse", "compensation: none").replace("      onCompensated: refused\n", "")
    chart = chart_of(text.replace("refused: {on: {again: trip}}", "refused: {}"))
    life = Life(text).send("go").done("F1").failed("unknown")

    assert chart.state("trip.compensated") is None
    assert chart.state("trip.flight_compensation") is None
    assert ("stuck",) == life.states
    assert ["flight", "hotel"] == life.listed()


NESTED = """\
states:
  outer:
    type: parallel
    onDone: finished
    states:
      left: {saga: {steps: [{id: step, do: {src: a}, timeout: 1m}], onError: "#outer.trouble"}}
      trouble:
        states:
          none: {saga: {steps: [{id: step, do: {src: b}, timeout: 1m}], onDone: settled, onError: settled}}
          settled: {type: final}
  finished: {}
"""


def test_sagas_in_regions_do_not_disturb_each_other() -> None:
    """Each has its own states, its own list and its own keys; its end completes its region."""
    life = Life(NESTED)

    assert ("outer.left.step", "outer.trouble.none.step") == life.states
    keys = [each.payload["key"] for each in life.step.effects]
    assert ["trip/1/1/outer.left.step", "trip/1/1/outer.trouble.none.step"] == keys
    life.done(of="left.step")
    assert ["step"] == life.listed("outer_left")
    assert [] == life.listed("outer_trouble_none")
    assert ("finished",) == life.done(of="none.step").states


def test_results_come_before_the_events_of_the_state() -> None:
    """A state's own `*` cannot hide the end of its saga, and its timers stay before it."""
    text = """\
states:
  a:
    after: {1h: b}
    on: {"*": {actions: [x]}}
    saga: {steps: [{id: s, do: {src: f}}], onDone: {target: b, guard: "= event.name != null"}}
  b: {}
"""
    chart = chart_of(text)
    made = [chart.transitions[each].label for each in chart.states[1].transitions]

    assert ["after 1h", "done", "*"] == made
    assert ("b",) == Life(text).done().states


def test_a_late_result_names_what_answers_it() -> None:
    """S30: the chart carries the compensation of a step that was left, for the kernel to call."""
    chart = chart_of(TRIP.replace("src: hotel.book", "src: hotel.book, key: k"))
    invokes: dict[str, Invoke] = {
        each.id: state.invokes[0] for state in chart.states if state.invokes for each in [state]
    }

    assert "flight.cancel" == getattr(invokes["trip.flight"].late, "name", None)
    assert LateCompensation(name="hotel.cancel", output="hotel", key="k") == invokes["trip.hotel"].late
    assert invokes["trip.mail"].late is None
    assert invokes["trip.flight_compensation"].late is None


def test_nothing_answers_a_late_result_under_compensation_none() -> None:
    text = TRIP.replace("compensation: reverse", "compensation: none").replace("      onCompensated: refused\n", "")

    assert [None] * 3 == [each.late for state in chart_of(text).states for each in state.invokes]


def test_what_is_generated_points_to_its_lines() -> None:
    """A diagnostic about a step is at the line of the step: at its call, or at its compensation."""
    text = TRIP.replace("output: hotel", "output: hotl")

    assert ["error 13:27", "error 13:72"] == reported(text, "assign.unknown_field")


def test_the_output_of_a_step_that_can_be_compensated_is_nullable() -> None:
    text = TRIP.replace("hotel: {type: string, nullable: true}", "hotel: {type: string, default: none}")

    assert ["error 13:73"] == reported(text, "assign.refused")


def test_two_sagas_never_share_a_field() -> None:
    text = """\
states:
  a-b: {saga: {steps: [{id: s, do: {src: f}}], onDone: a_b}}
  a_b: {saga: {steps: [{id: s, do: {src: f}}], onDone: c}}
  c: {}
"""
    chart = chart_of(text)

    assert ["saga_a_b", "saga_a_b_2"] == [field.name for state in chart.states for field in state.context]


def test_a_chart_lists_its_sagas_and_their_states() -> None:
    text = """\
states:
  a:
    saga:
      compensation: COMPENSATION
      steps: [{id: x, do: {src: f}, compensate: {src: u}}, {id: y, do: {src: f}, compensate: {src: u}},
              {id: z, do: {src: f}}]
      onDone: end
      onError: end
  end: {}
"""
    expected = {
        "reverse": ("a.x_compensation", "a.y_compensation", None),
        "parallel": ("a.compensation.x_compensation", "a.compensation.y_compensation", None),
        "none": (None, None, None),
    }
    for compensation, states in expected.items():
        chart = chart_of(text.replace("COMPENSATION", compensation))
        (saga,) = (each.saga for each in chart.states if each.saga is not None)
        found = [(chart.states[each.state].id, each.compensation) for each in saga.steps]

        assert ["a.x", "a.y", "a.z"] == [name for name, _ in found]
        assert states == tuple(None if index is None else chart.states[index].id for _, index in found)
        assert ("a.completed", "a.blocked") == (chart.states[saga.completed].id, chart.states[saga.blocked].id)
        assert (compensation == "none") == (saga.compensated is None)
        assert {"saga_a"} == chart.saga_fields


def test_a_field_or_state_that_is_named_like_those_of_a_saga_is_not_one() -> None:
    chart = chart_of("states: {a: {context: {saga_title: {type: any}}, states: {work: {}, completed: {type: final}}}}")

    assert (frozenset(), [None]) == (chart.saga_fields, list({each.saga for each in chart.states}))


def test_the_sagas_field_is_its_own() -> None:
    """A field of that name would be overwritten."""
    bad = "context: {saga_a: {type: any}}\nstates: {a: {saga: {steps: [{id: s, do: {src: f}}]}}}"
    good = "context: {saga_b: {type: any}}\nstates: {a: {saga: {steps: [{id: s, do: {src: f}}]}}}"

    assert ["error 4:20"] == reported(bad, "saga.field")
    assert [] == reported(good, "saga.field")


def test_steps_have_different_names() -> None:
    for first, second in (("s", "s"), ("s", "s_compensation"), ("s_compensation", "s"), ("s", "completed")):
        text = (
            f"states: {{a: {{saga: {{steps: [{{id: {first}, do: {{src: f}}}}, {{id: {second}, do: {{src: g}}}}]}}}}}}"
        )

        assert "saga.duplicate_step" in errors(text)
    assert [] == reported(
        "states: {a: {saga: {steps: [{id: s, do: {src: f}}, {id: t, do: {src: g}}]}}}", "saga.duplicate_step"
    )


def test_a_state_with_a_saga_has_no_states_of_its_own() -> None:
    text = "states: {a: {saga: {steps: [{id: s, do: {src: f}}]}, states: {b: {}}}}"
    done = "states:\n  a: {saga: {steps: [{id: s, do: {src: f}}]}, onDone: b}\n  b: {}"

    assert ["saga.misplaced"] == errors(text)
    assert ["saga.misplaced"] == errors(done)


def test_nothing_is_compensated_under_compensation_none() -> None:
    """`onCompensated` would never be taken."""
    text = "states:\n  a: {saga: {compensation: none, steps: [{id: s, do: {src: f}}], onCompensated: b}}\n  b: {}"

    assert ["error 4:81"] == reported(text, "saga.compensated")


def test_the_root_is_not_a_saga() -> None:
    """Its end would be the end of the entity."""
    saga = Saga(steps=(SagaStep(id="s", do=SagaCall(src="f")),), location=SourceLocation(line=7))
    document = Document(kind="test", root=State(saga=saga, states=(State(key="a"),)))

    assert ["error 7:1"] == reported(document, "saga.misplaced")


def test_a_saga_has_steps() -> None:
    document = Document(kind="test", root=State(states=(State(key="a", saga=Saga(steps=())),)))

    assert ["saga.no_steps"] == errors(document)


def test_a_final_state_has_no_saga() -> None:
    saga = Saga(steps=(SagaStep(id="s", do=SagaCall(src="f")),))
    document = Document(kind="test", root=State(states=(State(key="a", type="final", saga=saga),)))

    assert ["saga.misplaced"] == errors(document)


def test_the_states_of_a_saga_count() -> None:
    steps = tuple(SagaStep(id=f"s{each}", do=SagaCall(src="f")) for each in range(2_000))
    document = Document(kind="test", root=State(states=(State(key="a", saga=Saga(steps=steps)),)))

    assert ["chart.states"] == errors(document)


def test_a_chart_without_sagas_is_left_as_it_is() -> None:
    from interlock.compiler.saga import expand_sagas
    from interlock.model.diagnostics import Diagnostics

    document = read("states: {a: {}}")

    assert expand_sagas(document, Diagnostics()) is document


def test_a_step_before_the_last_should_be_compensated() -> None:
    """Otherwise it stays done when a later step fails."""
    bad = TRIP.replace(", compensate: {src: hotel.cancel}", "")

    assert [("warning 13:11")] == reported(bad, "saga.no_compensation")
    assert [] == reported(TRIP, "saga.no_compensation")
    forward = bad.replace("compensation: reverse", "compensation: none").replace("      onCompensated: refused\n", "")
    assert [] == reported(forward, "saga.no_compensation")


def test_a_saga_should_not_be_left_half_done() -> None:
    bad = "on: {stop: idle}\n" + TRIP
    good = bad.replace("  trip:\n", "  trip:\n    on: {stop: {}}\n")

    assert [("warning 3:12")] == reported(bad, "saga.left_midway")
    assert [] == reported(good, "saga.left_midway")
    assert [] == reported(
        bad.replace("  trip:\n", "  trip:\n    allow: {saga.left_midway: idle cleans up}\n"), "saga.left_midway"
    )


def test_the_failure_of_a_saga_should_be_taken() -> None:
    """Without `onError` the entity waits in a final state of the saga."""
    bad = "states:\n  a: {saga: {steps: [{id: s, do: {src: f}, timeout: 1m}], onDone: b}}\n  b: {}"
    good = bad.replace("onDone: b", "onDone: b, onError: b")

    assert ["warning 4:13"] == reported(bad, "invoke.no_error")
    assert [] == reported(good, "invoke.no_error")


def test_a_step_should_end_some_time() -> None:
    """A handler that hangs would block the saga forever."""
    bad = "states:\n  a: {saga: {steps: [{id: s, do: {src: f}}], onDone: b, onError: b}}\n  b: {}"
    good = bad.replace("do: {src: f}", "do: {src: f}, timeout: 1m")

    assert ["warning 4:22"] == reported(bad, "invoke.no_timeout")
    assert [] == reported(good, "invoke.no_timeout")


def test_the_input_of_a_compensation_should_be_a_mapping() -> None:
    """Otherwise it cannot carry the key of what it answers, and is passed on as it is."""
    bad = TRIP.replace("input: {id:", "input: [{id:").replace('"= context.flight"}}}', '"= context.flight"}]}}')
    life = Life(bad).send("go").failed("unknown")

    assert [("flight.cancel", [{"id": None}])] == life.effects
    assert [("warning 12:24")] == reported(bad, "saga.input")
    assert [] == reported(TRIP, "saga.input")


def test_generated_states_get_no_lints() -> None:
    found = [each for each in compiled(PARALLEL).diagnostics if "trip." in each.message]

    assert [] == found


def test_the_results_of_a_saga_follow_the_rule_of_reenter() -> None:
    """V2 holds for `onError: <the saga itself>`."""
    document = read("states: {a: {saga: {steps: [{id: s, do: {src: f}}], onError: a}}}")
    again = read("states: {a: {saga: {steps: [{id: s, do: {src: f}}], onError: {target: a, reenter: true}}}}")

    assert ["transition.reenter"] == errors(document)
    assert [] == errors(again)


def test_a_result_without_a_guard_of_its_own_and_one_with() -> None:
    saga = Saga(
        steps=(SagaStep(id="s", do=SagaCall(src="f")),),
        done=(Transition(targets=("b",)),),
    )
    document = Document(kind="test", root=State(states=(State(key="a", saga=saga), State(key="b"))))

    assert [] == errors(document)


def test_a_saga_that_cannot_be_written_out_hides_no_other_error() -> None:
    text = "states:\n  a: {saga: {steps: [{id: completed, do: {src: f}}]}}\n  b: {on: {go: nowhere}}"

    assert ["saga.duplicate_step", "target.unknown"] == errors(text)


def test_a_saga_without_its_states_is_not_listed() -> None:
    saga = Saga(steps=(SagaStep(id="book", do=SagaCall(src="book")),))
    state = State(key="a", context=(Field(name="n"),), saga=saga)

    assert saga_info(state, "a", {}) is None
