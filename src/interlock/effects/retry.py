"""Whether a failed attempt is tried again, and when: the retry policy of an effect, as pure arithmetic.

Rule 1: an error that says nothing was done (RejectedError, DeniedError, UsageError ...) is final immediately: `done:
no`.
Rule 2: after any other error the effect may have happened. It is tried again while the policy has tries left, then
`done: unknown`.
Rule 3: an expired lease is not a failure and costs no try; otherwise an effect without a policy would not run at least
once. But work that keeps killing its workers ends after `ATTEMPTS_MAX` attempts.
Rule 4: the policy of an effect is the one in its chart; else the default that the program set for the chart, then for
the runtime (`HandlerDefaults`); else the built-in one. The same order holds for the time limit of an attempt.
Rule 5: the texts of an exception are made storable here (`model.storable`), once, before anything is decided: a code
that cannot be encoded must not keep a final rejection from its `onError`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from msgspec import Struct

from interlock.effects.pauses import PAUSED, HandlerPause
from interlock.errors import (
    CorruptionError,
    DefinitionError,
    DeniedError,
    InterlockError,
    MissingExtraError,
    NotFoundError,
    RejectedError,
    UsageError,
)
from interlock.model.backoff import Backoff
from interlock.model.duration import parse_duration
from interlock.model.encoding.storable import describe, storable_code, storable_text
from interlock.model.journal.work import Work
from interlock.model.limits import ATTEMPTS_MAX

TERMINAL = (
    CorruptionError,
    DefinitionError,
    DeniedError,
    MissingExtraError,
    NotFoundError,
    RejectedError,
    UsageError,
)
"""The errors by which a handler says that nothing was done and that a retry will not help."""


LONGEST_WAIT = "wait_ms_max"
"""What is stored with failed work whose policy is a default of the program: other processes do not know that one."""


class RetryPolicy(Struct, frozen=True):
    """How an effect is tried again: tries after the first, the waits between them, and the codes it applies to."""

    retries_max: int = 0
    backoff: Backoff = Backoff(1_000, 60_000)
    codes: tuple[str, ...] | None = None


CALL_POLICY = RetryPolicy(retries_max=5)
"""For a named action, which has no `id` and no policy in the chart: tried again for about half a minute."""


class Failure(Struct, frozen=True):
    """Why an attempt failed: a code, a message, and whether anything may have been done."""

    code: str
    message: str
    done: Literal["no", "unknown"] = "unknown"
    pause_ms: int | None = None
    pause_until_ms: int | None = None

    @property
    def is_pause(self) -> bool:
        """Whether the handler only asks to be called later, after `pause_ms` or at `pause_until_ms`: not a failure."""
        return self.pause_ms is not None or self.pause_until_ms is not None


class HandlerFailed(Exception):
    """A handler failed in another process, or with an exception that would end more than the handler."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class RetryAt(Struct, frozen=True):
    """The next attempt may start at this time."""

    next_ms: int


class GiveUp(Struct, frozen=True):
    """There is no next attempt."""

    failure: Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerDefaults:
    """The retry policy and the time limit of handlers whose chart sets none: for one chart, or for a whole runtime.

    `retry` has the keys of `retry` in a chart: `max`, `backoff`, `jitter`, `on`. `timeout` is a duration. Raises
    UsageError for an invalid value.

        order.handler_defaults = interlock.HandlerDefaults(retry={"max": 3, "backoff": "1s..30s"}, timeout="20s")
    """

    retry: Mapping[str, Any] | None = None
    timeout: str | None = None

    def __post_init__(self) -> None:
        problem = None if self.retry is None else _policy_problem(self.retry)
        if problem is not None:
            hint = 'write retry={"max": 3, "backoff": "1s..30s"}'
            raise UsageError(f"invalid default retry policy: {problem}", code="handler.defaults", hint=hint)
        if self.timeout is not None and not self.timeout_ms:
            message = f"invalid default timeout of handlers: {self.timeout!r:.60} is not a duration above zero"
            raise UsageError(message, code="handler.defaults", hint='write timeout="30s"')

    @property
    def policy(self) -> RetryPolicy | None:
        """The retry policy; None when there is no default."""
        return None if self.retry is None else _policy_from(self.retry)

    @property
    def timeout_ms(self) -> int | None:
        """The time limit of an attempt; None when there is no default."""
        given: object = self.timeout
        return parse_duration(given) if isinstance(given, str) else None

    def over(self, other: HandlerDefaults | None) -> HandlerDefaults:
        """Return these defaults, with missing values taken from others."""
        if other is None:
            return self
        return HandlerDefaults(
            retry=other.retry if self.retry is None else self.retry,
            timeout=other.timeout if self.timeout is None else self.timeout,
        )


def _policy_problem(retry: object) -> str | None:
    """Return what is wrong with a retry policy; None for a valid one. The rules are those of charts."""
    if not isinstance(retry, Mapping):
        return f"expected a mapping, got {retry!r:.60}"
    unknown = [each for each in retry if each not in ("max", "backoff", "jitter", "on")]
    if unknown:
        return f"unknown key `{unknown[0]}`"
    if type(retry.get("max")) is not int or retry["max"] < 0:
        return "`max` must be a whole number of retries"
    backoff, codes = retry.get("backoff"), retry.get("on")
    if backoff is not None:
        parts = [parse_duration(each) for each in backoff.split("..")] if isinstance(backoff, str) else []
        if len(parts) not in (1, 2) or None in parts:
            return f"`backoff` {backoff!r:.60} is not a duration or a range of durations"
        if sorted(parts, key=lambda each: each or 0) != parts:
            return f"`backoff` {backoff!r:.60} decreases"
    if retry.get("jitter") not in (None, "full", "none"):
        return "`jitter` must be `full` or `none`"
    if codes is not None and not (isinstance(codes, list | tuple) and all(isinstance(each, str) for each in codes)):
        return "`on` must be a list of error codes"
    return None


def policy_of(work: Work, defaults: HandlerDefaults | None = None) -> RetryPolicy:
    """Return the policy of an effect: the one in its chart, else the default, else the one of invokes or of calls."""
    body = work.body if isinstance(work.body, dict) else {}
    retry = body.get("retry")
    if retry is not None:
        return _policy_from(retry)
    policy = None if defaults is None else defaults.policy
    if policy is not None:
        return policy
    return RetryPolicy() if "id" in body else CALL_POLICY


def _policy_from(retry: Mapping[str, Any]) -> RetryPolicy:
    low, _, high = (retry.get("backoff") or "1s..1m").partition("..")
    shortest = parse_duration(low) or 0
    longest = (parse_duration(high) or shortest) if high else shortest
    codes = retry.get("on")
    return RetryPolicy(
        retries_max=retry["max"],
        backoff=Backoff(min(shortest, longest), longest, jitter=0.0 if retry.get("jitter") == "none" else 1.0),
        codes=None if codes is None else tuple(codes),
    )


def failure_from(error: BaseException) -> Failure:
    """Return the failure that an exception of a handler describes."""
    if isinstance(error, HandlerFailed):
        return error.failure
    if isinstance(error, HandlerPause):
        return Failure(PAUSED, error.reason, "no", error.wait_ms, error.until_ms)
    return Failure(code_of(error), describe(error), "no" if isinstance(error, TERMINAL) else "unknown")


def timeout_failure(timeout_ms: int) -> Failure:
    """Return the failure of an attempt or a child that gave no result in time."""
    return Failure("timeout", f"no result in {timeout_ms} ms")


def code_of(error: BaseException) -> str:
    """Return the code of an exception: its own if it is one of ours and has a usable one, else its class name."""
    name = storable_code(type(error).__name__, "error")
    if not isinstance(error, InterlockError):
        return name
    try:
        return storable_code(error.code, storable_code(type(error).code, name))
    except Exception:  # noqa: BLE001 - `code` of a subclass may be a property, and raise anything
        return name


def error_facts(error: InterlockError) -> dict[str, str]:
    """Return what is stored with work that failed with one of our errors: code, message, and hint if there is one."""
    facts = {"code": code_of(error), "message": shown_message(error)}
    hint = getattr(error, "hint", None)
    return facts if hint is None else {**facts, "hint": describe(hint)}


def shown_message(error: InterlockError) -> str:
    """Return the message of one of our errors, without its hint."""
    return describe(getattr(error, "message", type(error).__name__))  # a subclass may skip our constructor


def as_handler_failure(error: BaseException) -> HandlerFailed:
    """Return the failure for an exception that is not an `Exception`: it may pass, and something may be done."""
    name = storable_code(type(error).__name__, "error")
    return HandlerFailed(Failure(name, storable_text(f"the handler raised {describe(error, repr)}")))


def decide_retry(
    policy: RetryPolicy, failure: Failure, *, failures: int, attempts: int, now_ms: int, chance: float
) -> RetryAt | GiveUp:
    """Decide after a failed attempt. `failures` came before it; `attempts` were started so far, including this one."""
    applies = policy.codes is None or failure.code in policy.codes
    if failure.done == "no" or not applies or failures >= policy.retries_max or attempts >= ATTEMPTS_MAX:
        return GiveUp(failure)
    return RetryAt(now_ms + round(policy.backoff.wait_ms(failures, chance)))
