"""Invokes, durations, and what is said once for the whole chart."""

from tests.unit.compiler.findings import told


def test_invokes_active_together_have_different_ids() -> None:
    """Their results carry the id and nothing else."""
    bad = "states: {p: {type: parallel, states: {a: {invoke: {id: i, src: s}}, b: {invoke: {id: i, src: s}}}}}"
    good = """\
states:
  a: {invoke: {id: i, src: s}, on: {e: b}}
  b: {invoke: {id: i, src: s}}
"""

    assert [
        (
            'error 3:81 "p.b" and "p.a" each have an invoke "i", and their results could not be told '
            "apart; give one of them another id"
        ),
    ] == told(bad, "invoke.duplicate_id")
    assert [] == told(good, "invoke.duplicate_id")


def test_a_state_has_no_two_invokes_of_one_id() -> None:
    """Two invokes of one state are always active together."""
    bad = "states: {a: {invoke: [{id: i, src: s}, {id: i, src: t}]}}"
    good = "states: {a: {invoke: [{id: i, src: s}, {src: t}]}}"

    assert [
        ('error 3:40 "a" has two invokes "i", and their results could not be told apart; give one of them another id'),
    ] == told(bad, "invoke.duplicate_id")
    assert [] == told(good, "invoke.duplicate_id")


def test_an_invoke_says_what_it_asks_for() -> None:
    """Without `src` there is nobody to ask."""
    bad = "states: {a: {invoke: {id: i}}}"
    good = "states: {a: {invoke: {id: i, src: s}}}"

    assert [
        'error 3:22 an invoke needs the key "src"',
    ] == told(bad, "invoke.no_src")
    assert [] == told(good, "invoke.no_src")


def test_only_a_timer_outlives_downtime() -> None:
    """A send without `delay` goes at once."""
    bad = "states: {a: {entry: [{send: {event: e, onRestore: restart}}]}}"
    good = "states: {a: {entry: [{send: {event: e, delay: 1s, onRestore: restart}}]}}"

    assert [
        (
            "error 3:22 `onRestore` says what downtime means to a timer, and this send is none; give it a `delay`, or "
            "leave `onRestore` out"
        ),
    ] == told(bad, "send.no_timer")
    assert [] == told(good, "send.no_timer")


def test_a_backoff_does_not_fall() -> None:
    """A range grows."""
    bad = "states: {a: {invoke: {id: i, src: s, retry: {max: 3, backoff: 5m..1s}}}}"
    good = "states: {a: {invoke: {id: i, src: s, retry: {max: 3, backoff: 1s..5m}}}}"

    assert [
        'error 3:22 the backoff "5m..1s" falls; write 1s..5m',
    ] == told(bad, "duration.range")
    assert [] == told(good, "duration.range")


def test_compatible_is_a_range_of_revisions() -> None:
    """Comparisons of dotted numbers, all of which must hold."""
    bad = """\
compatible: about 3
states: {a: {}}
"""
    good = """\
compatible: '>=3.0 <4'
states: {a: {}}
"""

    assert [
        'error 1:1 "about 3" is not a range of revisions; such as ">=3.0 <4"',
    ] == told(bad, "compatible.syntax")
    assert [] == told(good, "compatible.syntax")


def test_renamed_leads_to_a_state() -> None:
    """Entities in the old state go on in the new one, so it must exist."""
    bad = """\
renamed: {old: payed}
states: {paid: {}}
"""
    good = """\
renamed: {old: paid}
states: {paid: {}}
"""

    assert [
        'error 1:1 renamed: no state has the id "payed"; did you mean "paid"?',
    ] == told(bad, "renamed.unknown")
    assert [] == told(good, "renamed.unknown")


def test_a_renamed_state_is_gone() -> None:
    """An id that is still in use was not renamed."""
    bad = """\
renamed: {a: b}
states: {a: {on: {e: b}}, b: {}}
"""
    good = """\
renamed: {c: b}
states: {a: {on: {e: b}}, b: {}}
"""

    assert [
        'error 1:1 renamed: "a" is still a state of the chart; take the entry out, or rename the state',
    ] == told(bad, "renamed.exists")
    assert [] == told(good, "renamed.exists")


def test_allow_names_a_lint() -> None:
    """Only lints can be silenced, not errors."""
    bad = """\
allow: {state.traps: we stay}
states: {a: {}}
"""
    good = """\
allow: {state.trap: we stay}
states: {a: {}}
"""

    assert [
        'error 1:1 "state.traps" is no lint that can be allowed; did you mean "state.trap"?',
    ] == told(bad, "allow.unknown")
    assert [] == told(good, "allow.unknown")


def test_errors_cannot_be_allowed() -> None:
    """What breaks the vocabulary stays an error."""
    bad = """\
allow: {target.unknown: why not}
states: {a: {}}
"""
    good = """\
allow: {transition.shadowed: kept for later}
states: {a: {}}
"""

    assert [
        (
            'error 1:1 "target.unknown" is no lint that can be allowed; see the reference of '
            "diagnostics for the lints there are"
        ),
    ] == told(bad, "allow.unknown")
    assert [] == told(good, "allow.unknown")


def test_allow_gives_a_reason() -> None:
    """A silenced lint says why."""
    bad = """\
allow: {state.trap: ' '}
states: {a: {}}
"""
    good = """\
allow: {state.trap: we stay}
states: {a: {}}
"""

    assert [
        'error 1:1 allowing "state.trap" needs a reason; say why it is right here',
    ] == told(bad, "allow.reason")
    assert [] == told(good, "allow.reason")


def test_a_duration_has_a_longest() -> None:
    """A due time must fit into the columns of every store."""
    bad = "states: {a: {after: {999999999999d: b}}, b: {}}"
    good = "states: {a: {after: {365000d: b}}, b: {}}"

    assert 1 == len(told(bad, "duration.range"))
    assert "at most 365000d" in told(bad, "duration.range")[0]
    assert [] == told(good, "duration.range")
