"""S30 and S31: how long an invoke runs, and what comes back from it."""

from __future__ import annotations

from tests.conformance.semantics.life import Life

JOB = """
states:
  a:
    invoke: {id: job, src: work, onDone: {target: b, actions: [{log: "= event.data"}]}, onError: c}
    on: {e: a2, again: {target: a, reenter: true}}
  a2: {on: {back: a}}
  b: {}
  c: {entry: [{log: "= event.data.code"}]}
"""


def test_s30_an_invoke_starts_and_ends_with_its_state() -> None:
    life = Life(JOB)
    key = life.effects("invoke")[0].key
    life.send("e")

    assert "tale/1/1/1" == key
    assert [{"id": "job", "key": key}] == [each.payload for each in life.effects("invoke_cancel")]
    assert () == life.step.snapshot.invokes


def test_s30_a_state_entered_and_left_in_one_step_starts_no_invoke() -> None:
    life = Life("states: {a: {invoke: {id: job, src: w}, always: b}, b: {}}")

    assert ([], []) == (life.effects("invoke"), life.effects("invoke_cancel"))


def test_s30_the_id_is_made_of_state_version_and_ordinal() -> None:
    """If the author gave none (W3C 224 requires that it starts with the state)."""
    life = Life("context: {i: {}}\nstates: {a: {invoke: {src: w, idLocation: i}}}")

    assert ("a.1.1", "a.1.1") == (life.effects("invoke")[0].payload["id"], life.context["i"])


def test_s30_a_result_ends_the_invoke() -> None:
    life = Life("states: {a: {invoke: {id: job, src: w, onDone: {actions: [got]}}, on: {e: b}}, b: {}}")

    assert "got" == life.answer(life.invoke("job"))
    assert () == life.step.snapshot.invokes
    life.send("e")
    assert [] == life.effects("invoke_cancel")


def test_s30_the_result_of_a_cancelled_invoke_is_ignored_but_kept() -> None:
    """Reason `invoke_gone`; it is journaled, so the version increases (W3C 252)."""
    life = Life(JOB)
    job = life.invoke("job")
    life.send("e")
    version = life.step.snapshot.version

    assert "" == life.answer(job)
    assert ("ignored invoke_gone", version + 1) == (life.verdict, life.step.snapshot.version)


def test_s30_the_result_of_a_replaced_invoke_is_not_that_of_its_successor() -> None:
    life = Life(JOB)
    old = life.invoke("job")
    life.send("again")

    life.answer(old)
    assert ("ignored invoke_gone", "a") == (life.verdict, life.states)
    life.answer(life.invoke("job"), data=1)
    assert "b" == life.states


def test_s30_what_a_child_sent_as_it_ended_is_delivered_although_the_state_is_gone() -> None:
    """There was nothing left to cancel (W3C 236)."""
    life = Life("states: {a: {invoke: {id: job, src: w}, on: {e: b}}, b: {on: {news: {actions: [heard]}}}}")
    job = life.invoke("job")
    life.send("e")

    assert "heard" == life.answer(job, "news", last=True)


def test_s30_a_message_does_not_end_the_invoke() -> None:
    life = Life("states: {a: {invoke: {id: job, src: w}, on: {news: {actions: [heard]}}}}")

    assert "heard" == life.answer(life.invoke("job"), "news")
    assert ["job"] == [each.id for each in life.step.snapshot.invokes]


def test_s31_done_carries_the_result_as_data() -> None:
    """`done.invoke.<id>`."""
    life = Life(JOB)

    assert "-a 5 +b" == life.answer(life.invoke("job"), data=5)


def test_s31_error_carries_the_code() -> None:
    """`error.invoke.<id>` with code, message, attempts and whether it may have been done."""
    life = Life(JOB)
    data = {"code": "timeout", "message": "too slow", "attempts": 3, "done": "unknown"}

    assert "-a +c timeout" == life.answer(life.invoke("job"), "error", data)


def test_s31_onDone_takes_exactly_its_own_invoke() -> None:  # noqa: N802  the key is written so
    """`done.invoke.job.2` is not `done.invoke.job` (section 4)."""
    life = Life("""
        states:
          a: {invoke: [{id: job, src: w, onDone: {actions: [one]}}, {id: job.2, src: w, onDone: {actions: [two]}}]}
        """)

    assert "two" == life.answer(life.invoke("job.2"))


def test_s31_an_unhandled_result_is_ignored() -> None:
    life = Life("states: {a: {invoke: {id: job, src: w}}}")
    life.answer(life.invoke("job"))

    assert ("ignored no_transition", ()) == (life.verdict, life.step.snapshot.invokes)
