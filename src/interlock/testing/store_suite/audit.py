"""Cases of the store suite: the audit."""

from __future__ import annotations

import asyncio
from hashlib import blake2b

from interlock.model.audit import AuditRow
from interlock.model.limits import AUDIT_BATCH_ROWS_MAX, AUDIT_NAME_BYTES_MAX
from interlock.ports.store import Store
from interlock.ports.trust.audit import AuditLog
from interlock.testing.store_suite.samples import SampleEntity
from interlock.testing.store_suite.subject import StoreSubject, append_all, expect
from interlock.trust.audit_chain import verify_chain

HOSTILE = "a\0b\ud800c" + "\u20ac" * 300
"""An id that no database stores as it is: NUL, a lone surrogate, and 900 bytes."""


async def rows_are_kept_in_order(subject: StoreSubject) -> None:
    """With all that they say, and with numbers from 1 on."""
    row = _row(1, "ada", trace="t", note="why", key="k", state_from=("packed",))
    async with subject.opened() as store:
        await _log(store).append_audit((row, _row(2, "bob")))
        found = await _log(store).audit_after(0)
        expect([row, _row(2, "bob")], [each.decode() for each in found])
        expect([1, 2], [each.sequence for each in found])


async def rows_of_concurrent_callers_are_all_there(subject: StoreSubject) -> None:
    """More callers than fit into one batch: each row once, in one chain without gaps."""
    callers = AUDIT_BATCH_ROWS_MAX + 50
    async with subject.opened() as store:
        log = _log(store)
        await asyncio.gather(*(log.append_audit((_row(each, f"p{each}"),)) for each in range(callers)))
        found = await log.audit_after(0)
        expect(set(range(callers)), {each.time_ms for each in found})
        expect(list(range(1, callers + 1)), [each.sequence for each in found])
        await _is_linked(log, callers)


async def rows_are_read_in_both_directions(subject: StoreSubject) -> None:
    """After a number, before a number, and of one actor."""
    async with subject.opened() as store:
        log = _log(store)
        await log.append_audit(tuple(_row(each, "ada" if each % 2 else "bob") for each in range(1, 8)))
        expect([3, 4], [each.sequence for each in await log.audit_after(2, limit=2)])
        expect([5, 6], [each.sequence for each in await log.audit_after(4, limit=2)])
        expect([], list(await log.audit_after(7)))
        expect([7, 6], [each.sequence for each in await log.audit_before(None, limit=2)])
        expect([4, 3, 2], [each.sequence for each in await log.audit_before(5, limit=3)])
        expect([3, 1], [each.sequence for each in await log.audit_before(5, actor="ada")])
        expect([], list(await log.audit_before(1)))


async def rows_name_the_states_of_their_entity(subject: StoreSubject) -> None:
    """The store adds the atomic states to a refusal without them; an unknown entity and an act have none."""
    append = SampleEntity("parcel/1").create()
    async with subject.opened() as store:
        await append_all(store, append)
        act = AuditRow("parcel/1", "_work.dropped", "applied", "parcel/1/1/0", 4)
        unknown = AuditRow("parcel/404", "noted", "rejected", "guard", 3)
        await _log(store).append_audit((_row(1), _row(2, state_from=("given",)), unknown, act))
        found = [each.decode().state_from for each in await _log(store).audit_after(0)]
        expect([append.snapshot.configuration, ("given",), None, None], found)


async def any_text_can_be_recorded(subject: StoreSubject) -> None:
    """NUL, lone surrogates and long ids are made storable; the rows of a long id are found by it."""
    row = AuditRow(HOSTILE, HOSTILE, "rejected", "entity.malformed", 1, actor=HOSTILE, trace=HOSTILE, note=HOSTILE)
    async with subject.opened() as store:
        await _log(store).append_audit((row, _row(2)))
        found = [each.decode() for each in await _log(store).audit_after(0)]
        expect(2, len(found))
        expect("a\ufffdb\ufffdc", found[0].entity[:5])
        expect(True, len(found[0].entity.encode()) <= AUDIT_NAME_BYTES_MAX)
        await _is_linked(_log(store), 2)


async def a_head_is_the_hash_of_the_head_before_and_the_bytes(subject: StoreSubject) -> None:
    """The formula of docs/internals/formats.md, by which anyone can write a verifier."""
    async with subject.opened() as store:
        await _log(store).append_audit((_row(1), _row(2)))
        head = _log(store).first_audit_head
        for record in await _log(store).audit_after(0):
            head = blake2b(head.encode() + record.body, digest_size=16).hexdigest()
            expect(head, record.head)


async def a_fact_is_saved_with_the_row_about_it(subject: StoreSubject) -> None:
    """An action of an operator and the row that says who did it are one write."""
    row = AuditRow("order", "_rollout.changed", "applied", "2.0 at 5 %", 7, actor="ada", actor_kind="user", note="why")
    async with subject.opened() as store:
        if store.facts is None:
            raise AssertionError(f"a {type(store).__name__} keeps no facts")
        await store.facts.save_fact("rollout/order", "x", audit=row)
        await store.facts.save_fact("rollout/order", None, audit=row)
        await store.facts.save_fact("other", "y")
        expect({"other": "y"}, dict(await store.facts.read_facts()))
        expect([row, row], [each.decode() for each in await _log(store).audit_after(0)])
        await _is_linked(_log(store), 2)


async def rows_survive_reopening(subject: StoreSubject) -> None:
    """The chain continues after the last row."""
    async with subject.opened() as store:
        await _log(store).append_audit((_row(1), _row(2)))
    async with subject.opened() as store:
        await _log(store).append_audit((_row(3),))
        expect([1, 2, 3], [each.time_ms for each in await _log(store).audit_after(0)])
        await _is_linked(_log(store), 3)


async def two_handles_write_one_chain(subject: StoreSubject) -> None:
    """Each continues after the rows of the other."""
    async with subject.opened() as one, subject.opened() as two:
        for number in range(4):
            await _log(one if number % 2 else two).append_audit((_row(number),))
        await asyncio.gather(*(_log(each).append_audit((_row(9),)) for each in (one, two) * 20))
        await _is_linked(_log(one), 44)
        await _is_linked(_log(two), 44)


def _row(
    time_ms: int,
    actor: str | None = None,
    *,
    trace: str | None = None,
    note: str | None = None,
    key: str | None = None,
    state_from: tuple[str, ...] | None = None,
) -> AuditRow:
    return AuditRow(
        "parcel/1",
        "noted",
        "denied",
        "roles",
        time_ms,
        actor=actor,
        actor_kind="user",
        trace=trace,
        note=note,
        key=key,
        state_from=state_from,
    )


async def _is_linked(log: AuditLog, rows: int) -> None:
    report = await verify_chain(log)
    expect((rows, None), (report.linked, report.broken))


def _log(store: Store) -> AuditLog:
    if store.audit is None:
        raise AssertionError(f"a {type(store).__name__} has no audit")
    return store.audit


CASES = (
    rows_are_kept_in_order,
    rows_of_concurrent_callers_are_all_there,
    rows_are_read_in_both_directions,
    rows_name_the_states_of_their_entity,
    any_text_can_be_recorded,
    a_head_is_the_hash_of_the_head_before_and_the_bytes,
    a_fact_is_saved_with_the_row_about_it,
)
DURABLE = (rows_survive_reopening,)
SHARED = (two_handles_write_one_chain,)
