"""Handlers: the work of named actions and invokes performed by registered functions, once per attempt.

Rule 1: a handler begins only after the entry that asks for it is durable: only committed work can be claimed.
Rule 2: a result ends the work in the entry that brings it. Success counts from any attempt, since the key was the same;
a failure only from the newest one. A result whose step cannot be kept at all is a failure, of a deed that was done.
Rule 3: a coroutine that takes too long, or gives no sign of life for its `heartbeat`, is cancelled, and the process of
a busy one killed. A thread cannot be stopped, nor a coroutine that swallows its cancellation: such an attempt is the
last one, with no second run beside it, and gives its place free.
Rule 4: a state that was left calls its invokes off: a coroutine is cancelled and a process killed, unless it is a step
of a saga, which must know whether it was done. A thread sees `cancelled` and is waited for, within its timeout: it does
its deed in any case. What succeeds all the same is told: the journal shows it, and a saga makes up for it.
Rule 5: a process that does not have the entity's chart does not begin: it could not bring the result back.
Rule 6: what a handler returns must be plain JSON of an event's size; anything else is an error that names it.
Rule 7: what a heartbeat tells is kept with the work when its lease is renewed, and handed to the next attempt.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from inspect import iscoroutinefunction
from typing import Any

from msgspec import Struct

from interlock.effects.handler_threads import HandlerThreads
from interlock.effects.lanes import RunningWork
from interlock.effects.results import ResultDelivery
from interlock.effects.retry import (
    CALL_POLICY,
    Failure,
    GiveUp,
    HandlerFailed,
    RetryAt,
    RetryPolicy,
    code_of,
    decide_retry,
    failure_from,
    retry_policy,
    shown_message,
)
from interlock.effects.user_functions import call_in_loop, result_of
from interlock.errors import InterlockError, RejectedError, UnavailableError, UsageError
from interlock.model.codec import encode
from interlock.model.driver_events import COMPENSATION_FAILED, call_failed, invoke_done, invoke_failed
from interlock.model.json_value import payload_refusal
from interlock.model.limits import ATTEMPTS_MAX, DETAILS_BYTES_MAX, LOOK_MS_MAX, STOP_MS_MAX
from interlock.ports.clock import Clock
from interlock.ports.delivery import EventDelivery
from interlock.ports.threads import THREADS
from interlock.ports.work import Claim, Settlement, WorkQuery, WorkStore

Handler = Callable[["Attempt"], Any]
"""A registered function: of an attempt, to its result; a coroutine function, or one that runs in a thread."""

_log = logging.getLogger("interlock.effects")

_LISTENS = 4
"""How often an attempt is listened to within its heartbeat: silence is noticed a quarter late at most."""

NO_PROCESS = frozenset({"pool.workers", "pool.full"})
"""What those processes say that cannot take an attempt now."""

Elsewhere = Callable[[Handler, "Attempt"], Awaitable[Any]]
"""Runs a function for an attempt in another process; cancelled, it ends that process."""

Compensates = Callable[[Claim], Awaitable[bool]]
"""Whether a saga asked for this work to answer one of its deeds, whose key it then put into the input."""


class Attempt(Struct, frozen=True):
    """One attempt at an effect, as a handler sees it.

    `key` is the same for every attempt: give it to the service that does the deed, so that a repeated one is done once.
    `details` is the last that an attempt before this one told with a heartbeat: where to go on.
    """

    entity: str
    name: str
    input: Any
    key: str
    number: int
    timeout_ms: int | None
    called_off: asyncio.Event
    details: Any = None
    beat: Callable[[Any], None] | None = None

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for the result any more: the state that asked was left."""
        return self.called_off.is_set()

    def heartbeat(self, details: Any = None) -> None:
        """Tell that this attempt is alive, and how far it is: small plain JSON, which the next attempt would be given.

        From any thread, and from a process of the pool. Details that cannot be kept are logged; the attempt goes on.
        """
        if self.beat is not None:
            self.beat(details)


class HandlerRunner:
    """Performs the work of one runtime's handlers."""

    def __init__(
        self,
        functions: Mapping[str, Handler],
        driver: EventDelivery,
        clock: Clock,
        *,
        key_prefix: str = "",
        compensates: Compensates | None = None,
        busy: frozenset[str] = frozenset(),
        elsewhere: Elsewhere | None = None,
        heartbeats: Mapping[str, int] | None = None,
        store: WorkStore | None = None,
    ) -> None:
        self._functions = functions
        self._busy = busy
        self._elsewhere = elsewhere
        self._driver = driver
        self._answers = ResultDelivery(driver, clock)
        self._clock = clock
        self._key_prefix = key_prefix
        self._compensates = compensates
        self._heartbeats = heartbeats or {}
        self._store = store
        self._threads = HandlerThreads()
        self._works: set[asyncio.Future[Any]] = set()

    @property
    def names(self) -> tuple[str, ...]:
        """The handlers there are: work for others waits."""
        return tuple(self._functions)

    async def perform(self, held: RunningWork) -> Settlement | None:
        """One attempt: from claim to answer."""
        claim = held.claim
        details = await self._details(held)
        here = await self._driver.is_here(claim.entity)  # elsewhere, the deed would be asked for and its result be lost
        if not here or self._waits_for_a_thread(claim):
            return self._not_begun(held)
        failed = self._before(claim)
        if failed is None:
            if claim.cancelled and not claim.work.is_saga_step:
                return Settlement(claim, "done")  # its worker died after the state was left: nobody asks any more
            try:
                outcome = await self._attempted(held, details)
            except UnavailableError as error:
                if error.code != THREADS:
                    raise
                _log.error("the system refuses a thread", extra={"handler": claim.work.name, "error": error.message})
                return self._not_begun(held)
        else:
            outcome = GiveUp(failed)
        claim, held.bringing = held.claim, True
        if isinstance(outcome, _Later):
            return Settlement(claim, "again", outcome.next_ms, error=_facts(held, outcome.failed))
        if isinstance(outcome, GiveUp):
            return await self._spent(held, outcome.failed)
        return await self._succeeded(held, outcome.value)

    def _not_begun(self, held: RunningWork) -> Settlement:
        """Later; and the attempt does not count."""
        later_ms = self._clock.now_ms() + LOOK_MS_MAX
        return Settlement(held.claim, "again", later_ms, error=held.facts(), lapsed=True, begun=False)

    def _waits_for_a_thread(self, claim: Claim) -> bool:
        """Whether it cannot begin: too many threads were given up here, and still run."""
        name = claim.work.name
        if name in self._busy or iscoroutinefunction(self._functions[name]) or not self._threads.is_full:
            return False
        _log.error("no thread is left for a handler", extra={"handler": name, "threads": len(self._threads)})
        return True

    def _before(self, claim: Claim) -> Failure | None:
        """Why this attempt must not begin."""
        if claim.attempt > ATTEMPTS_MAX:
            return Failure("lapsed", f"its workers died {ATTEMPTS_MAX} times")
        lapsed = claim.attempt > claim.failures + 1
        if lapsed and claim.work.body.get("restore") == "fail":
            return Failure("interrupted", "its worker died, and the chart says not to begin again")
        if claim.cancelled and claim.work.is_saga_step:
            return Failure("lapsed", "the saga was left before it was known whether this was done")
        return None

    async def _attempted(self, held: RunningWork, details: Any) -> _Value | _Later | GiveUp:
        claim = held.claim
        function = self._functions[claim.work.name]
        attempt = Attempt(
            claim.entity,
            claim.work.name,
            await self._input(claim),
            self._key(claim),
            claim.attempt,
            claim.work.body.get("timeout_ms"),
            held.called_off,
            details,
            partial(_beat, held),
        )
        work = self._called(function, attempt, held)
        try:
            result = await self._run(work, held, attempt)
        except Exception as error:  # whatever a handler raises is its answer
            if isinstance(error, UnavailableError) and code_of(error) in NO_PROCESS and attempt.name in self._busy:
                raise  # it is put off: nothing says that the handler was even called
            raised = error.__cause__ if isinstance(error, HandlerFailed) else error
            if raised is not None and not isinstance(raised, InterlockError):
                facts = {"handler": claim.work.name, "key": claim.key, "attempt": claim.attempt}
                _log.warning("a handler raised", exc_info=raised, extra=facts)
            return self._decided(held.claim, failure_from(error))
        if isinstance(result, Failure):  # stopped; what still runs must stay alone
            return GiveUp(result) if held.runs else self._decided(held.claim, result)
        problem = payload_refusal(result)
        if problem is not None:
            return GiveUp(Failure("result.malformed", f"what `{attempt.name}` returned cannot be kept: {problem}"))
        return _Value(result)

    async def _details(self, held: RunningWork) -> Any:
        """What an attempt before this one told; what stands beside the work is known from now on."""
        if held.claim.attempt == 1 or self._store is None:
            return None
        page = await self._store.works(WorkQuery(entity=held.claim.entity, place=held.claim.work.place))
        kept = page.rows[0].error if page.rows else None
        if not isinstance(kept, dict):
            return None
        held.known = kept
        return kept.get("details")

    async def _run(self, work: asyncio.Future[Any], held: RunningWork, attempt: Attempt) -> Any:
        """What the function returns; or, when it was stopped, a `Failure` that says why."""
        waits = self._limits(held, attempt, stoppable=isinstance(work, asyncio.Task))
        try:
            await asyncio.wait({work, *waits}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                work.cancel()
                await self._stopped(work, attempt)
            if work.done() and not work.cancelled():
                return result_of(work)
            return next((why for each, why in waits.items() if each.done()), Failure("cancelled", "stopped"))
        finally:
            for each in (work, *waits):
                each.cancel()

    def _limits(self, held: RunningWork, attempt: Attempt, *, stoppable: bool) -> dict[asyncio.Future[Any], Failure]:
        """What ends an attempt from outside, and what is then said of it."""
        waits: dict[asyncio.Future[Any], Failure] = {}
        timeout_ms, beat_ms = attempt.timeout_ms, self._heartbeats.get(attempt.name)
        if timeout_ms is not None:
            late = Failure("timeout", f"no answer in {timeout_ms} ms")
            waits[asyncio.ensure_future(self._clock.sleep_ms(timeout_ms))] = late
        if beat_ms is not None:
            silent = Failure("heartbeat", f"no sign of life in {beat_ms} ms")
            waits[asyncio.ensure_future(self._silence(held, beat_ms))] = silent
        if stoppable and not held.claim.work.is_saga_step:
            left = Failure("cancelled", "the state was left")
            waits[asyncio.ensure_future(attempt.called_off.wait())] = left
        return waits

    async def _silence(self, held: RunningWork, beat_ms: int) -> None:
        """Wait until there was no sign of life for so long: asked four times in that time, however many there are."""
        quiet, seen = 0, held.beats
        while quiet < _LISTENS:  # ends with the attempt at the latest, which cancels it
            await self._clock.sleep_ms(beat_ms / _LISTENS)
            quiet, seen = (quiet + 1, seen) if held.beats == seen else (0, held.beats)

    async def _stopped(self, work: asyncio.Future[Any], attempt: Attempt) -> None:
        """Wait until cancelled work has ended; one that will not is left to itself."""
        waiting = asyncio.ensure_future(self._clock.sleep_ms(STOP_MS_MAX))
        await asyncio.wait({work, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if not work.done():
            _log.error("a handler swallows its cancellation", extra={"handler": attempt.name, "key": attempt.key})

    def _begun(self, work: asyncio.Future[Any]) -> asyncio.Future[Any]:
        """Hold on to work until it ends, whoever has given it up: the loop itself holds tasks weakly."""
        self._works.add(work)
        work.add_done_callback(self._forgotten)
        return work

    def _forgotten(self, work: asyncio.Future[Any]) -> None:
        self._works.discard(work)
        if not work.cancelled():
            work.exception()  # nobody asks; unasked, the loop would complain

    def _called(self, function: Handler, attempt: Attempt, held: RunningWork) -> asyncio.Future[Any]:
        """What the function will return; `held.ended` is done when it has really ended."""
        if iscoroutinefunction(function):
            held.ended = self._begun(asyncio.ensure_future(call_in_loop(function, attempt)))
            return held.ended
        if attempt.name not in self._busy:
            work, held.ended = self._threads.run(partial(function, attempt))
            return work
        assert self._elsewhere is not None  # whoever says that some are busy says where they run
        held.ended = self._begun(asyncio.ensure_future(self._elsewhere(function, attempt)))
        return held.ended

    def _decided(self, claim: Claim, failed: Failure) -> _Later | GiveUp:
        otherwise = CALL_POLICY if _is_call(claim) else RetryPolicy()
        answer = decide_retry(
            retry_policy(claim.work.body, otherwise=otherwise),
            failed,
            failures=claim.failures,
            attempts=claim.attempt,
            now_ms=self._clock.now_ms(),
            jitter=self._clock.jitter(),
        )
        return _Later(answer.next_ms, failed) if isinstance(answer, RetryAt) else answer

    # Answers

    async def _succeeded(self, held: RunningWork, value: Any) -> Settlement | None:
        claim = held.claim
        if _is_call(claim):
            return Settlement(claim, "done")
        try:
            receipt = await self._answers.bring_success(held, invoke_done(claim.work.body["id"], claim.key, value))
        except RejectedError as error:  # too large, perhaps: asked for again, the deed would come to the same
            return await self._spent(held, Failure(code_of(error), shown_message(error)))
        return None if receipt.outcome == "applied" else Settlement(claim, "done")

    async def _spent(self, held: RunningWork, failed: Failure) -> Settlement | None:
        """It failed for good: the chart hears, or else a person must."""
        claim = held.claim
        if claim.cancelled and not claim.work.is_saga_step:
            return Settlement(claim, "done")
        if _is_call(claim):
            event = call_failed(claim.work.name, self._key(claim), failed.code)
        else:
            event = invoke_failed(
                claim.work.body["id"],
                claim.key,
                failed.code,
                failed.message,
                done=failed.done,
                attempts=claim.attempt,
            )
        try:
            receipt = await self._answers.bring_failure(held, event)
        except RejectedError:
            return Settlement(claim, "dead", error=_facts(held, failed))
        if receipt.outcome in ("applied", "duplicate"):
            return None
        if _is_call(claim) or receipt.reason == COMPENSATION_FAILED:  # no chart hears of either
            return Settlement(claim, "dead", error=_facts(held, failed))
        return Settlement(claim, "done")

    def _key(self, claim: Claim) -> str:
        """The key that the handler sees: the author's, or that of the work; anew for each attempt where so asked."""
        body = claim.work.body
        key = f"{self._key_prefix}{body.get('key') or claim.key}"
        return f"{key}~{claim.attempt}" if body.get("restore") == "restart" else key

    async def _input(self, claim: Claim) -> Any:
        """What the handler is given; a compensation names the deed it answers by the key that was seen for it.

        An author's own input may have that name, too; who asked for the work tells them apart.
        """
        given = claim.work.body.get("input")
        if not (self._key_prefix and isinstance(given, dict) and isinstance(given.get("compensates"), str)):
            return given
        if self._compensates is None or not await self._compensates(claim):
            return given
        return {**given, "compensates": f"{self._key_prefix}{given['compensates']}"}


class _Value(Struct, frozen=True):
    value: Any


class _Later(Struct, frozen=True):
    """The next attempt may begin at this time; why this one failed is kept for whoever asks meanwhile."""

    next_ms: int
    failed: Failure


def _facts(held: RunningWork, failed: Failure) -> dict[str, Any] | None:
    return held.facts(code=failed.code, message=failed.message, attempts=held.claim.attempt, done=failed.done)


def _beat(held: RunningWork, details: Any) -> None:
    """A sign of life, from any thread. It is encoded here: whoever gave it may change it afterwards."""
    held.beats += 1
    if details is None:
        return
    problem = payload_refusal(details)
    told = b"" if problem is not None else encode(details)
    if len(told) > DETAILS_BYTES_MAX:
        problem = f"it has {len(told):,} bytes; {DETAILS_BYTES_MAX:,} are allowed"
    if problem is None:
        held.told = told
    else:
        facts = {"entity_id": held.claim.entity, "key": held.claim.key, "problem": problem}
        _log.warning("the details of a heartbeat cannot be kept", extra=facts)


def _is_call(claim: Claim) -> bool:
    return "id" not in claim.work.body


def check_functions(functions: Mapping[str, Any]) -> None:
    """Every handler must be a function. Raises UsageError for one that is not."""
    for name, function in functions.items():
        if not callable(function):
            raise UsageError(f"the handler `{name}` is no function", code="handler.malformed")
