"""Whether a failed attempt is made again, and when: the policy of an effect, as pure arithmetic.

Rule 1: what the handler says it did not do (RejectedError, DeniedError, UsageError ...) is final at once: `done: no`.
Rule 2: anything else may have happened: it is tried again while the policy has tries left, then `done: unknown`.
Rule 3: a lapsed lease is no failure and costs no try, or an effect without a policy would not be done at least once;
but what keeps killing its workers ends after `ATTEMPTS_MAX` attempts.
Rule 4: whatever an exception says is made storable here (`model.storable`), once, before anything is decided: a code
that cannot be encoded must not keep a final rejection from its `onError`.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

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
from interlock.model.duration import parse_duration
from interlock.model.limits import ATTEMPTS_MAX
from interlock.model.storable import describe, storable_code, storable_text

TERMINAL = (
    CorruptionError,
    DefinitionError,
    DeniedError,
    MissingExtraError,
    NotFoundError,
    RejectedError,
    UsageError,
)
"""What a handler raises to say that nothing was done and that trying again will not help."""


class RetryPolicy(Struct, frozen=True):
    """How an effect is tried again: tries after the first, the range of waits, chance, and the codes it is for."""

    retries_max: int = 0
    backoff_ms_min: int = 1_000
    backoff_ms_max: int = 60_000
    full_jitter: bool = True
    codes: tuple[str, ...] | None = None


CALL_POLICY = RetryPolicy(retries_max=5)
"""For a named action, of which a chart says nothing: tried again, for half a minute at most."""


class Failure(Struct, frozen=True):
    """Why an attempt failed: a code, a message, and whether anything may have been done."""

    code: str
    message: str
    done: Literal["no", "unknown"] = "unknown"


class HandlerFailed(Exception):
    """A handler failed in another process, or by what would have ended more than it; here is what it said."""

    def __init__(self, failed: Failure) -> None:
        super().__init__(failed.message)
        self.failed = failed


class RetryAt(Struct, frozen=True):
    """The next attempt may begin at this time."""

    next_ms: int


class GiveUp(Struct, frozen=True):
    """There is no next attempt."""

    failed: Failure


def retry_policy(payload: dict[str, Any], *, otherwise: RetryPolicy) -> RetryPolicy:
    """The policy that an effect's payload states; `otherwise` when it states none."""
    stated = payload.get("retry")
    if stated is None:
        return otherwise
    low, _, high = (stated.get("backoff") or "1s..1m").partition("..")
    shortest = parse_duration(low) or 0
    codes = stated.get("on")
    return RetryPolicy(
        retries_max=stated["max"],
        backoff_ms_min=shortest,
        backoff_ms_max=(parse_duration(high) or shortest) if high else shortest,
        full_jitter=stated.get("jitter") != "none",
        codes=None if codes is None else tuple(codes),
    )


def failure_from(error: BaseException) -> Failure:
    """What an exception of a handler says."""
    if isinstance(error, HandlerFailed):
        return error.failed
    return Failure(code_of(error), describe(error), "no" if isinstance(error, TERMINAL) else "unknown")


def code_of(error: BaseException) -> str:
    """The code of an exception: its own, if it is one of ours and has a usable one, else that of its class."""
    name = storable_code(type(error).__name__, "error")
    if not isinstance(error, InterlockError):
        return name
    try:
        return storable_code(error.code, storable_code(type(error).code, name))
    except Exception:  # noqa: BLE001 - `code` of a subclass may be a property, and raise anything
        return name


def error_facts(error: InterlockError) -> dict[str, str]:
    """What is stored beside work that failed with one of our errors: code, message, and hint if there is one."""
    facts = {"code": code_of(error), "message": shown_message(error)}
    hint = getattr(error, "hint", None)
    return facts if hint is None else {**facts, "hint": describe(hint)}


def shown_message(error: InterlockError) -> str:
    """The message of one of our errors, without its hint."""
    return describe(getattr(error, "message", type(error).__name__))  # a subclass need not call our constructor


def as_handler_failure(error: BaseException) -> HandlerFailed:
    """The failure that an exception stands for which is no `Exception`: it may pass, and something may be done."""
    name = storable_code(type(error).__name__, "error")
    return HandlerFailed(Failure(name, storable_text(f"the handler raised {describe(error, repr)}")))


def decide_retry(
    policy: RetryPolicy, failed: Failure, *, failures: int, attempts: int, now_ms: int, jitter: float
) -> RetryAt | GiveUp:
    """What follows a failed attempt, with `failures` before it and `attempts` begun so far, this one among them."""
    wanted = policy.codes is None or failed.code in policy.codes
    if failed.done == "no" or not wanted or failures >= policy.retries_max or attempts >= ATTEMPTS_MAX:
        return GiveUp(failed)
    return RetryAt(now_ms + backoff_ms(policy, failures, jitter))


def backoff_ms(policy: RetryPolicy, failures: int, jitter: float) -> int:
    """The wait before the next attempt: doubling from the shortest to the longest; with full jitter, up to that."""
    longest: int = min(policy.backoff_ms_max, policy.backoff_ms_min << min(failures, 40))
    return round(longest * jitter) if policy.full_jitter else longest
