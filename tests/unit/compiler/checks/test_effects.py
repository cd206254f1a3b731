"""Invokes, durations, and what is said once for the whole chart."""

import pytest

from tests.unit.compiler.diagnostics import reported


def test_invokes_active_together_have_different_ids() -> None:
    bad = "states: {p: {type: parallel, states: {a: {invoke: {id: i, src: s}}, b: {invoke: {id: i, src: s}}}}}"
    good = """\
states:
  a: {invoke: {id: i, src: s}, on: {e: b}}
  b: {invoke: {id: i, src: s}}
"""

    assert ["error 3:81"] == reported(bad, "invoke.duplicate_id")
    assert [] == reported(good, "invoke.duplicate_id")


def test_a_state_has_no_two_invokes_of_one_id() -> None:
    bad = "states: {a: {invoke: [{id: i, src: s}, {id: i, src: t}]}}"
    good = "states: {a: {invoke: [{id: i, src: s}, {src: t}]}}"

    assert ["error 3:40"] == reported(bad, "invoke.duplicate_id")
    assert [] == reported(good, "invoke.duplicate_id")


def test_an_invoke_needs_a_source() -> None:
    bad = "states: {a: {invoke: {id: i}}}"
    good = "states: {a: {invoke: {id: i, src: s}}}"

    assert ["error 3:22"] == reported(bad, "invoke.no_src")
    assert [] == reported(good, "invoke.no_src")


def test_only_a_timer_outlives_downtime() -> None:
    """A send without `delay` is sent immediately."""
    bad = "states: {a: {entry: [{send: {event: e, onRestore: restart}}]}}"
    good = "states: {a: {entry: [{send: {event: e, delay: 1s, onRestore: restart}}]}}"

    assert ["error 3:22"] == reported(bad, "send.no_timer")
    assert [] == reported(good, "send.no_timer")


def test_a_backoff_does_not_fall() -> None:
    bad = "states: {a: {invoke: {id: i, src: s, retry: {max: 3, backoff: 5m..1s}}}}"
    good = "states: {a: {invoke: {id: i, src: s, retry: {max: 3, backoff: 1s..5m}}}}"

    assert ["error 3:22"] == reported(bad, "duration.range")
    assert [] == reported(good, "duration.range")


def test_compatible_is_a_range_of_revisions() -> None:
    bad = """\
compatible: about 3
states: {a: {}}
"""
    good = """\
compatible: '>=3.0 <4'
states: {a: {}}
"""

    assert ["error 1:1"] == reported(bad, "compatible.syntax")
    assert [] == reported(good, "compatible.syntax")


def test_renamed_leads_to_a_state() -> None:
    bad = """\
renamed: {old: payed}
states: {paid: {}}
"""
    good = """\
renamed: {old: paid}
states: {paid: {}}
"""

    assert ["error 1:1"] == reported(bad, "renamed.unknown")
    assert [] == reported(good, "renamed.unknown")


def test_a_renamed_state_is_gone() -> None:
    bad = """\
renamed: {a: b}
states: {a: {on: {e: b}}, b: {}}
"""
    good = """\
renamed: {c: b}
states: {a: {on: {e: b}}, b: {}}
"""

    assert ["error 1:1"] == reported(bad, "renamed.exists")
    assert [] == reported(good, "renamed.exists")


def test_what_was_removed_is_gone() -> None:
    bad = """\
removed: {states: {a: 2027-01-31}, events: {e: 2027-01-31}}
events: {e: {}}
states: {a: {on: {e: a}}}
"""
    good = """\
removed: {states: {e: 2027-01-31}, events: {a: 2024-02-29}}
events: {e: {}}
states: {a: {on: {e: {target: a, reenter: true}}}}
"""

    assert ["error 1:1", "error 1:1"] == reported(bad, "removed.exists")
    assert [] == reported(good, "removed.exists")


def test_a_tombstone_has_a_day() -> None:
    bad = """\
removed: {states: {x: 2027-02-29}, events: {y: 0000-01-01}}
states: {a: {}}
"""

    assert ["error 1:1", "error 1:1"] == reported(bad, "removed.day")


def test_allow_names_a_lint() -> None:
    bad = """\
allow: {state.traps: we stay}
states: {a: {}}
"""
    good = """\
allow: {state.trap: we stay}
states: {a: {}}
"""

    assert ["error 1:1"] == reported(bad, "allow.unknown")
    assert [] == reported(good, "allow.unknown")


def test_errors_cannot_be_allowed() -> None:
    bad = """\
allow: {target.unknown: why not}
states: {a: {}}
"""
    good = """\
allow: {transition.shadowed: kept for later}
states: {a: {}}
"""

    assert ["error 1:1"] == reported(bad, "allow.unknown")
    assert [] == reported(good, "allow.unknown")


def test_allow_needs_a_reason() -> None:
    bad = """\
allow: {state.trap: ' '}
states: {a: {}}
"""
    good = """\
allow: {state.trap: we stay}
states: {a: {}}
"""

    assert ["error 1:1"] == reported(bad, "allow.reason")
    assert [] == reported(good, "allow.reason")


def test_a_duration_has_a_longest() -> None:
    bad = "states: {a: {after: {999999999999d: b}}, b: {}}"
    good = "states: {a: {after: {365000d: b}}, b: {}}"

    assert 1 == len(reported(bad, "duration.range"))
    assert [] == reported(good, "duration.range")


def test_the_failure_of_an_invoke_is_taken() -> None:
    bad = "states: {a: {invoke: {id: i, src: s, onDone: b}}, b: {}}"
    good = "states: {a: {invoke: {id: i, src: s, onDone: b, onError: b}}, b: {}}"

    assert ["warning 3:22"] == reported(bad, "invoke.no_error")
    assert [] == reported(good, "invoke.no_error")


def test_an_outer_state_may_take_the_failure() -> None:
    bad = "states: {a: {states: {c: {invoke: {src: s}}}}}"
    good = "states: {a: {on: {error: b}, states: {c: {invoke: [{src: s}, {id: i, src: s}]}}}, b: {}}"

    assert ["warning 3:35"] == reported(bad, "invoke.no_error")
    assert [] == reported(good, "invoke.no_error")


def test_an_invoke_needs_a_timeout() -> None:
    """A handler that hangs would block the entity forever."""
    bad = "states: {a: {invoke: {id: i, src: s}}}"
    good = "states: {a: {invoke: [{id: i, src: s, timeout: 1m}, {id: j, src: c, type: chart}]}}"

    assert ["warning 3:22"] == reported(bad, "invoke.no_timeout")
    assert [] == reported(good, "invoke.no_timeout")


def test_a_timer_of_the_state_bounds_its_invokes() -> None:
    bad = "states: {a: {invoke: {id: i, src: s}, on: {e: b}}, b: {}}"
    good = "states: {a: {invoke: {id: i, src: s}, after: {1m: b}}, b: {}}"

    assert ["warning 3:22"] == reported(bad, "invoke.no_timeout")
    assert [] == reported(good, "invoke.no_timeout")


def test_the_input_of_an_invoke_does_not_read_the_event() -> None:
    bad = "states: {a: {invoke: {id: i, src: s, input: {x: '= event.data.x'}}}}"
    good = """\
context: {x: {type: any}}
states: {a: {invoke: {id: i, src: s, input: {x: '= context.x'}}}}
"""

    assert ["warning 3:52"] == reported(bad, "invoke.event_input")
    assert [] == reported(good, "invoke.event_input")


def test_effects_belong_to_entry() -> None:
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

    assert ["info 4:37", "info 4:50"] == reported(bad, "effect.outside_entry")
    assert [] == reported(good, "effect.outside_entry")


def test_a_handler_that_fails_permanently_is_taken() -> None:
    """`error.communication` comes when retries are spent."""
    bad = "states: {a: {entry: [x]}}"
    good = "states: {a: {entry: [x], on: {error.communication: b}}, b: {}}"

    assert ["info 3:22"] == reported(bad, "error.unhandled")
    assert [] == reported(good, "error.unhandled")


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

    assert ["warning 1:1"] == reported(bad, "events.swallowed")
    assert [] == reported(good, "events.swallowed")


def test_a_wildcard_that_does_nothing_swallows_events() -> None:
    """So does `*` with nothing to do."""
    bad = "states: {a: {on: {'*': {}}}}"
    good = "states: {a: {on: {'*': {actions: [x]}, e: {}}}}"

    assert ["warning 3:24"] == reported(bad, "events.swallowed")
    assert [] == reported(good, "events.swallowed")


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("properties: {a: 1}\nrenamed: {old: a}\nstates: {a: {}}", ["warning 1:1"]),
        ("states: {a: {}, b: {sensitive: {as: a, roles: [clerk]}}}", []),
        ("allow: {vocabulary.inert: later}\nproperties: {}\nstates: {a: {}}", []),
    ],
)
def test_a_key_without_effect_is_a_warning(text: str, places: list[str]) -> None:
    """`properties` is read and checked, but nothing acts on it."""
    assert places == reported(text, "vocabulary.inert")
