"""Invokes of the Python builder, and sagas with their steps and compensations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from interlock.definition.builder.actions import Actions, GuardLike, optional_guard, read_block
from interlock.definition.builder.transitions import TransitionLike, read_results
from interlock.definition.builder.values import (
    Json,
    Texts,
    caller_location,
    choice,
    definition_error,
    name,
    optional_text,
    optional_texts,
    text,
    texts,
    usage_error,
    value,
)
from interlock.definition.vocabulary.names import BACKOFF, DURATION, FIELD, FIELD_PATH, ID, KEY, NAME
from interlock.model.document.actions import Expression
from interlock.model.document.document import Document, Invoke, Retry, Saga, SagaCall, SagaStep


def retry(
    max: int,
    *,
    backoff: str | None = None,
    jitter: Literal["full", "none"] | None = None,
    on: Texts | None = None,
) -> Retry:
    """Return the retry policy of an effect: at most `max` retries, with a growing pause (`1s..30s`)."""
    if type(max) is not int or max < 0:
        raise usage_error("`max`", "a whole number of at least 0", max)
    return Retry(
        max=max,
        backoff=optional_text(backoff, BACKOFF, "a backoff"),
        jitter=choice(jitter, (None, "full", "none"), "`jitter`"),
        on=optional_texts(on, NAME, "an error code"),
    )


def invoke(
    src: str | Expression | Document,
    *,
    id: str | None = None,
    id_location: str | None = None,
    type: Literal["handler", "chart"] | Expression | None = None,
    input: Json = None,
    autoforward: bool = False,
    finalize: Actions | None = None,
    done: TransitionLike | None = None,
    error: TransitionLike | None = None,
    retry: Retry | None = None,
    timeout: str | None = None,
    key: Json = None,
    restore: Literal["keep", "restart", "fail"] | None = None,
    personal: Sequence[str] | Literal[True] | None = None,
) -> Invoke:
    """Return an invoke: a handler or a child chart that runs while the state is active.

    `done` and `error` are the transitions for its result. `personal` are the fields of the result that are personal, or
    True for the whole result.
    """
    default = "chart" if isinstance(src, Document) else "handler"
    given = type if isinstance(type, Expression) else choice(type, (None, "handler", "chart"), "`type`")
    return Invoke(
        src=src if isinstance(src, Expression | Document) else name(src, "a handler"),
        id=optional_text(id, ID, "the id of an invoke"),
        id_location=optional_text(id_location, FIELD_PATH, "the location of an id"),
        type=given or default,
        input=value(input, "the input"),
        autoforward=choice(autoforward, (True, False), "`autoforward`"),
        finalize=None if finalize is None else read_block(finalize),
        done=read_results(done, "`done`"),
        error=read_results(error, "`error`"),
        retry=_retry(retry),
        timeout=optional_text(timeout, DURATION, "a timeout"),
        key=value(key, "the key"),
        restore=choice(restore, (None, "keep", "restart", "fail"), "`restore`"),
        personal=personal if personal is None or personal is True else texts(personal, FIELD, "a personal field"),
        location=caller_location(),
    )


def _retry(given: Retry | None) -> Retry | None:
    if given is not None and not isinstance(given, Retry):
        raise usage_error("`retry`", "the result of `retry`", given)
    return given


def call(src: str, *, input: Json = None, output: str | None = None, key: Json = None) -> SagaCall:
    """Return the call of a saga step or of its compensation; `output` is the context field for the result."""
    return SagaCall(
        src=name(src, "a handler"),
        input=value(input, "the input"),
        output=optional_text(output, FIELD_PATH, "`output`"),
        key=value(key, "the key"),
        location=caller_location(),
    )


def saga_step(
    id: str,
    do: str | SagaCall,
    *,
    guard: GuardLike | None = None,
    compensate: str | SagaCall | None = None,
    retry: Retry | None = None,
    timeout: str | None = None,
) -> SagaStep:
    """Return one step of a saga: its call and its compensation. It is skipped unless its guard is true."""
    return SagaStep(
        id=text(id, KEY, "the id of a saga step"),
        do=_call(do),
        guard=optional_guard(guard),
        compensate=None if compensate is None else _call(compensate),
        retry=_retry(retry),
        timeout=optional_text(timeout, DURATION, "a timeout"),
        location=caller_location(),
    )


def _call(given: str | SagaCall) -> SagaCall:
    return given if isinstance(given, SagaCall) else call(given)


def saga(
    *steps: SagaStep,
    compensation: Literal["reverse", "parallel", "none"] = "reverse",
    done: TransitionLike | None = None,
    compensated: TransitionLike | None = None,
    error: TransitionLike | None = None,
) -> Saga:
    """Return a saga: several effects; completed steps are compensated if a later one fails."""
    for each in steps:
        if not isinstance(each, SagaStep):
            raise usage_error("each step of a saga", "the result of `saga_step`", each)
    if not steps:
        raise definition_error(
            "value.empty", "a saga must have at least one step", 'write saga(saga_step("id", "handler"), ...)'
        )
    return Saga(
        steps=steps,
        compensation=choice(compensation, ("reverse", "parallel", "none"), "`compensation`"),
        done=read_results(done, "`done`"),
        compensated=read_results(compensated, "`compensated`"),
        error=read_results(error, "`error`"),
        location=caller_location(),
    )
