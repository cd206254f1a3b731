"""Roll a definition out to a part of the new entities of a kind: start, advance, abort.

Rule 1: a change is made under the lease `rollout/<kind>`, so that two operators do not overwrite each other.
Rule 2: a share only grows; to go back, abort. An aborted revision can be rolled out again, with a new salt.
Rule 3: every change records who made it and why; the newest `CHANGES_MAX` are kept.
Rule 4: choosing a revision that is not the newest promotes it: see `runtime.rollouts`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec import Struct
from msgspec.structs import replace

from interlock.errors import ConflictError, NotFoundError, UnavailableError, UsageError
from interlock.model.encoding.codec import encode
from interlock.model.encoding.storable import storable_text
from interlock.ports.definitions import Edition
from interlock.ports.delivery import CHART_MISSING_CODES
from interlock.ports.store import ENDED_STATES
from interlock.ports.store_facts import FACT_BYTES_MAX
from interlock.runtime.charts.rollouts import (
    SHARE_MAX,
    Promotion,
    Rollout,
    RolloutChange,
    RolloutState,
    fact_name,
    order_of,
    read_rollout,
)
from interlock.runtime.reading.entity_counts import count_by_revision
from interlock.runtime.runtime import Runtime
from interlock.trust.audit import act_row

CHANGES_MAX = 8
"""Changes that a rollout remembers: a fact has at most 4 KiB."""

REVISIONS_MAX = 16
"""Aborted and promoted revisions that a rollout remembers."""

TEXT_MAX = 120
"""Characters of who and why that are kept."""

LEASE_MS = 10_000
"""How long a change may take: some reads and one write."""


class RolloutStatus(Struct, frozen=True):
    """The rollout of a kind, and how many entities are on each revision, with its label."""

    kind: str
    rollout: Rollout
    entities: dict[str, int]
    labels: dict[str, str]


async def start_rollout(
    runtime: Runtime, kind: str, *, to: str, share: int, by: str, why: str = "", base: str | None = None
) -> Rollout:
    """Start new entities on a revision: a share of them, in hundredths of a percent, or all.

    `to` and `base` are names or labels of revisions in the store. Without `base`, all others start on the revision of
    the rollout before, or on the newest other one. Raises NotFoundError for an unknown revision, UsageError for an
    invalid share, and ConflictError while another revision is being rolled out.
    """
    _check_share(share)
    async with _changing(runtime, kind):
        before = await read_rollout(runtime.store, kind)
        editions = await _editions(runtime, kind)
        revision = _revision(kind, editions, to)
        if before is not None and before.state == "active" and before.revision != revision:
            message = f"`{kind}` is being rolled out to {before.revision}, at {percent_text(before.share)}"
            raise ConflictError(message, code="rollout.active", hint="advance it to 100, or abort it")
        if before is not None and before.state == "active":
            return await _save(runtime, kind, before, share, "active", by=by, why=why)
        other = _base(kind, editions, revision, before, base)
        promoted = () if before is None else before.promoted
        aborted = () if before is None else tuple(each for each in before.aborted if each != revision)
        newest = max(editions, key=lambda each: each.sequence)
        own = order_of(editions, [revision], promoted)
        orders = [order_of(editions, [each.revision], promoted) for each in editions if each.revision != revision]
        if any(each is not None and own is not None and each > own for each in orders):
            number = 1 + max((each.number for each in promoted if each.after == newest.sequence), default=0)
            kept = tuple(each for each in promoted if each.revision != revision)
            promoted = (*kept, Promotion(revision, newest.sequence, number))[-REVISIONS_MAX:]
        rollout = Rollout(
            revision=revision,
            base=other,
            share=0,
            salt=runtime.clock.token(),
            state="active",
            history=() if before is None else before.history,
            aborted=aborted,
            promoted=promoted,
        )
        return await _save(runtime, kind, rollout, share, "active", by=by, why=why)


async def advance_rollout(runtime: Runtime, kind: str, *, share: int, by: str, why: str = "") -> Rollout:
    """Give a larger share to the revision that is being rolled out. Raises NotFoundError, UsageError."""
    _check_share(share)
    async with _changing(runtime, kind):
        before = await _required(runtime, kind)
        if before.state != "active":
            message = f"the rollout of `{kind}` is {before.state}"
            raise UsageError(message, code="rollout.state", hint="start another: interlock rollout set")
        return await _save(runtime, kind, before, share, "active", by=by, why=why)


async def abort_rollout(runtime: Runtime, kind: str, *, by: str, why: str = "") -> Rollout:
    """Start all new entities on the base, and upgrade no entity to the aborted revision. Raises NotFoundError.

    Entities that started on it stay. To move them back, choose the base again (`start_rollout`), then migrate to it.
    """
    async with _changing(runtime, kind):
        before = await _required(runtime, kind)
        if before.state == "aborted":
            return before
        aborted = (*(each for each in before.aborted if each != before.revision), before.revision)[-REVISIONS_MAX:]
        return await _save(runtime, kind, replace(before, aborted=aborted), 0, "aborted", by=by, why=why)


async def rollout_status(runtime: Runtime, kind: str) -> RolloutStatus | None:
    """Return the rollout of a kind; None if there was none."""
    found = await read_rollout(runtime.store, kind)
    if found is None:
        return None
    editions = await _editions(runtime, kind)
    names = {name: each.revision for each in editions for name in (each.revision, *each.names)}
    entities: dict[str, int] = {}
    counts, _ = await count_by_revision(runtime.store, runtime.revisions, kind)
    for revision, states in counts.items():
        name = names.get(revision, revision)
        entities[name] = entities.get(name, 0) + await _entities_on(runtime, kind, revision, states)
    labels = {each.revision: each.label for each in editions if each.label is not None}
    return RolloutStatus(kind, found, entities, labels)


async def _entities_on(runtime: Runtime, kind: str, revision: str, states: dict[str, int]) -> int:
    """Return how many entities are on a revision, ended ones included, from the counts of its states."""
    ended = sum(states.get(each, 0) for each in ENDED_STATES.values())
    try:
        chart = await runtime.revisions.chart(kind, revision)
    except UnavailableError as error:
        if error.code not in CHART_MISSING_CODES:
            raise
        return max((count for state, count in states.items() if state not in ENDED_STATES.values()), default=0) + ended
    tops = [states.get(chart.states[each].id, 0) for each in chart.states[0].children]
    return (max(tops, default=0) if chart.states[0].type == "parallel" else sum(tops)) + ended


def percent_text(share: int) -> str:
    """Return a share as a percentage, such as `2.5 %`."""
    return f"{share / 100:g} %"


# Parts of a change


@asynccontextmanager
async def _changing(runtime: Runtime, kind: str) -> AsyncIterator[None]:
    """Hold the lease of a rollout. Raises ConflictError while another process changes it."""
    store = runtime.store
    if store.facts is None or store.leases is None or store.definitions is None:
        raise UsageError("this store keeps no rollouts", code="rollout.unsupported")
    now_ms = runtime.clock.now_ms()
    lease = await store.leases.acquire_lease(
        fact_name(kind), owner=runtime.clock.token(), now_ms=now_ms, until_ms=now_ms + LEASE_MS
    )
    if lease is None:
        message = f"another process is changing the rollout of `{kind}`"
        raise ConflictError(message, code="rollout.busy", hint="try again")
    try:
        yield
    finally:
        await store.leases.release_lease(lease)


async def _editions(runtime: Runtime, kind: str) -> tuple[Edition, ...]:
    """Return the editions of a kind, as the store has them now."""
    assert runtime.store.definitions is not None
    found = await runtime.store.definitions.list_definitions(kind)
    if not found:
        hint = "save it first: interlock db definitions add FILE"
        raise NotFoundError(f"the store has no definition of kind `{kind[:80]}`", code="kind.unknown", hint=hint)
    return found


def _revision(kind: str, editions: tuple[Edition, ...], name: str) -> str:
    """Return the name of the behaviour that a name or a label means: the newest one with that label."""
    found = [each.revision for each in editions if name in (each.label, each.revision, *each.names)]
    if not found:
        known = ", ".join(dict.fromkeys(each.label or each.revision for each in editions))
        hint = f"its revisions are {known}; save a new one first: interlock db definitions add FILE"
        message = f"the store has no revision `{name[:80]}` of `{kind}`"
        raise NotFoundError(message, code="revision.unknown", hint=hint)
    return found[-1]


def _base(kind: str, editions: tuple[Edition, ...], revision: str, before: Rollout | None, given: str | None) -> str:
    """Return the revision on which all others start."""
    if given is not None:
        found = _revision(kind, editions, given)
        if found == revision:
            raise UsageError("the base is the revision that is rolled out", code="rollout.base")
        return found
    promoted = () if before is None else before.promoted
    known = {each.revision for each in editions}
    if before is not None:
        last = before.base if before.state == "aborted" else before.revision
        if last != revision and last in known:
            return last
    aborted = () if before is None else before.aborted
    others = known - {revision, *aborted}
    return max(others, key=lambda each: order_of(editions, [each], promoted) or (0, 0), default=revision)


async def _required(runtime: Runtime, kind: str) -> Rollout:
    found = await read_rollout(runtime.store, kind)
    if found is None:
        hint = "interlock rollout set starts one"
        raise NotFoundError(f"`{kind[:80]}` has no rollout", code="rollout.unknown", hint=hint)
    return found


def _check_share(share: int) -> None:
    if type(share) is not int or not 0 < share <= SHARE_MAX:
        message = f"invalid share {share!r:.40}"
        raise UsageError(message, code="rollout.share", hint="from 0.01 to 100 percent")


async def _save(
    runtime: Runtime, kind: str, rollout: Rollout, share: int, state: RolloutState, *, by: str, why: str
) -> Rollout:
    """Write a rollout with its new share. A share only grows."""
    if state == "active" and share < rollout.share:
        message = f"`{kind}` is at {percent_text(rollout.share)} already"
        raise UsageError(message, code="rollout.share", hint="a share only grows; to go back, abort the rollout")
    if state == "active" and share == SHARE_MAX:
        state = "complete"
    change = RolloutChange(
        share, state, runtime.clock.now_ms(), storable_text(by, TEXT_MAX), storable_text(why, TEXT_MAX)
    )
    history = (*rollout.history, change)[-CHANGES_MAX:]
    saved = replace(rollout, share=share, state=state, history=history)
    while len(encode(saved)) > FACT_BYTES_MAX and len(saved.history) > 1:
        saved = replace(saved, history=saved.history[1:])
    if runtime.store.facts is None:
        raise UnavailableError("this store keeps no facts", code="rollout.unsupported")
    text = f"{saved.revision} at {percent_text(share)}, {state}"
    row = act_row(kind, "_rollout.changed", text, by=by, why=why, now_ms=change.changed_ms)
    await runtime.store.facts.save_fact(fact_name(kind), encode(saved).decode(), audit=row)
    return saved
