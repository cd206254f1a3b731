"""How an event was taken: applied, ignored, rejected, denied, deferred, and the reason (section 5 of the semantics)."""

import pytest
from msgspec.structs import replace

from interlock.errors import UsageError
from interlock.model.driver_events import call_failed
from interlock.model.event import Event
from interlock.model.step import FailedGuard, Fault, Step
from tests.unit.kernel.charts import ENTITY, kernel_of, last_step, payloads, started


def said(step: Step) -> tuple[str, str | None]:
    """Outcome and reason."""
    return step.outcome, step.reason


CHART = """
context: {n: {type: integer, default: 1}}
states:
  a:
    on:
      go: b
      again: {}
      work: {actions: [x]}
      more: [{target: b, guard: "= context.n > 5"}, {target: b, guard: "= event.data.k == 'x'"}]
  b: {on: {end: c}}
  c: {type: final}
"""


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ("go", ("applied", None)),
        ("work", ("applied", None)),
        ("again", ("ignored", "no_content")),
        ("nobody", ("rejected", "no_transition")),
        ("more", ("rejected", "guard")),
    ],
)
def test_an_event_is_applied_ignored_or_rejected(event: str, expected: tuple[str, str]) -> None:
    """What is "already done" by the author's word and what is illegal are different outcomes."""
    kernel = kernel_of(CHART)
    before = last_step(kernel).snapshot
    step = kernel.step(before, Event(event, {}))

    assert expected == said(step)
    assert (step.snapshot is before) == (step.outcome != "applied")


def test_an_ended_entity_accepts_no_events() -> None:
    kernel = kernel_of(CHART)
    ended = last_step(kernel, "go", "end").snapshot

    assert ("rejected", "ended") == said(kernel.step(ended, Event("go")))
    assert ("ignored", "ended") == said(kernel.step(ended, Event("go", source="timer/x/1")))
    assert ended is kernel.step(ended, Event("_cancel", type="platform")).snapshot


def test_a_rejection_by_guard_lists_each_guard_with_its_values() -> None:
    step = last_step(kernel_of(CHART), Event("more", None))

    assert (
        FailedGuard(3, "context.n > 5", {"context.n": 1}),
        FailedGuard(4, "event.data.k == 'x'", {}, "null has no fields or items"),
    ) == step.failed_guards


@pytest.mark.parametrize(("unhandled", "expected"), [("ignore", "ignored"), ("reject", "rejected")])
def test_an_eventless_transition_makes_an_event_applied(unhandled: str, expected: str) -> None:
    """One whose guard reads `event` counts as taking it."""
    kernel = kernel_of(f"""
        unhandled: {unhandled}
        states: {{a: {{always: {{target: b, guard: "= event != null and event.data == 5"}}}}, b: {{}}}}
    """)

    assert ("applied", None) == said(last_step(kernel, Event("anything", 5)))
    assert expected == last_step(kernel, Event("anything", 6)).outcome


def test_unhandled_ignore_keeps_the_faults() -> None:
    """S33: an unhandled error is a fault in every mode."""
    step = last_step(
        kernel_of('unhandled: ignore\nstates: {a: {on: {go: {guard: "= 1 // 0", target: a, reenter: true}}}}'), "go"
    )

    assert ("ignored", "no_transition") == said(step)
    assert (Fault("expression.zero_division", "division by zero", "states.a.on.go.guard"),) == step.faults


DEFER = """
unhandled: defer
states: {a: {on: {go: b, stay: {actions: [x]}, end: c}}, b: {on: {later: {actions: [y]}}}, c: {type: final}}
"""


def test_a_deferred_event_is_kept_whole() -> None:
    """S32: applied, reason `deferred`, in the snapshot."""
    event = Event("later", {"n": 1}, id="i1", key="k1", principal={"id": "ann"}, time_ms=7)
    step = last_step(kernel_of(DEFER), event)

    assert ("applied", "deferred", 2) == (*said(step), step.snapshot.version)
    assert (event,) == step.snapshot.deferred


def test_deferred_events_come_back_when_the_configuration_changes() -> None:
    """S32: in order, as sends to itself, with the version in id and key, because the old ones are spent."""
    kernel = kernel_of(DEFER)
    first = Event("later", {"n": 1}, id="i1", key="k1", principal={"id": "ann"})
    step = last_step(kernel, first, "other", "go")

    assert () == step.snapshot.deferred
    assert [
        {"event": "later", "to": ENTITY, "data": {"n": 1}, "id": "i1/4", "key": "k1/4", "principal": {"id": "ann"}},
        {"event": "other", "to": ENTITY},
    ] == payloads(step, "send")


def test_deferred_events_stay_while_the_configuration_does() -> None:
    """S32: a step that only acts returns none."""
    step = last_step(kernel_of(DEFER), "later", "stay")

    assert (1, []) == (len(step.snapshot.deferred), payloads(step, "send"))


def test_deferred_events_are_dropped_at_the_end() -> None:
    step = last_step(kernel_of(DEFER), "later", "end")

    assert ("done", (), []) == (step.snapshot.ended, step.snapshot.deferred, payloads(step, "send"))


def test_a_timer_that_fires_keeps_deferred_events() -> None:
    """Events of the driver are never deferred."""
    kernel = kernel_of("""
        unhandled: defer
        states: {a: {on: {go: {actions: [{send: {event: due, id: t, delay: 1s}}]}}}}
    """)
    before = last_step(kernel, "go", "later").snapshot
    step = kernel.step(before, Event("due", source="timer/t/2"))

    assert ("ignored", "no_transition", before.deferred) == (*said(step), step.snapshot.deferred)


ROLES = """
states:
  a:
    on:
      close: {target: b, roles: [admin, system]}
      pay: [{target: b, roles: [clerk], guard: "= event.data > 5"}, {actions: [x], guard: "= event.data == 1"}]
      tick: {actions: [{raise: close}]}
    after: {1s: {target: b, roles: [system]}}
  b: {always: {target: c, roles: [system]}}
  c: {}
"""


@pytest.mark.parametrize(
    "principal",
    [
        None,
        "admin",
        {},
        {"roles": None},
        {"roles": "admin"},
        {"roles": ["clerk"]},
        {"roles": {"admin": True}},
        {"roles": 5},
        {"roles": [["admin"]]},
    ],
)
def test_only_roles_in_the_way_is_denied(principal: object) -> None:
    """The sender may not; a malformed principal has no roles at all."""
    step = last_step(kernel_of(ROLES), Event("close", principal=principal))

    assert ("denied", "roles", ("a",)) == (*said(step), step.snapshot.configuration)


@pytest.mark.parametrize("roles", [["admin"], ("x", "admin"), {"admin"}])
def test_one_of_the_roles_is_enough(roles: object) -> None:
    """As a list, a tuple or a set."""
    assert "applied" == last_step(kernel_of(ROLES), Event("close", principal={"roles": roles})).outcome


def test_a_guard_in_the_way_is_a_rejection_whatever_the_roles() -> None:
    """`denied` says that the roles alone decided."""
    kernel = kernel_of(ROLES)

    assert ("rejected", "guard") == said(last_step(kernel, Event("pay", 3)))
    assert ("denied", "roles") == said(last_step(kernel, Event("pay", 7)))
    assert ("applied", None) == said(last_step(kernel, Event("pay", 1)))


def test_what_the_kernel_does_by_itself_acts_as_system() -> None:
    kernel = kernel_of(ROLES)
    fired = kernel.step(last_step(kernel).snapshot, Event("after.1s.a", source="timer/after.1s.a/1"))

    assert ("c",) == last_step(kernel, "tick").snapshot.configuration == fired.snapshot.configuration


EVENTS = """
events:
  order: {payload: {n: {type: integer}, note: {type: string, default: none}, free: {type: any, required: false}}}
  plain: {}
  own: {direction: internal}
  message: {direction: out}
states:
  a:
    on:
      order: {actions: [{do: took, with: {data: "= event.data"}}]}
      plain: {actions: [x, {raise: own}]}
      own: {actions: [y]}
"""


def test_a_payload_is_completed_with_its_defaults() -> None:
    step = last_step(kernel_of(EVENTS), Event("order", {"n": 1}, id="i"))

    assert [{"data": {"n": 1, "note": "none"}}] == [each["input"] for each in payloads(step, "call")]


def test_a_whole_payload_is_taken_as_it_is() -> None:
    data = {"n": 1, "note": "x", "free": None}

    assert [{"data": data}] == [
        each["input"] for each in payloads(last_step(kernel_of(EVENTS), Event("order", data)), "call")
    ]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "`n` is missing"),
        ({}, "`n` is missing"),
        ({"n": "1"}, "`n` must be an integer, not a string"),
        ({"n": 1, "m": 2}, "unknown field `m`; the fields are n, note, free"),
        ([1], "the payload must be an object"),
        ("n", "the payload must be an object"),
    ],
)
def test_a_payload_that_does_not_fit_is_rejected(data: object, message: str) -> None:
    """Reason `payload`, with what is wrong; never the value."""
    step = last_step(kernel_of(EVENTS), Event("order", data))

    assert ("rejected", "payload") == said(step)
    assert (Fault("event.payload", message, "order"),) == step.faults


@pytest.mark.parametrize("name", ["unknown", "message", "own", "order.x"])
def test_an_event_that_is_not_declared_for_senders_is_rejected(name: str) -> None:
    """When `events` is there it is complete; `out` and `internal` are not for senders."""
    assert ("rejected", "undeclared") == said(last_step(kernel_of(EVENTS), Event(name, {"n": 1})))


def test_an_error_of_the_driver_needs_no_declaration() -> None:
    """A chart that declares its events hears all the same that a call or a send failed."""
    kernel = kernel_of("""
        events: {go: {}}
        initial: a
        states: {a: {on: {error.communication: b}}, b: {}}
    """)

    assert ("b",) == last_step(kernel, call_failed("charge", "order/1/1/0", "lost")).snapshot.configuration
    assert ("rejected", "reserved") == said(last_step(kernel, Event("error.communication")))


def test_an_error_of_the_driver_is_not_deferred() -> None:
    kernel = kernel_of("unhandled: defer\ninitial: a\nstates: {a: {on: {go: b}}, b: {}}")
    step = last_step(kernel, call_failed("charge", "order/1/1/0", "lost"))

    assert (("rejected", "no_transition"), 1) == (said(step), step.snapshot.version)


def test_an_internal_event_may_come_from_the_entity_itself() -> None:
    """Raised in the step, or sent to itself and brought back with its own origin."""
    kernel = kernel_of(EVENTS)

    assert ["x", "y"] == [each["name"] for each in payloads(last_step(kernel, "plain"), "call")]
    assert "applied" == last_step(kernel, Event("own", origin=f"#_scxml_{ENTITY}")).outcome
    assert "rejected" == last_step(kernel, Event("own", origin="#_scxml_test/2")).outcome


def test_a_snapshot_of_another_kind_is_refused() -> None:
    kernel = kernel_of("states: {a: {on: {go: {actions: [x]}}}}")
    other = replace(last_step(kernel).snapshot, kind="gate")

    with pytest.raises(UsageError) as caught:
        kernel.step(other, Event("go"))

    assert "snapshot.kind" == caught.value.code


@pytest.mark.parametrize("name", ["_cancel", "_timer.moved", "_anything"])
def test_a_sender_cannot_use_the_names_of_the_kernel(name: str) -> None:
    """S10, S39: they come from the driver only, which marks them."""
    kernel = kernel_of("states: {a: {on: {go: {actions: [x]}}}}")
    before = last_step(kernel).snapshot
    step = kernel.step(before, Event(name))

    assert ("rejected", "reserved") == said(step)
    assert before is step.snapshot


@pytest.mark.parametrize("mode", ["reject", "ignore", "defer"])
def test_what_only_roles_stop_is_denied_in_every_mode(mode: str) -> None:
    """Section 5: an event its sender may not send is neither passed over nor kept for later."""
    kernel = kernel_of(f"unhandled: {mode}\nstates: {{a: {{on: {{go: {{actions: [x], roles: [boss]}}}}}}}}")
    before = last_step(kernel).snapshot
    step = kernel.step(before, Event("go", principal={"roles": ["guest"]}))

    assert ("denied", "roles") == said(step)
    assert before is step.snapshot


def test_the_active_states_of_a_snapshot_include_ancestors_but_not_the_root() -> None:
    kernel = kernel_of("states: {a: {states: {b: {}}}}")

    assert ["a", "a.b"] == [state.id for state in kernel.active(started(kernel))]


def test_a_subclass_of_event_is_an_event() -> None:
    class OwnEvent(Event, frozen=True):
        pass

    kernel = kernel_of("states: {a: {on: {go: b}}, b: {}}")

    assert ("b",) == kernel.step(started(kernel), OwnEvent("go")).snapshot.configuration
