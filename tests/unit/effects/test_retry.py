"""Whether a failed attempt is made again, and when."""

from __future__ import annotations

from typing import Any

import pytest

from interlock.effects.retry import (
    CALL_POLICY,
    Failure,
    GiveUp,
    HandlerDefaults,
    RetryAt,
    RetryPolicy,
    decide_retry,
    error_facts,
    failure_from,
    policy_of,
)
from interlock.errors import RejectedError, UnavailableError, UsageError
from interlock.model.backoff import Backoff
from interlock.model.encoding.codec import encode
from interlock.model.journal.work import Work, WorkId
from interlock.model.limits import ATTEMPTS_MAX

LOST = Failure("ConnectionError", "gone")
THREE = RetryPolicy(retries_max=3, backoff=Backoff(100, 1_000, jitter=0.0))


def work(body: object) -> Work:
    """An effect with this payload."""
    return Work(WorkId("effect", 1, 0), "f", body, 0)


def test_a_named_action_without_a_policy_is_tried_again_and_an_invoke_is_not() -> None:
    assert 0 == policy_of(work({"id": "i", "src": "f"})).retries_max
    assert CALL_POLICY == policy_of(work({"name": "f"})) == policy_of(work(None))


@pytest.mark.parametrize(
    ("stated", "policy"),
    [
        ({"max": 2, "backoff": "1s..30s", "jitter": "full", "on": None}, RetryPolicy(2, Backoff(1_000, 30_000))),
        (
            {"max": 2, "backoff": "250ms", "jitter": "none", "on": ["E1"]},
            RetryPolicy(2, Backoff(250, 250, 0.0), ("E1",)),
        ),
        ({"max": 1, "backoff": None, "jitter": None, "on": None}, RetryPolicy(1, Backoff(1_000, 60_000))),
        ({"max": 1, "backoff": "1m..1s", "jitter": None, "on": None}, RetryPolicy(1, Backoff(1_000, 1_000))),
    ],
)
def test_a_policy_is_read_from_the_payload(stated: dict[str, object], policy: RetryPolicy) -> None:
    assert policy == policy_of(work({"id": "i", "retry": stated}))


def test_a_failure_is_tried_again_while_tries_are_left() -> None:
    """Then it is spent, and perhaps done."""
    answers = [decide_retry(THREE, LOST, failures=n, attempts=n + 1, now_ms=5, chance=1.0) for n in range(4)]

    assert [RetryAt(105), RetryAt(205), RetryAt(405), GiveUp(LOST)] == answers


def test_a_rejection_by_the_handler_is_final() -> None:
    refused = failure_from(RejectedError("no such card", code="card.unknown"))

    assert Failure("card.unknown", "no such card", "no") == refused
    assert GiveUp(refused) == decide_retry(THREE, refused, failures=0, attempts=1, now_ms=0, chance=1.0)


def test_any_other_error_may_be_done() -> None:
    assert Failure("unavailable", "later", "unknown") == failure_from(UnavailableError("later", code="unavailable"))
    assert Failure("KeyError", "'x'", "unknown") == failure_from(KeyError("x"))


def test_a_policy_may_name_the_codes_it_is_for() -> None:
    """Others are final."""
    policy = RetryPolicy(retries_max=3, codes=("Timeout",))

    assert GiveUp(LOST) == decide_retry(policy, LOST, failures=0, attempts=1, now_ms=0, chance=0.0)


def test_work_that_keeps_killing_its_workers_ends() -> None:
    assert GiveUp(LOST) == decide_retry(THREE, LOST, failures=0, attempts=ATTEMPTS_MAX, now_ms=0, chance=0.0)


class Sealed(RejectedError):
    """A rejection whose code is a property that fails."""

    @property
    def code(self) -> str:
        raise LookupError("detached")

    @code.setter
    def code(self, value: str) -> None: ...


class Bare(RejectedError):
    """A rejection that never called the constructor of its class."""

    def __init__(self) -> None: ...


def _coded(code: object) -> RejectedError:
    return RejectedError("declined", code=code)  # type: ignore[arg-type]  # what an untyped handler may do


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (_coded("bank.\ud83d"), "bank.\\ud83d"),
        (_coded("a\0b"), "a\\x00b"),
        (_coded("x" * 1_000_000), "x" * 199 + "…"),
        (_coded(402), "rejected"),
        (_coded(["bank"]), "rejected"),
        (Sealed("declined"), "Sealed"),
        (Bare(), "rejected"),
    ],
    ids=["surrogate", "nul", "megabyte", "number", "list", "property", "no constructor"],
)
def test_a_rejection_is_final_whatever_its_code(error: RejectedError, code: str) -> None:
    failed = failure_from(error)

    assert (code, "no") == (failed.code, failed.done)
    assert encode(failed)
    assert GiveUp(failed) == decide_retry(THREE, failed, failures=0, attempts=1, now_ms=0, chance=1.0)


def test_stored_errors_are_limited_in_size() -> None:
    long = error_facts(UnavailableError("m" * 9_999, code="c\ud83d", hint="h\0"))

    assert ("c\\ud83d", "m" * 499 + "…", "h\\x00") == (long["code"], long["message"], long["hint"])
    odd = UnavailableError(7)  # type: ignore[arg-type]  # what an untyped handler may do
    assert {"code": "unavailable", "message": "7"} == error_facts(odd)


def test_defaults_count_where_the_chart_sets_no_policy() -> None:
    defaults = HandlerDefaults(retry={"max": 7, "backoff": "2s", "jitter": "none"}, timeout="20s")

    assert RetryPolicy(7, Backoff(2_000, 2_000, jitter=0.0)) == policy_of(work({"id": "i", "src": "f"}), defaults)
    assert 7 == policy_of(work({"name": "f"}), defaults).retries_max
    assert 1 == policy_of(work({"id": "i", "src": "f", "retry": {"max": 1}}), defaults).retries_max
    assert 5 == policy_of(work({"name": "f"}), HandlerDefaults(timeout="20s")).retries_max
    assert (20_000, None) == (defaults.timeout_ms, HandlerDefaults().timeout_ms)


def test_defaults_of_a_chart_come_before_those_of_a_runtime() -> None:
    chart, runtime = HandlerDefaults(timeout="5s"), HandlerDefaults(retry={"max": 2}, timeout="9s")

    assert HandlerDefaults(retry={"max": 2}, timeout="5s") == chart.over(runtime)
    assert chart == chart.over(None)


@pytest.mark.parametrize(
    "given",
    [
        {"retry": 3},
        {"retry": {}},
        {"retry": {"max": -1}},
        {"retry": {"max": True}},
        {"retry": {"max": 1, "times": 2}},
        {"retry": {"max": 1, "backoff": "5s..1s"}},
        {"retry": {"max": 1, "backoff": "soon"}},
        {"retry": {"max": 1, "backoff": 3}},
        {"retry": {"max": 1, "jitter": "some"}},
        {"retry": {"max": 1, "on": "timeout"}},
        {"timeout": "0s"},
        {"timeout": "soon"},
        {"timeout": 30},
    ],
)
def test_invalid_defaults_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        HandlerDefaults(**given)
    assert "handler.defaults" == caught.value.code
