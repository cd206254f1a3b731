"""What fails unseen, what may hang, what is left half done, what is swallowed."""

from tests.unit.compiler.findings import told


def test_the_failure_of_an_invoke_is_taken() -> None:
    """A failure that nobody takes leaves the entity waiting."""
    bad = "states: {a: {invoke: {id: i, src: s, onDone: b}}, b: {}}"
    good = "states: {a: {invoke: {id: i, src: s, onDone: b, onError: b}}, b: {}}"

    assert [
        'warning 3:22 no transition takes the failure of this invoke of "a"; write `onError`',
    ] == told(bad, "invoke.no_error")
    assert [] == told(good, "invoke.no_error")


def test_an_outer_state_may_take_the_failure() -> None:
    """Any state around it will do, by any descriptor."""
    bad = "states: {a: {states: {c: {invoke: {src: s}}}}}"
    good = "states: {a: {on: {error: b}, states: {c: {invoke: [{src: s}, {id: i, src: s}]}}}, b: {}}"

    assert [
        'warning 3:35 no transition takes the failure of this invoke of "a.c"; write `onError`',
    ] == told(bad, "invoke.no_error")
    assert [] == told(good, "invoke.no_error")


def test_an_invoke_ends_some_time() -> None:
    """A handler that hangs would hold the entity for ever."""
    bad = "states: {a: {invoke: {id: i, src: s}}}"
    good = "states: {a: {invoke: [{id: i, src: s, timeout: 1m}, {id: j, src: c, type: chart}]}}"

    assert [
        'warning 3:22 this invoke of "a" may run for ever; write `timeout`',
    ] == told(bad, "invoke.no_timeout")
    assert [] == told(good, "invoke.no_timeout")


def test_a_timer_of_the_state_bounds_its_invokes() -> None:
    """When the state is left the invoke is cancelled."""
    bad = "states: {a: {invoke: {id: i, src: s}, on: {e: b}}, b: {}}"
    good = "states: {a: {invoke: {id: i, src: s}, after: {1m: b}}, b: {}}"

    assert [
        'warning 3:22 this invoke of "a" may run for ever; write `timeout`',
    ] == told(bad, "invoke.no_timeout")
    assert [] == told(good, "invoke.no_timeout")


def test_the_input_of_an_invoke_does_not_read_the_event() -> None:
    """It is the last event of the step, which need not be the one that led here."""
    bad = "states: {a: {invoke: {id: i, src: s, input: {x: '= event.data.x'}}}}"
    good = """\
context: {x: {type: any}}
states: {a: {invoke: {id: i, src: s, input: {x: '= context.x'}}}}
"""

    assert [
        (
            "warning 3:52 `event` is here the last event of the step, which need not be the one that "
            "led to this state; assign what you need to a field first, and read that"
        ),
    ] == told(bad, "invoke.event_input")
    assert [] == told(good, "invoke.event_input")


def test_effects_belong_to_entry() -> None:
    """What happens on entry is seen from the state's name alone."""
    bad = """\
states:
  a: {on: {e: {target: b, actions: [x]}}, exit: [{emit: {type: y}}]}
  b: {}
"""
    good = """\
states:
  a: {on: {e: b, f: {actions: [x]}}}
  b: {entry: [x], exit: [{log: left}]}
"""

    assert [
        (
            'info 4:37 an effect on a transition of "a": effects on entry are easier to audit; move it '
            "to the entry of the next state"
        ),
        (
            'info 4:50 an effect on exit of "a": effects on entry are easier to audit; move it to the '
            "entry of the next state"
        ),
    ] == told(bad, "effect.outside_entry")
    assert [] == told(good, "effect.outside_entry")


def test_a_handler_that_fails_for_good_is_taken() -> None:
    """`error.communication` comes when retries are spent."""
    bad = "states: {a: {entry: [x]}}"
    good = "states: {a: {entry: [x], on: {error.communication: b}}, b: {}}"

    assert [
        (
            'info 3:22 no transition takes "error.communication", which comes when `x` fails for good; '
            "add a transition for it, or watch the faults"
        ),
    ] == told(bad, "error.unhandled")
    assert [] == told(good, "error.unhandled")


def test_illegal_differs_from_already_done() -> None:
    """`unhandled: ignore` makes the two look the same."""
    bad = """\
unhandled: ignore
states: {a: {}}
"""
    good = """\
unhandled: defer
states: {a: {}}
"""

    assert [
        (
            "warning 1:1 `unhandled: ignore` makes an illegal event look like one that was already "
            "done; leave it out, and take with {} what may come again"
        ),
    ] == told(bad, "events.swallowed")
    assert [] == told(good, "events.swallowed")


def test_a_wildcard_that_does_nothing_swallows_events() -> None:
    """So does `*` with nothing to do."""
    bad = "states: {a: {on: {'*': {}}}}"
    good = "states: {a: {on: {'*': {actions: [x]}, e: {}}}}"

    assert [
        (
            "warning 3:24 `*` with nothing to do makes an illegal event look like one that was already "
            "done; name the events that may come again"
        ),
    ] == told(bad, "events.swallowed")
    assert [] == told(good, "events.swallowed")
