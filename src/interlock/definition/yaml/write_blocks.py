"""The blocks of a document to plain YAML values: the mirror of `yaml_block.py`.

Rule 1: the shortest form of the vocabulary that reads back as an equal value; defaults are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from interlock.definition.yaml.write_actions import block_tree, guard_tree, literal_tree, told, value_tree
from interlock.model.document.document import (
    Document,
    EventType,
    Expect,
    Invoke,
    Retry,
    Saga,
    SagaCall,
    SagaStep,
    Sensitive,
    Transition,
)
from interlock.model.document.field import UNSET, Field

Inline = Callable[[Document, str], dict[str, Any]]
"""Gives the tree of an inline chart; the text is the last part of its kind when it names none itself."""


def texts_tree(texts: tuple[str, ...] | None) -> list[str] | None:
    """A list of strings; None when it is not said."""
    return None if texts is None else list(texts)


def fields_tree(fields: tuple[Field, ...], *, payload: bool = False) -> dict[str, Any]:
    """Fields of a context or a payload."""
    return {each.name: _field(each, payload=payload) for each in fields}


def _field(field: Field, *, payload: bool) -> Any:
    default = field.default is not UNSET
    required = field.required if field.required != (payload and not default) else None
    tree = {
        **({} if field.type == "any" else {"type": field.type}),
        **({"default": value_tree(field.default)} if default else {}),
        **told(
            required=required,
            nullable=field.nullable or None,
            enum=None if field.enum is None else list(field.enum),
            min=field.min,
            max=field.max,
            length_max=field.length_max,
            items=None if field.items is None else _field(field.items, payload=False),
            fields=None if field.fields is None else fields_tree(field.fields, payload=payload),
            description=field.description,
        ),
    }
    return field.type if tree.keys() <= {"type"} else tree


def events_tree(events: tuple[EventType, ...]) -> dict[str, Any]:
    """The declared events."""
    return {
        each.name: told(
            direction=None if each.direction == "in" else each.direction,
            roles=texts_tree(each.roles),
            payload=None if each.payload is None else fields_tree(each.payload, payload=True),
            permit=value_tree(each.permit),
            dedupe=value_tree(each.dedupe),
            description=each.description,
        )
        for each in events
    }


def targets_tree(targets: tuple[str, ...]) -> Any:
    """One target as a string, several as a list; None when there is none."""
    return targets[0] if len(targets) == 1 else list(targets) or None


def transition_tree(transition: Transition) -> dict[str, Any]:
    """A transition without what its key says: event or delay."""
    return told(
        target=targets_tree(transition.targets),
        guard=guard_tree(transition.guard),
        reenter=transition.reenter,
        actions=block_tree(transition.actions) or None,
        roles=texts_tree(transition.roles),
        onRestore=transition.restore,
        description=transition.description,
        meta=transition.meta,
    )


def transitions_tree(transitions: tuple[Transition, ...] | list[Transition]) -> Any:
    """A target, a transition, or a list tried in order; None when there is none."""
    trees = [transition_tree(each) for each in transitions]
    short = [
        each["target"] if each.keys() == {"target"} and isinstance(each["target"], str) else each for each in trees
    ]
    return short[0] if len(short) == 1 else short or None


def invoke_tree(invoke: Invoke, name: str, inline: Inline) -> dict[str, Any]:
    """An invoke; `name` is the last part of an inline chart's kind when it names none itself."""
    chart = isinstance(invoke.src, Document)
    return told(
        id=invoke.id,
        idLocation=invoke.id_location,
        src=inline(invoke.src, name) if isinstance(invoke.src, Document) else value_tree(invoke.src),
        type=None if invoke.type == ("chart" if chart else "handler") else value_tree(invoke.type),
        input=value_tree(invoke.input),
        key=value_tree(invoke.key),
        autoforward=invoke.autoforward or None,
        finalize=None if invoke.finalize is None else block_tree(invoke.finalize),
        retry=_retry(invoke.retry),
        timeout=invoke.timeout,
        onRestore=invoke.restore,
        onDone=transitions_tree(invoke.done),
        onError=transitions_tree(invoke.error),
    )


def _retry(retry: Retry | None) -> dict[str, Any] | None:
    if retry is None:
        return None
    return told(max=retry.max, backoff=retry.backoff, jitter=retry.jitter, on=texts_tree(retry.on))


def saga_tree(saga: Saga | None) -> dict[str, Any] | None:
    """The saga; None when there is none."""
    if saga is None:
        return None
    return told(
        steps=[_saga_step(each) for each in saga.steps],
        compensation=None if saga.compensation == "reverse" else saga.compensation,
        onDone=transitions_tree(saga.done),
        onCompensated=transitions_tree(saga.compensated),
        onError=transitions_tree(saga.error),
    )


def _saga_step(step: SagaStep) -> dict[str, Any]:
    return told(
        id=step.id,
        if_=guard_tree(step.guard),
        do=_saga_call(step.do),
        compensate=None if step.compensate is None else _saga_call(step.compensate),
        retry=_retry(step.retry),
        timeout=step.timeout,
    )


def _saga_call(call: SagaCall) -> dict[str, Any]:
    return told(src=literal_tree(call.src), input=value_tree(call.input), output=call.output, key=value_tree(call.key))


def expect_tree(expect: Expect | None) -> dict[str, Any] | None:
    """When an entity counts as stuck; None when it is not said."""
    if expect is None:
        return None
    return told(within=expect.within, then=None if expect.then == "alert" else expect.then)


def sensitive_tree(sensitive: Sensitive | None) -> Any:
    """What is masked; None when nothing is."""
    if sensitive is None:
        return None
    if not sensitive.hidden:
        return list(sensitive.fields)
    return told(fields=list(sensitive.fields) or None, as_=sensitive.neutral, roles=texts_tree(sensitive.roles)) or True
