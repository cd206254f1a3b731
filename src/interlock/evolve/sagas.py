"""Changes of a saga.

Rule 1: steps are paired by id. The steps that both definitions have must come in the same order.
Rule 2: a step that is added at the end is behind every entity in the saga; one that is added elsewhere is not.
"""

from __future__ import annotations

from collections.abc import Iterator

from interlock.evolve.changes import Change
from interlock.model.document.document import Saga, SagaStep


def saga_changes(old: Saga | None, new: Saga | None, *, subject: str, states: tuple[str, ...]) -> Iterator[Change]:
    """Yield the changes of the saga of a state, without those of its transitions."""
    if old is None or new is None:
        if old is not None or new is not None:
            yield Change(code="saga.removed" if new is None else "saga.added", subject=subject, states=states)
        return
    if old.compensation != new.compensation:
        detail = f"{old.compensation} -> {new.compensation}"
        yield Change(code="saga.mode", subject=subject, detail=detail, states=states)
    before, after = {each.id: each for each in old.steps}, {each.id: each for each in new.steps}
    kept = [name for name in after if name in before]
    if kept != [name for name in before if name in after]:
        yield Change(code="saga.steps_reordered", subject=subject, states=states)
    for name in before:
        if name not in after:
            yield Change(code="saga.step_removed", subject=f"{subject}: {name}", states=states)
    names = list(after)
    last = max((names.index(name) for name in kept), default=-1)
    for position, name in enumerate(names):
        if name in before:
            yield from _step_changes(before[name], after[name], subject=f"{subject}: {name}", states=states)
        else:
            code = "saga.step_appended" if position > last else "saga.step_inserted"
            yield Change(code=code, subject=f"{subject}: {name}", states=states)


def _step_changes(old: SagaStep, new: SagaStep, *, subject: str, states: tuple[str, ...]) -> Iterator[Change]:
    if (old.do.src, old.do.output) != (new.do.src, new.do.output):
        yield Change(code="saga.call", subject=subject, states=states)
    options = [(each.guard, each.do.input, each.do.key, each.retry, each.timeout) for each in (old, new)]
    if options[0] != options[1]:
        yield Change(code="saga.options", subject=subject, states=states)
    if old.compensate is not None and new.compensate is None:
        yield Change(code="saga.compensation_removed", subject=subject, states=states)
    elif old.compensate != new.compensate:
        yield Change(code="saga.compensation", subject=subject, states=states)
