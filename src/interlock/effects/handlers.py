"""Handlers: registered functions run the work of named actions and invokes, once per attempt.

Rule 1: a handler starts only after the entry that asks for it is durable: only committed work can be claimed.
Rule 2: a result ends the work in the entry that records it. Success counts from any attempt, since the key was the
same; a failure only from the newest one. A result whose step cannot be stored is a failure, of an effect that was done.
Rule 3: a coroutine that exceeds its timeout, or gives no heartbeat in time, is cancelled; the process of a CPU handler
is killed. A thread cannot be stopped, nor can a coroutine that ignores its cancellation: such an attempt is the last
one, no second attempt starts, and its slot becomes free.
Rule 4: when a state is left, its invokes are cancelled: a coroutine is cancelled and a process killed, except for a
step of a saga, whose outcome must be known. A thread sees `cancelled` and is waited for, within its timeout, since it
will do its work in any case. A success after the cancellation is recorded in the journal, and a saga compensates it.
Rule 5: a process that lacks the entity's chart does not start the handler: it could not deliver the result.
Rule 6: a handler must return JSON of the size of an event, or what has a JSON form, such as a model; anything else is
an error that names the handler.
Rule 7: the details of a heartbeat are stored with the work when its lease is renewed, and given to the next attempt.
Rule 8: personal values of the input are opened for the attempt. What it raises may quote them: the code is kept, and
neither the message nor the details of its heartbeats are stored or logged.
Rule 9: when a result cannot be delivered because the store is unavailable or the entity is busy, delivery is tried
again while the lease is held. Only after `RESULT_TRIES_MAX` tries is the work postponed, and run again under its key.
Rule 10: where the program exports traces, each attempt of work that has a trace is a span, the handler runs inside it,
and the step of its result is below it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from interlock.effects.handler_calls import call_asynchronous, call_plain, is_asynchronous
from interlock.effects.lanes import RunningWork
from interlock.effects.pauses import HandlerPause, HandlerPauses, pause_end_ms, pause_of
from interlock.effects.retry import (
    LONGEST_WAIT,
    Failure,
    GiveUp,
    HandlerDefaults,
    HandlerFailed,
    RetryAt,
    code_of,
    decide_retry,
    failure_from,
    policy_of,
    shown_message,
    timeout_failure,
)
from interlock.effects.spans import start_caused
from interlock.effects.user_functions import HandlerThreads, call_in_loop, result_of
from interlock.effects.waiting import first_of, wait_or_timeout
from interlock.errors import ConflictError, InterlockError, RejectedError, UnavailableError, UsageError
from interlock.model.backoff import Backoff
from interlock.model.driver_events import COMPENSATION_FAILED, call_failed, invoke_done, invoke_failed
from interlock.model.encoding.codec import encode
from interlock.model.encoding.json_value import json_payload
from interlock.model.event import Event
from interlock.model.journal.attempts import PastAttempt
from interlock.model.journal.entry import Receipt
from interlock.model.journal.work import Work
from interlock.model.limits import ATTEMPTS_MAX, DETAILS_BYTES_MAX, POLL_MS_MAX, STOP_MS_MAX
from interlock.model.personal_token import contains_token
from interlock.ports.clock import Clock
from interlock.ports.delivery import CHART_MISSING_CODES, EventDelivery
from interlock.ports.meter import AttemptResult, Meter
from interlock.ports.threads import THREADS
from interlock.ports.tracer import Span, SpanKind, Tracer
from interlock.ports.work import Claim, Settlement, WorkQuery, WorkQueue

Handler = Callable[..., Any]
"""A registered function, from an attempt, or from its input and the attempt, to its result.

A coroutine function, an async generator, or one that runs in a thread.
"""

_log = logging.getLogger("interlock.effects")

_HEARTBEAT_CHECKS = 4
"""How often heartbeats are checked within their interval: silence is noticed at most a quarter late."""

RESULT_TRIES_MAX = 8
"""How often a result is delivered while its lease is held: for about ten seconds, which a database needs to restart."""

_RESULT_BACKOFF = Backoff(100, 5_000)
"""The wait before a result is delivered again."""

POOL_BUSY_CODES = frozenset({"pool.workers", "pool.full"})
"""Codes of the process pool when it cannot start an attempt now."""

UNSAID = "the handler had personal data; its message is not kept, because it may repeat them"
"""The message of a failure of a handler with personal input."""

RunInProcess = Callable[[Handler, "Attempt"], Awaitable[Any]]
"""Runs a function for an attempt in another process; cancelling it ends that process."""

IsCompensation = Callable[[Claim], Awaitable[bool]]
"""Whether a saga asked for this work to compensate one of its steps, whose key it then put into the input."""


class Attempt(Struct, frozen=True):
    """One attempt to run an effect, as a handler sees it.

    `key` is the same for every attempt: pass it to the service that performs the effect, so that a repeated request is
    performed once. `details` is what an earlier attempt last reported with a heartbeat: where to continue. `trace` is
    the W3C traceparent to pass on with requests to other services; None if what caused the effect had none.
    """

    entity: str
    name: str
    input: Any
    key: str
    number: int
    timeout_ms: int | None
    cancel_requested: asyncio.Event
    details: Any = None
    on_heartbeat: Callable[[Any], None] | None = None
    trace: str | None = None

    @property
    def cancelled(self) -> bool:
        """Whether the result is no longer needed: the state that requested it was exited."""
        return self.cancel_requested.is_set()

    def pause(self, *, until: timedelta | datetime | str, reason: str = "") -> HandlerPause:
        """Return what to raise when the service is overloaded: `raise attempt.pause(until=timedelta(seconds=30))`.

        `until` is a duration, such as "30s", or a datetime with its zone, at most a day away. It is not a failure and
        uses no try: the effect runs again under its key. Until then no worker starts this handler, for any entity;
        other processes notice it within a second. Raises UsageError for an invalid `until`.
        """
        return pause_of(until, reason)

    def heartbeat(self, details: Any = None) -> None:
        """Report that this attempt is alive, and its progress: small plain JSON, given to the next attempt if needed.

        May be called from any thread, and from a process of the pool. Details that cannot be stored are logged; the
        attempt continues.
        """
        if self.on_heartbeat is not None:
            self.on_heartbeat(details)


class HandlerRunner:
    """Runs the work of one runtime's handlers."""

    def __init__(
        self,
        functions: Mapping[str, Handler],
        delivery: EventDelivery,
        clock: Clock,
        *,
        key_prefix: str = "",
        is_compensation: IsCompensation | None = None,
        cpu_handlers: frozenset[str] = frozenset(),
        run_in_process: RunInProcess | None = None,
        heartbeats: Mapping[str, int] | None = None,
        defaults: Mapping[str, HandlerDefaults] | None = None,
        work: WorkQueue | None = None,
        pauses: HandlerPauses | None = None,
        meter: Callable[[], Meter | None] = lambda: None,
        tracer: Tracer | None = None,
    ) -> None:
        self._meter = meter
        self._pauses = pauses or HandlerPauses(clock, None)
        self._tracer = tracer
        self._functions = functions
        self._cpu_handlers = cpu_handlers
        self._coroutines = frozenset(name for name, each in functions.items() if is_asynchronous(each))
        self._run_in_process = run_in_process
        self._delivery = delivery
        self._clock = clock
        self._key_prefix = key_prefix
        self._is_compensation = is_compensation
        self._heartbeats = heartbeats or {}
        self._defaults = defaults or {}
        self._work = work
        self._threads = HandlerThreads()
        self._futures: set[asyncio.Future[Any]] = set()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the handlers. Work with other names waits for another process."""
        return tuple(self._functions)

    def has(self, name: str) -> bool:
        """Whether there is a handler of this name."""
        return name in self._functions

    async def perform(self, work: RunningWork) -> Settlement | None:
        """Run one attempt, from claim to result."""
        ended = await self.run(work)
        return ended if isinstance(ended, Settlement) else await self.conclude(work, ended)

    async def run(self, work: RunningWork) -> Settlement | Success | GiveUp:
        """Run one attempt; return its result for `conclude`, or how its claim is settled when there is none yet."""
        claim = work.claim
        details = await self._load_details(work)
        has_chart = await self._delivery.has_chart(claim.entity)  # without it the result could not be delivered
        if not has_chart or self._lacks_thread(claim):
            return self._postpone(work)
        failure = self._failure_before(claim)
        if failure is None:
            if claim.cancelled and not claim.work.is_saga_step:
                return Settlement(claim, "done")  # its worker died after the state was left: the result is not needed
            started_ms = self._clock.now_ms()
            try:
                outcome = await self._attempt_in_span(work, details)
            except UnavailableError as error:
                if error.code != THREADS:
                    raise
                _log.error("cannot start a thread", extra={"handler": claim.work.name, "error": error.message})
                return self._postpone(work)
            meter = self._meter()
            if meter is not None:
                kind, taken_ms = claim.entity.partition("/")[0], max(0, self._clock.now_ms() - started_ms)
                meter.attempted(kind, claim.work.name, _result_of(outcome), taken_ms)
            if isinstance(outcome, _Paused):
                return await self._pause(work, outcome.failure)
            if not isinstance(outcome, Success):
                next_ms = outcome.next_ms if isinstance(outcome, _RetryLater) else None
                self._record_failure(work, outcome.failure, started_ms, next_ms)
            elif work.failed_attempts:
                duration_ms = max(0, self._clock.now_ms() - started_ms)
                outcome = Success(outcome.value, PastAttempt(work.claim.attempt, started_ms, duration_ms))
        else:
            outcome = GiveUp(failure)
        work.deliver_result()
        if isinstance(outcome, _RetryLater):
            facts = _failure_facts(work, outcome.failure, **self._retry_facts(work.claim))
            return Settlement(work.claim, "again", outcome.next_ms, error=facts)
        return outcome

    async def conclude(self, work: RunningWork, ended: Success | GiveUp) -> Settlement | None:
        """Deliver the result of an attempt to the entity; None when the entry of the result has ended the work."""
        if isinstance(ended, GiveUp):
            return await self._fail(work, ended.failure)
        return await self._succeed(work, ended)

    def _record_failure(self, work: RunningWork, failure: Failure, started_ms: int, next_ms: int | None) -> None:
        """Record a failed attempt with its duration, to be stored with the work."""
        duration_ms = max(0, self._clock.now_ms() - started_ms)
        number = work.claim.attempt
        work.fail_attempt(PastAttempt(number, started_ms, duration_ms, failure.code, failure.message, next_ms))

    async def _pause(self, work: RunningWork, failure: Failure) -> Settlement:
        """Run it again when the pause of its handler ends; this does not count as an attempt."""
        now_ms = self._clock.now_ms()
        end_ms = pause_end_ms(now_ms, wait_ms=failure.pause_ms, until_ms=failure.pause_until_ms)
        await self._pauses.pause(work.claim.work.name, end_ms)
        facts = work.facts(code=failure.code, message=failure.message)
        return Settlement(work.claim, "again", end_ms, error=facts, without_failure=True, started=False)

    def _postpone(self, work: RunningWork) -> Settlement:
        """Try later; this does not count as an attempt."""
        next_ms = self._clock.now_ms() + POLL_MS_MAX
        return Settlement(work.claim, "again", next_ms, error=work.facts(), without_failure=True, started=False)

    def _lacks_thread(self, claim: Claim) -> bool:
        """Whether it needs a thread and none is left: too many were given up and still run."""
        name = claim.work.name
        if name in self._cpu_handlers or name in self._coroutines or not self._threads.is_full:
            return False
        _log.error("all handler threads are in use", extra={"handler": name, "threads": len(self._threads)})
        return True

    def _failure_before(self, claim: Claim) -> Failure | None:
        """Return why this attempt must not start."""
        if claim.attempt > ATTEMPTS_MAX:
            return Failure("lapsed", f"its workers died {ATTEMPTS_MAX} times")
        expired = claim.attempt > claim.failures + 1
        if expired and claim.work.body.get("restore") == "fail":
            return Failure("interrupted", "its worker died, and the chart does not allow a second run")
        if claim.cancelled and claim.work.is_saga_step:
            return Failure("lapsed", "the saga was left before the outcome of this step was known")
        return None

    # One attempt

    async def _attempt_in_span(self, work: RunningWork, details: Any) -> Success | _RetryLater | _Paused | GiveUp:
        """Run an attempt, in a span if the work has a trace and the program exports traces."""
        claim = work.claim
        if self._tracer is None or work.cause is None:
            return await self._attempt(work, details, None)
        now_ms = self._clock.now_ms()
        started = start_caused(self._tracer, "interlock.effect", SpanKind.CLIENT, work.cause, now_ms=now_ms)
        if started is None:
            return await self._attempt(work, details, None)
        span, work.cause = started.span, started.cause
        span.note(entity=claim.entity, effect=claim.work.name, key=claim.key, attempt=claim.attempt)
        try:
            outcome = await self._attempt(work, details, span)
        except BaseException as error:
            span.end(error=code_of(error))
            raise
        span.end(error=None if isinstance(outcome, Success) else outcome.failure.code)
        return outcome

    async def _attempt(
        self, work: RunningWork, details: Any, span: Span | None
    ) -> Success | _RetryLater | _Paused | GiveUp:
        claim = work.claim
        function = self._functions[claim.work.name]
        is_personal = contains_token(claim.work.body.get("input"))
        try:
            given = await self._input(claim, is_personal=is_personal)
        except RejectedError as error:  # its personal data was erased before it started
            return GiveUp(Failure(error.code, error.message, "no"))
        attempt = Attempt(
            claim.entity,
            claim.work.name,
            given,
            self._key(claim),
            claim.attempt,
            self._timeout_ms(claim),
            work.cancel_requested,
            details,
            partial(_record_personal_heartbeat if is_personal else _record_heartbeat, work),
            None if work.cause is None else work.cause.trace,
        )
        with nullcontext() if span is None else span.current():  # tasks and threads inherit it when they start
            call = self._start(function, attempt, work)
        try:
            result = await self._run_with_limits(call, work, attempt)
        except Exception as error:  # whatever a handler raises is its result
            if (
                isinstance(error, UnavailableError)
                and code_of(error) in POOL_BUSY_CODES
                and attempt.name in self._cpu_handlers
            ):
                raise  # it is postponed: the handler may not have been called
            raised = error.__cause__ if isinstance(error, HandlerFailed) else error
            if is_personal:
                return self._failed_with_personal_input(work, failure_from(error))
            if raised is not None and not isinstance(raised, InterlockError | HandlerPause):
                facts = {"handler": claim.work.name, "key": claim.key, "attempt": claim.attempt}
                _log.warning("a handler raised", exc_info=raised, extra=facts)
            failure = failure_from(error)
            return _Paused(failure) if failure.is_pause else self._decide(work.claim, failure)
        if isinstance(result, Failure):  # stopped; while it still runs no second attempt may start
            return GiveUp(result) if work.is_running else self._decide(work.claim, result)
        stored = handler_result(attempt.name, result)
        return GiveUp(stored) if isinstance(stored, Failure) else Success(stored)

    def _failed_with_personal_input(self, work: RunningWork, failure: Failure) -> _RetryLater | _Paused | GiveUp:
        """Return what follows a failure whose message may quote the personal input: it is neither stored nor logged."""
        claim = work.claim
        if failure.is_pause:
            return _Paused(replace(failure, message=""))
        facts = {"handler": claim.work.name, "key": claim.key, "attempt": claim.attempt, "code": failure.code}
        _log.warning("a handler with personal input raised; its message is not kept", extra=facts)
        return self._decide(claim, replace(failure, message=UNSAID))

    async def _load_details(self, work: RunningWork) -> Any:
        """Return the details that an earlier attempt reported; what the store has with the work is recorded."""
        if work.claim.attempt == 1 or self._work is None:
            return None
        page = await self._work.list_work(WorkQuery(entity=work.claim.entity, id=work.claim.work.id))
        stored = page.rows[0].error if page.rows else None
        if not isinstance(stored, dict):
            return None
        work.restore(stored)
        return stored.get("details")

    async def _run_with_limits(self, call: asyncio.Future[Any], work: RunningWork, attempt: Attempt) -> Any:
        """Return what the function returns; or, when it was stopped, a `Failure` with the reason."""
        limits: dict[asyncio.Future[Any], Failure] = {}
        is_task = isinstance(call, asyncio.Task)
        try:
            if is_task:
                await asyncio.sleep(0)  # it starts; one that does not wait has ended then, and needs no limits
            if not call.done():
                limits = self._limits(work, attempt, stoppable=is_task)
                await first_of(call, *limits)
            reached = [reason for each, reason in limits.items() if each.done() and not each.cancelled()]
            if not call.done():
                await self._wait_until_stopped(call, attempt)
            if call.done() and not call.cancelled():
                return result_of(call)
            return reached[0] if reached else Failure("cancelled", "stopped")
        finally:
            call.cancel()  # again: it may have caught the first cancellation
            if call.done():
                self._forget(call)
            else:  # it outlives its waiter, and the loop holds tasks weakly
                self._futures.add(call)
                call.add_done_callback(self._forget)

    def _limits(self, work: RunningWork, attempt: Attempt, *, stoppable: bool) -> dict[asyncio.Future[Any], Failure]:
        """Return what ends an attempt from outside, each with the failure it means."""
        limits: dict[asyncio.Future[Any], Failure] = {}
        timeout_ms, interval_ms = attempt.timeout_ms, self._heartbeats.get(attempt.name)
        if timeout_ms is not None:
            limits[asyncio.ensure_future(self._clock.sleep_ms(timeout_ms))] = timeout_failure(timeout_ms)
        if interval_ms is not None:
            silent = Failure("heartbeat", f"no heartbeat in {interval_ms} ms")
            limits[asyncio.ensure_future(self._wait_for_silence(work, interval_ms))] = silent
        if stoppable and not work.claim.work.is_saga_step:
            left = Failure("cancelled", "the state was left")
            limits[asyncio.ensure_future(attempt.cancel_requested.wait())] = left
        return limits

    async def _wait_for_silence(self, work: RunningWork, interval_ms: int) -> None:
        """Wait until there was no heartbeat for the interval, checked four times in that time."""
        silent, seen = 0, work.heartbeats
        while silent < _HEARTBEAT_CHECKS:  # it is cancelled when the attempt ends
            await self._clock.sleep_ms(interval_ms / _HEARTBEAT_CHECKS)
            silent, seen = (silent + 1, seen) if work.heartbeats == seen else (0, work.heartbeats)

    async def _wait_until_stopped(self, call: asyncio.Future[Any], attempt: Attempt) -> None:
        """Wait until a cancelled call has ended; one that does not end is left running."""
        await wait_or_timeout(self._clock.sleep_ms(STOP_MS_MAX), call)
        if not call.done():
            _log.error("a handler ignores its cancellation", extra={"handler": attempt.name, "key": attempt.key})

    def _start(self, function: Handler, attempt: Attempt, work: RunningWork) -> asyncio.Future[Any]:
        """Call the function; return the future of its result."""
        is_coroutine = attempt.name in self._coroutines
        if not is_coroutine and attempt.name not in self._cpu_handlers:
            call, ended = self._threads.run(partial(call_plain, function, attempt))
            work.start_attempt(ended)
            return call
        if is_coroutine:
            call = asyncio.ensure_future(call_in_loop(partial(call_asynchronous, function), attempt))
        else:
            assert self._run_in_process is not None  # CPU handlers come with a process pool
            call = asyncio.ensure_future(self._run_in_process(function, attempt))
        work.start_attempt(call)
        return call

    def _forget(self, call: asyncio.Future[Any]) -> None:
        self._futures.discard(call)
        if not call.cancelled():
            call.exception()  # mark it as retrieved: the waiter may have given up

    def _decide(self, claim: Claim, failure: Failure) -> _RetryLater | GiveUp:
        decision = decide_retry(
            policy_of(claim.work, self._defaults_of(claim)),
            failure,
            failures=claim.failures,
            attempts=claim.attempt,
            now_ms=self._clock.now_ms(),
            chance=self._clock.jitter(),
        )
        return _RetryLater(decision.next_ms, failure) if isinstance(decision, RetryAt) else decision

    def _defaults_of(self, claim: Claim) -> HandlerDefaults | None:
        return self._defaults.get(claim.entity.partition("/")[0])

    def _timeout_ms(self, claim: Claim) -> int | None:
        timeout_ms: int | None = claim.work.body.get("timeout_ms")
        defaults = self._defaults_of(claim)
        return defaults.timeout_ms if timeout_ms is None and defaults is not None else timeout_ms

    def _retry_facts(self, claim: Claim) -> dict[str, int]:
        """Return how often and how late the work is tried again, where the chart does not say it.

        Other processes show that, and must not mistake the wait for a wrong clock.
        """
        defaults = self._defaults_of(claim)
        policy = None if defaults is None or claim.work.body.get("retry") is not None else defaults.policy
        return {} if policy is None else {"retries": policy.retries_max, LONGEST_WAIT: round(policy.backoff.ms_max)}

    def _key(self, claim: Claim) -> str:
        return f"{self._key_prefix}{attempt_key(claim.work, claim.entity, claim.attempt)}"

    async def _input(self, claim: Claim, *, is_personal: bool) -> Any:
        """Return the input of the handler. In a compensation, `compensates` is the key that the other handler saw.

        An author's own input may have a field of that name too; which it is depends on who asked for the work.
        """
        given = claim.work.body.get("input")
        if is_personal:
            given = await self._delivery.opened(given)
        if not (self._key_prefix and isinstance(given, dict) and isinstance(given.get("compensates"), str)):
            return given
        if self._is_compensation is None or not await self._is_compensation(claim):
            return given
        return {**given, "compensates": f"{self._key_prefix}{given['compensates']}"}

    # Results

    async def _succeed(self, work: RunningWork, success: Success) -> Settlement | None:
        claim, last = work.claim, success.attempt
        attempts = () if last is None else (*work.failed_attempts, last)
        if _is_call(claim):
            return Settlement(claim, "done")
        try:
            event = invoke_done(claim.work.body["id"], claim.key, success.value)
            receipt = await self._deliver(work, event, attempts, fenced=False)
        except RejectedError as error:  # too large, perhaps: another attempt would give the same result
            return await self._fail(work, Failure(code_of(error), shown_message(error)))
        return None if receipt.outcome == "applied" else Settlement(claim, "done")

    async def _fail(self, work: RunningWork, failure: Failure) -> Settlement | None:
        """It failed for good: send the chart the error; if the chart does not handle it, it becomes a dead letter."""
        claim = work.claim
        if claim.cancelled and not claim.work.is_saga_step:
            return Settlement(claim, "done")
        if _is_call(claim):
            event = call_failed(claim.work.name, self._key(claim), failure.code)
        else:
            event = invoke_failed(
                claim.work.body["id"],
                claim.key,
                failure.code,
                failure.message,
                done=failure.done,
                attempts=claim.attempt,
            )
        try:
            receipt = await self._deliver(work, event, work.failed_attempts, fenced=True)
        except RejectedError:
            return Settlement(claim, "dead", error=_failure_facts(work, failure))
        if receipt.outcome in ("applied", "duplicate"):
            return None
        if _is_call(claim) or receipt.reason == COMPENSATION_FAILED:  # no chart handles either
            return Settlement(claim, "dead", error=_failure_facts(work, failure))
        return Settlement(claim, "done")

    async def _deliver(
        self, work: RunningWork, event: Event, attempts: tuple[PastAttempt, ...], *, fenced: bool
    ) -> Receipt:
        """Deliver a result; `fenced`: only from the newest attempt, whichever that is then. Raises as delivery does."""
        failures = 0
        while True:  # ends with a receipt, or with the last try
            claim = work.claim
            work_id, fence = claim.work.id, claim.attempt if fenced else None
            try:
                return await self._delivery.deliver(
                    claim.entity,
                    event,
                    key=work_id.result_key,
                    finishes=work_id,
                    fence=fence,
                    cause=work.cause,
                    attempts=attempts,
                )
            except (ConflictError, UnavailableError) as error:
                failures += 1
                if error.code in CHART_MISSING_CODES or failures == RESULT_TRIES_MAX:
                    raise
            await self._clock.sleep_ms(_RESULT_BACKOFF.wait_ms(failures - 1, self._clock.jitter()))


class Success(Struct, frozen=True):
    """What a handler returned, as JSON; and its attempt, if earlier ones failed."""

    value: Any
    attempt: PastAttempt | None = None


class _RetryLater(Struct, frozen=True):
    """The next attempt may start at this time; the failure of this one is stored meanwhile."""

    next_ms: int
    failure: Failure


class _Paused(Struct, frozen=True):
    """The handler asks to be called later."""

    failure: Failure


def _result_of(outcome: Success | GiveUp | _RetryLater | _Paused) -> AttemptResult:
    """Return how an attempt ended, in the words of metrics."""
    if isinstance(outcome, Success):
        return "ok"
    if isinstance(outcome, _RetryLater):
        return "retry"
    return "paused" if isinstance(outcome, _Paused) else "failed"


def _failure_facts(work: RunningWork, failure: Failure, **more: int) -> dict[str, Any] | None:
    attempts = work.claim.attempt
    return work.facts(code=failure.code, message=failure.message, attempts=attempts, done=failure.done, **more)


def _record_heartbeat(work: RunningWork, details: Any) -> None:
    """Record a heartbeat, from any thread. Its details are encoded here: the handler may change them afterwards."""
    problem = encoded = None
    try:
        details = json_payload(details, what="it", code="heartbeat.details")
        encoded = None if details is None else encode(details)
    except UsageError as error:
        problem = error.message
    if encoded is not None and len(encoded) > DETAILS_BYTES_MAX:
        problem, encoded = f"{len(encoded):,} bytes exceed the limit of {DETAILS_BYTES_MAX:,}", None
    work.beat(encoded)
    if problem is not None:
        facts = {"entity_id": work.claim.entity, "key": work.claim.key, "problem": problem}
        _log.warning("the details of a heartbeat cannot be stored", extra=facts)


def _record_personal_heartbeat(work: RunningWork, details: Any) -> None:
    """Record a heartbeat of a handler with personal input. Its details may repeat the input, so they are not stored."""
    work.beat(None)
    if details is not None:
        facts = {"entity_id": work.claim.entity, "key": work.claim.key}
        _log.warning("the details of a handler with personal input are not stored", extra=facts)


def _is_call(claim: Claim) -> bool:
    return "id" not in claim.work.body


def attempt_key(work: Work, entity: str, number: int) -> str:
    """Return the key that a handler sees: the author's, or that of the work; a new one per attempt on request."""
    key = work.body.get("key") or work.key(entity)
    return f"{key}~{number}" if work.body.get("restore") == "restart" else str(key)


def handler_result(handler: str, result: object) -> Any | Failure:
    """Return what a handler returned as JSON, or the failure of a handler whose result cannot be stored."""
    try:
        return json_payload(result, what=f"the result of `{handler}`", code="result.malformed")
    except UsageError as error:
        return Failure("result.malformed", str(error))
