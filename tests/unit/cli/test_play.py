"""A play: the same lines give the same play, every line does one thing, and what is shown is what happened."""

from collections.abc import Iterable
from typing import Any

import pytest

from interlock.assemble.charts import loads
from interlock.cli.output import scene
from interlock.cli.play import Playback, payload
from interlock.errors import UsageError

EVERYTHING = """\
interlock: 1
kind: stage
context: {n: {type: integer, default: 0}, text: {type: string, nullable: true}}
events:
  go: {}
  more: {payload: {n: integer, code: string}}
  big: {payload: {n: integer}}
  odd: {}
  staff: {}
  stop: {}
  tick: {direction: internal}
initial: one
states:
  one:
    entry: [{log: hello}, {log: {label: n, value: "= context.n"}}]
    on:
      go: two
      more: {actions: [{assign: {n: "= context.n + event.data.n", text: "= event.data.code"}}, {assign: tidy}]}
      big: {target: two, guard: "= event.data.n > 3"}
      staff: {target: two, guard: is_staff}
      odd: {target: two, guard: "= 1 / context.n > 0"}
  two:
    entry: [{emit: {type: stage.two, data: {n: "= context.n"}}}, {send: {event: tick, delay: 5s, id: t}}]
    exit: [{cancel: t}]
    invoke:
      - {id: main.job, src: work.do, input: {n: "= context.n"}, timeout: 30s, onDone: three, onError: one}
      - {id: child, type: chart, autoforward: true,
         src: {kind: inner,
               states: {a: {on: {go: {guard: inner_guard, actions: [{send: {event: tick, to: parent}}]}}}}}}
    on: {tick: {actions: [{send: {event: stop, to: child}}]}, go: {}, stop: three}
  three: {type: final, output: "= context.n"}
"""


@pytest.fixture
def play() -> Playback:
    """A chart with everything that a play shows."""
    return Playback(loads(EVERYTHING))


def text(lines: Iterable[scene.Line]) -> str:
    """The lines without their styles."""
    return "\n".join("".join(part if isinstance(part, str) else part[0] for part in line) for line in lines)


def played(play: Playback, line: str) -> str:
    """What a line shows."""
    before = dict(play.simulation.snapshots)
    return text(scene.record_lines(play.change(line), play.entity, before, play.chart))


def test_back_is_the_play_without_its_last_line(play: Playback) -> None:
    """Everything is as it was: snapshot, clock, pending effects."""
    play.change("more n=2 code=x")
    play.change("go")
    before = (play.snapshot, play.simulation.time_ms, play.pending())
    play.change("advance 3s")

    assert "advance 3s" == play.back()
    assert before == (play.snapshot, play.simulation.time_ms, play.pending())


def test_back_at_the_beginning_is_refused(play: Playback) -> None:
    """There is nothing before it."""
    with pytest.raises(UsageError, match="this is the beginning"):
        play.back()


def test_back_forgets_a_verdict(play: Playback) -> None:
    """Deciding for a guard is a line like any other."""
    play.change("guard is_staff false")
    play.back()

    assert play.verdicts["is_staff"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("advance", "nothing waits for time"),
        ("advance 5", "is not a duration"),
        ("done nothing", "nothing is pending"),
        ("guard", "write: guard NAME true|false"),
        ("guard is_staff maybe", "write: guard NAME true|false"),
        ("send", "name the event to send"),
        ("go {", "neither JSON"),
        ("go 'a", "neither JSON"),
        ("go 1a=2", "neither JSON"),
        ("go word", "neither JSON"),
        ("go " + "[" * 100_000, "neither JSON"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_line_that_makes_no_sense_changes_nothing(play: Playback, line: str, words: str) -> None:
    """It is told what is wrong with it, and is not remembered."""
    before = play.snapshot
    with pytest.raises(UsageError, match=words.replace("|", r"\|")):
        play.change(line)

    assert (before, []) == (play.snapshot, play.lines)


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        ("", None),
        ('{"a": [1]}', {"a": [1]}),
        ("3", 3),
        ("a=1 b=x c='d e' d=true", {"a": 1, "b": "x", "c": "d e", "d": True}),
        ("code=007", {"code": "007"}),
        ("code=7 n=7", {"code": "7", "n": 7}),
    ],
)
def test_a_payload_is_json_or_pairs(typed: str, value: Any) -> None:
    """What reads as JSON is JSON, except in a field that is declared as a string."""
    assert value == payload(typed, frozenset({"code"}))


def test_pairs_know_which_fields_are_strings(play: Playback) -> None:
    """A code of digits stays a text."""
    assert 'context  text: null → "7"' in played(play, "more n=2 code=7")


def test_a_step_shows_its_effects_with_their_keys(play: Playback) -> None:
    """Each type of effect has its words."""
    opening = text(scene.record_lines(play.simulation.trace, play.entity, {}, play.chart))
    shown = played(play, "go")
    forwarded = played(play, "go")

    assert 'effect   log "hello"  key stage/1/1/0' in opening
    assert "effect   log n 0  key stage/1/1/1" in opening
    assert '  effect   message stage.two {"n":0}  key stage/1/2/0' in shown
    assert "  effect   timer tick due at 5s  key stage/1/2/1" in shown
    assert '  effect   invoke main.job: work.do {"n":0}  key stage/1/2/2' in shown
    assert "start of inner/child-" in shown
    assert "  effect   forward go to invoke child" in forwarded
    assert "  effect   send tick to #_parent" in forwarded


def test_leaving_shows_what_is_cancelled(play: Playback) -> None:
    """The timer and the invokes of the state that was left."""
    play.change("go")
    shown = played(play, "stop")

    assert "timer_cancel t" in shown
    assert "invoke_cancel child" in shown
    assert "ended    done, output 0" in shown
    assert "ended    cancelled" in shown


def test_a_failed_invoke_carries_code_and_text(play: Playback) -> None:
    """As a handler would have failed."""
    play.change("go")
    records = play.change("fail job busy come back later")
    event = records[0].event

    assert event is not None
    assert ("error.invoke.main.job", "busy", "come back later") == (
        event.name,
        event.data["code"],
        event.data["message"],
    )


def test_an_effect_is_answered_by_id_name_or_key(play: Playback) -> None:
    """Whatever the player has before the eyes; of a dotted id the last part will do."""
    for name in ("main.job", "job", "work.do", "stage/1/2/2"):
        play.change("go")
        play.change(f"done {name}")
        assert "done" == play.snapshot.ended
        play.back()
        play.back()


def test_an_unknown_effect_names_the_pending_ones(play: Playback) -> None:
    """The player sees what could be meant."""
    play.change("go")
    with pytest.raises(UsageError, match=r'no pending invoke or call "jbo"; pending are main\.job'):
        play.change("done jbo")


def test_what_waits_is_listed_soonest_first(play: Playback) -> None:
    """Timers, timeouts and answers."""
    play.change("go")
    play.change("advance 1s")

    assert [
        "  waits    timer tick, due at 5s (in 4s)",
        "  waits    timeout of invoke main.job, due at 30s (in 29s)",
        "  waits    invoke main.job, for: done main.job [JSON]",
    ] == text(scene.waiting_lines(play)).splitlines()


def test_events_are_accepted_refused_unknown_or_not_in_question(play: Playback) -> None:
    """With the guard that said no, and a question mark where the event itself decides."""
    play.change("guard is_staff false")

    assert [
        "  ✓ go     → two",
        "  ✓ more   → stays",
        '  ? big    → two  if "event.data.n > 3"',
        '  ✗ staff  → two  guard "is_staff" said no',
        '  ✗ odd    → two  guard "1 / context.n > 0" failed: division by zero',
        "  · not accepted here: stop",
    ] == text(scene.event_lines(play)).splitlines()


def test_what_code_would_bring_is_said_to_be_assumed(play: Playback) -> None:
    """Also what inline charts name."""
    assert [
        "  assumed  guards is_staff = true, inner_guard = true (change with: guard NAME false)",
        "  assumed  assigns tidy write nothing",
    ] == text(scene.assumption_lines(play)).splitlines()


def test_a_failing_guard_says_how(play: Playback) -> None:
    """An error is not the same as no."""
    failed, refused, passed = (played(play, line) for line in ("odd", "big n=2", "big n=4"))

    assert 'guard    "1 / context.n > 0" failed: division by zero' in failed
    assert 'guard    "event.data.n > 3" said no; event.data.n = 2' in refused
    assert "applied: one → two" in passed


def test_an_event_that_was_meant_differently_has_a_near_name(play: Playback) -> None:
    """Events and commands are both near."""
    assert ('did you mean "staff"?', 'did you mean "advance"?', None) == (
        play.meant("staf"),
        play.meant("advnce"),
        play.meant("go"),
    )


def test_undeclared_events_are_those_that_transitions_name() -> None:
    """Without a list in the chart; wildcards and the kernel's own events are none."""
    chart = "interlock: 1\nkind: k\nstates: {a: {on: {x: b, '*': b}, after: {1s: b}}, b: {}}\n"

    assert ["x"] == Playback(loads(chart)).events()


def test_an_empty_context_says_so() -> None:
    """Nothing printed would look like a failure."""
    play = Playback(loads("interlock: 1\nkind: k\nstates: {a: {}}\n"))

    assert "  the context is empty" == text(scene.context_lines(play.chart, play.snapshot))


def test_long_values_are_cut(play: Playback) -> None:
    """A megabyte in the context does not flood the screen."""
    assert len(scene.value_text("x" * 10_000)) == 200


def test_a_field_that_is_gone_is_told() -> None:
    """A context may lose a field only by an error at its beginning; the display does not hide it."""
    shown = text(scene.context_changes({"a": 1, "b": 1}, {"b": True}))

    assert ["  context  a: gone", "  context  b: 1 → true"] == shown.splitlines()


def test_inside_a_mapping_only_what_differs_is_told() -> None:
    """A large field with a small change is a small line."""
    before = {"saga": {"step": None, "done": {"a": None, "b": None}}}
    after = {"saga": {"step": "b", "done": {"a": 1, "b": None}}}

    assert ['  context  saga.step: null → "b"', "  context  saga.done.a: null → 1"] == text(
        scene.context_changes(before, after)
    ).splitlines()


def test_a_play_that_never_settles_is_left_as_it_was() -> None:
    """Two events that cause each other for ever end the line, not the play."""
    chart = "interlock: 1\nkind: k\nstates: {a: {on: {x: {actions: [{send: {event: x}}]}}}}\n"
    play = Playback(loads(chart))
    before = play.snapshot
    with pytest.raises(UsageError, match="keep each other busy"):
        play.change("x")

    assert (before, []) == (play.snapshot, play.lines)
    assert "ignored" not in played(play, "y")
