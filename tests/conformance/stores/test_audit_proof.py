"""The audit as a whole: its export, its verification, and what signed checkpoints prove."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

import interlock
from interlock.buses.memory import MemoryBus
from interlock.errors import UsageError
from interlock.model.audit import AuditRow
from interlock.model.limits import AUDIT_CHECKPOINT_MS
from interlock.observe.audit import COLUMNS, AuditExport, AuditFilter, export_audit
from interlock.observe.audit_proof import AuditProof, verify_audit
from interlock.operate.checkpoints import CheckpointWriter, publish_to_bus, publish_to_file, read_published
from interlock.operate.retention.rules import RetentionRule
from interlock.operate.retention.run import RetentionRun
from interlock.runtime.runtime import Runtime
from interlock.stores.memory import MemoryStore
from interlock.testing.clock import VirtualClock
from interlock.trust.checkpoints import SignedCheckpoint, SigningKey, VerifyingKey
from tests.support.postgres_server import store_or_skip

START_MS = 1_800_000_000_000
LEASE_MS = 3 * AUDIT_CHECKPOINT_MS
CHART = interlock.loads("""
interlock: 1
kind: order
revision: 1.0.0
create: {roles: [clerk]}
events:
  pay: {roles: [clerk]}
  ship: {roles: [clerk]}
initial: unpaid
states:
  unpaid: {after: {1h: late}, on: {pay: paid}}
  late: {}
  paid: {on: {ship: shipped}}
  shipped: {type: final}
""")
ADA = {"id": "ada", "kind": "user", "roles": ["clerk"]}
EVE = {"id": "eve", "kind": "service", "roles": []}
TRACE = f"00-{'a' * 32}-{'b' * 16}-01"
OTHER_TRIGGERS = ("audit_no_update", "audit_no_delete", "audit_no_gap")


@pytest.fixture
def key(tmp_path: Path) -> SigningKey:
    """A key of checkpoints."""
    return SigningKey.create(tmp_path / "audit.pem")


def address(name: str, folder: Path) -> str:
    """Return the address of a store of this kind."""
    if name == "postgres":
        return store_or_skip()
    return {"sqlite": f"sqlite:///{folder}/store.db", "file": f"file://{folder}/store"}[name]


async def sell(opened: Runtime, *orders: str) -> None:
    """Create orders and pay them; each has a refused event, too."""
    for each in orders:
        await opened.create(f"order/{each}", principal=ADA, key=f"create-{each}")
        await opened.send(f"order/{each}", "pay", principal=ADA, key=f"pay-{each}", trace=TRACE, reason="called")
        await opened.send(f"order/{each}", "ship", principal=EVE, key=f"ship-{each}")


async def exported(opened: Runtime, **wanted: Any) -> list[AuditExport]:
    return [each async for each in export_audit(opened.store, AuditFilter(**wanted))]


@pytest.mark.parametrize("name", ["sqlite", "file", "postgres"])
async def test_an_export_has_every_attempt_once_in_the_order_of_time(tmp_path: Path, name: str) -> None:
    """Entries of journals and rows of the audit, in the twelve columns."""
    clock = VirtualClock(START_MS)
    async with interlock.open(address(name, tmp_path), charts=[CHART], clock=clock, work=False) as opened:
        await sell(opened, "1")
        clock.time_ms += 1_000
        await sell(opened, "2")
        rows = await exported(opened)
        of_eve = await exported(opened, actor="eve", since_ms=START_MS + 1)

    assert COLUMNS == AuditExport._fields
    assert [
        ("order/1", "_create", "ada", "user", "", "unpaid", "applied", ""),
        ("order/1", "pay", "ada", "user", "unpaid", "paid", "applied", "called"),
        ("order/1", "ship", "eve", "service", "paid", "paid", "rejected_auth", "roles"),
    ] == [
        (r.entity_id, r.event, r.actor_id, r.actor_kind, r.state_from, r.state_to, r.outcome, r.reason)
        for r in rows[:3]
    ]
    assert ["order/1"] * 3 + ["order/2"] * 3 == [each.entity_id for each in rows]
    assert ("2027-01-15T08:00:00.000Z", "a" * 32) == (rows[1].occurred_at, rows[1].trace_id)
    assert 6 == len({each.transition_id for each in rows})
    assert ["order/2"] == [each.entity_id for each in of_eve]


async def test_a_duplicate_has_the_id_of_the_attempt_that_it_repeats() -> None:
    clock = VirtualClock(START_MS)
    async with interlock.open("memory:", charts=[CHART], clock=clock, work=False) as opened:
        await sell(opened, "1")
        before = await exported(opened)
        await opened.send("order/1", "pay", principal=ADA, key="pay-1")
        after = await exported(opened)

    assert before == after
    assert {"8"} == {each.transition_id[14] for each in after}


async def test_rows_of_a_flood_say_how_many_attempts_they_stand_for() -> None:
    async with interlock.open("memory:", charts=[CHART], clock=VirtualClock(START_MS), work=False) as opened:
        await opened.create("order/1", principal=ADA)
        row = AuditRow("order", "", "denied", "roles", START_MS, actor="eve", actor_kind="user", count=7)
        log = opened.store.audit
        assert log is not None
        await log.append_audit((replace(row, first_ms=START_MS, last_ms=START_MS + 5),))
        found, _ = await exported(opened)

    assert "roles: 7 attempts, 2027-01-15T08:00:00.000Z to 2027-01-15T08:00:00.005Z" == found.reason


# Checkpoints


def writer(opened: Runtime, key: SigningKey, published: list[SignedCheckpoint]) -> CheckpointWriter:
    """A writer that publishes into a list."""

    async def publish(signed: SignedCheckpoint) -> None:
        published.append(signed)

    return CheckpointWriter(opened.store, opened.clock, key, publish=publish)


async def proof_of(opened: Runtime, key: SigningKey | None, published: list[SignedCheckpoint]) -> AuditProof:
    return await verify_audit(
        opened.store, now_ms=START_MS, key=None if key is None else key.public, published=published
    )


@pytest.mark.parametrize("name", ["sqlite", "file", "postgres"])
async def test_checkpoints_prove_what_was_there(tmp_path: Path, key: SigningKey, name: str) -> None:
    """One covers the audit and all journals; without a change none is written; what comes later needs another."""
    clock, published = VirtualClock(START_MS), list[SignedCheckpoint]()
    async with interlock.open(address(name, tmp_path), charts=[CHART], clock=clock, work=False) as opened:
        await sell(opened, "1", "2")
        checkpoints = writer(opened, key, published)
        first = await checkpoints.write_all()
        none = await checkpoints.write_all()
        clock.time_ms += 60_000
        await sell(opened, "3")
        second = await checkpoints.write_all()
        proof = await proof_of(opened, key, published)

    assert ([1], [], [2]) == tuple([each.checkpoint.number for each in found] for found in (first, none, second))
    assert [{"order/1", "order/2"}, {"order/3"}] == [set(each.checkpoint.journals) for each in published]
    assert ((), 2, 2, START_MS + 60_000) == (proof.problems, proof.checkpoints, proof.signed, proof.proven_ms)
    assert (5, 3, 6) == (proof.rows, proof.entities, proof.entries)


@pytest.mark.parametrize("name", ["sqlite", "file", "postgres"])
async def test_an_entity_that_retention_removed_is_not_missing(tmp_path: Path, key: SigningKey, name: str) -> None:
    clock, published = VirtualClock(START_MS), list[SignedCheckpoint]()
    async with interlock.open(address(name, tmp_path), charts=[CHART], clock=clock, work=False) as opened:
        await sell(opened, "1", "2")
        await opened.send("order/1", "ship", principal=ADA, key="shipped")
        await writer(opened, key, published).write_all()
        assert (await opened.state("order/1")).ended == "done"
        clock.time_ms += 86_400_000
        run = RetentionRun(opened, [RetentionRule(kind="order", ended_ms=1_000)])
        done = [each.done async for each in run.run()]
        proof = await proof_of(opened, key, published)

    assert (["pruned"], ()) == (done, proof.problems)


async def test_one_process_writes_checkpoints(tmp_path: Path, key: SigningKey) -> None:
    """A second one waits for its lease; then it continues the numbers, and publishes the last one again."""
    clock, published, other = VirtualClock(START_MS), list[SignedCheckpoint](), list[SignedCheckpoint]()
    async with interlock.open(f"sqlite:///{tmp_path}/x.db", charts=[CHART], clock=clock, work=False) as opened:
        await sell(opened, "1")
        first, second = writer(opened, key, published), writer(opened, key, other)
        await first.write_all()
        await sell(opened, "2")
        waits = await second.write_all()
        await first.close()
        await second.write_all()

    assert () == waits
    assert [1, 2] == [each.checkpoint.number for each in other]


async def test_a_bus_has_each_checkpoint_with_its_own_id(tmp_path: Path, key: SigningKey) -> None:
    """The next process publishes the last one again, because its predecessor may have died before: with the same id."""
    bus = MemoryBus()
    async with interlock.open(f"sqlite:///{tmp_path}/x.db", charts=[CHART], work=False) as opened:
        for number in ("1", "2"):
            await sell(opened, number)
            checkpoints = CheckpointWriter(opened.store, opened.clock, key, publish=publish_to_bus(bus))
            await checkpoints.write_all()
            await checkpoints.close()
        published = [msgspec.convert(each.data, SignedCheckpoint) for each in bus.messages]
        proof = await proof_of(opened, key, published)

    assert [1, 1, 2] == [each.checkpoint.number for each in published]
    assert 2 == len({each.id for each in bus.messages})
    assert ((), 2) == (proof.problems, proof.signed)


async def test_a_process_that_was_killed_is_followed_after_three_intervals(tmp_path: Path, key: SigningKey) -> None:
    """Also when it stops for so long that it lost its lease: it then continues after what the other has written."""
    clock, published = VirtualClock(START_MS), list[SignedCheckpoint]()
    async with interlock.open(f"sqlite:///{tmp_path}/x.db", charts=[CHART], clock=clock, work=False) as opened:
        first, second = writer(opened, key, published), writer(opened, key, published)
        await sell(opened, "1")
        await first.write_all()
        clock.time_ms += LEASE_MS - 1
        await sell(opened, "2")
        waits = await second.write_all()
        clock.time_ms += 2
        await second.write_all()
        await sell(opened, "3")
        lost = await first.write_all()
        clock.time_ms += LEASE_MS + 1
        await first.write_all()
        proof = await proof_of(opened, key, published)

    assert ((), ()) == (waits, lost)
    assert [1, 1, 2, 2, 3] == [each.checkpoint.number for each in published]
    assert ((), 3) == (proof.problems, proof.signed)


async def test_many_entries_make_several_checkpoints(
    tmp_path: Path, key: SigningKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlock.operate.checkpoints.AUDIT_CHECKPOINT_ENTRIES", 4)
    published = list[SignedCheckpoint]()
    async with interlock.open(f"sqlite:///{tmp_path}/x.db", charts=[CHART], work=False) as opened:
        await sell(opened, "1", "2", "3")
        await writer(opened, key, published).write_all()
        proof = await proof_of(opened, key, published)

    assert [2, 1] == [len(each.checkpoint.journals) for each in published]
    assert () == proof.problems


async def test_a_file_has_each_checkpoint_once(tmp_path: Path, key: SigningKey) -> None:
    publish = publish_to_file(tmp_path / "published.jsonl")
    async with interlock.open("memory:", charts=[CHART], work=False) as opened:
        await sell(opened, "1")
        for number in ("2", "3"):
            checkpoints = CheckpointWriter(opened.store, opened.clock, key, publish=publish)
            await checkpoints.write_all()
            await sell(opened, number)
            await checkpoints.close()
        stored = [
            SignedCheckpoint.of_row(row)
            for row in [each.decode() for each in await opened.store.audit.audit_after(0)]  # type: ignore[union-attr]  # it has one
            if row.data is not None
        ]

    assert stored == list(read_published(tmp_path / "published.jsonl"))
    assert 2 == len(stored)


def damage(path: Path, *statements: str) -> None:
    """Change a store as someone who can write to the file."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for trigger in OTHER_TRIGGERS:
            connection.execute(f"DROP TRIGGER IF EXISTS {trigger}")
        for each in statements:
            connection.execute(each)


def rewrite_audit(path: Path) -> None:
    """Give another name to an actor, and compute the whole chain again."""
    from interlock.model.audit import first_head, next_head

    with closing(sqlite3.connect(path)) as connection, connection:
        for trigger in OTHER_TRIGGERS:
            connection.execute(f"DROP TRIGGER IF EXISTS {trigger}")
        head = first_head("")
        rows = connection.execute("SELECT sequence, body FROM audit ORDER BY sequence").fetchall()
        for sequence, body in rows:
            forged = body.replace(b'"eve"', b'"bob"')
            head = next_head(head, forged)
            actor = json.loads(forged).get("actor")
            connection.execute(
                "UPDATE audit SET body = ?, head = ?, actor = ? WHERE sequence = ?", (forged, head, actor, sequence)
            )


def rewrite_journal(path: Path, entity: str) -> None:
    """Give another principal to every entry of an entity, and compute its chain again."""
    from interlock.model.encoding.codec import encode
    from interlock.model.journal.record import chain_start, encode_line

    with closing(sqlite3.connect(path)) as connection, connection:
        head = chain_start(entity)
        kind, _, name = entity.partition("/")
        found = "SELECT version, record FROM journal WHERE kind = ? AND id = ? ORDER BY version"
        for version, record in connection.execute(found, (kind, name)).fetchall():
            line = json.loads(record.replace(b'"ada"', b'"bob"'))
            entry = encode(line["e"])
            head, forged = encode_line(version, line["k"], entry, durable=line["d"], previous=head)
            connection.execute(
                "UPDATE journal SET record = ?, head = ? WHERE kind = ? AND id = ? AND version = ?",
                (forged, head, kind, name, version),
            )
        connection.execute("UPDATE entity SET head = ? WHERE kind = ? AND id = ?", (head, kind, name))


CUT = "DELETE FROM journal WHERE id = '2' AND version = 2"
DELETED = tuple(
    f"DELETE FROM {table} WHERE id = '2'" for table in ("journal", "event_key", "entity_state", "work", "entity")
)


@pytest.mark.parametrize(
    ("forge", "without_checkpoints", "codes"),
    [
        (lambda path: damage(path, "DELETE FROM audit WHERE sequence > 1"), set(), {"audit.cut", "checkpoint.missing"}),
        (rewrite_audit, set(), {"audit.rewritten"}),
        (lambda path: rewrite_journal(path, "order/2"), set(), {"journal.rewritten"}),
        (lambda path: damage(path, *DELETED), set(), {"journal.deleted"}),
        (lambda path: damage(path, CUT), {"journal.chain"}, {"journal.chain"}),
    ],
    ids=["cut", "rewritten audit", "rewritten journal", "deleted entity", "short journal"],
)  # fmt: skip
async def test_checkpoints_show_what_chains_do_not(
    tmp_path: Path, key: SigningKey, forge: Any, without_checkpoints: set[str], codes: set[str]
) -> None:
    """What someone forges who can write to the whole database, with every chain computed again."""
    path, published = tmp_path / "x.db", list[SignedCheckpoint]()
    async with interlock.open(f"sqlite:///{path}", charts=[CHART], work=False) as opened:
        await sell(opened, "1", "2", "3")
        await writer(opened, key, published).write_all()
    forge(path)
    async with interlock.open(f"sqlite:///{path}", charts=[CHART], work=False) as opened:
        blind = await proof_of(opened, None, [])
        proof = await proof_of(opened, key, published)

    assert codes <= {each.code for each in proof.problems}, proof.problems
    assert not {"journal.rewritten", "journal.deleted"} & codes or {"order/2"} == {
        each.place for each in proof.problems
    }
    assert without_checkpoints <= {each.code for each in blind.problems}


# Every damaged place


def places(proof: AuditProof, *codes: str) -> list[tuple[str, int | None, int]]:
    """The problems of a proof: code, number and count."""
    return [(each.code, each.number, each.count) for each in proof.problems if not codes or each.code in codes]


async def refused(opened: Runtime, count: int) -> None:
    """Add rows to the audit."""
    assert opened.store.audit is not None
    row = AuditRow("order/1", "ship", "denied", "roles", START_MS, actor="eve", actor_kind="user")
    await opened.store.audit.append_audit(tuple(replace(row, key=f"k{each}") for each in range(count)))


EVE_TO_BOB = "UPDATE audit SET body = CAST(replace(body, '\"eve\"', '\"bob\"') AS BLOB), actor = 'bob' WHERE sequence"


@pytest.mark.parametrize(
    ("statements", "found", "linked"),
    [
        ((f"{EVE_TO_BOB} IN (3, 9)",), [("audit.altered", 3, 1), ("audit.altered", 9, 1)], 18),
        (("UPDATE audit SET head = 'x' WHERE sequence IN (5, 6)",), [("audit.altered", 5, 2)], 18),
        ((f"{EVE_TO_BOB} = 4", "UPDATE audit SET head = 'x' WHERE sequence = 5"), [("audit.altered", 4, 2)], 18),
        (("DELETE FROM audit WHERE sequence IN (2, 3, 4, 12)",),
         [("audit.missing", 2, 3), ("audit.missing", 12, 1)], 14),
        (("UPDATE audit SET time_ms = 7 WHERE sequence = 20",), [("audit.altered", 20, 1)], 19),
        (("DELETE FROM audit WHERE sequence = 1",), [("audit.missing", 1, 1)], 18),
        (("UPDATE audit SET sequence = 40 WHERE sequence = 20",), [("audit.altered", 20, 1)], 19),
    ],
)  # fmt: skip
async def test_every_damaged_row_is_named(
    tmp_path: Path, statements: tuple[str, ...], found: list[tuple[str, int, int]], linked: int
) -> None:
    """The rows between are linked: the row after a missing one is neither linked nor damaged."""
    path = tmp_path / "x.db"
    async with interlock.open(f"sqlite:///{path}", charts=[CHART], work=False) as opened:
        await refused(opened, 20)
    damage(path, *statements)
    async with interlock.open(f"sqlite:///{path}", charts=[CHART], work=False) as opened:
        proof = await proof_of(opened, None, [])

    assert (found, linked) == (places(proof), proof.rows)


async def test_damage_beyond_the_limit_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlock.trust.audit_chain.AUDIT_PLACES_MAX", 2)
    path = tmp_path / "x.db"
    async with interlock.open(f"sqlite:///{path}", charts=[CHART], work=False) as opened:
        await refused(opened, 20)
    damage(path, f"{EVE_TO_BOB} % 3 = 0")
    async with interlock.open(f"sqlite:///{path}", charts=[CHART], work=False) as opened:
        proof = await proof_of(opened, None, [])

    assert [("audit.altered", 3, 1), ("audit.altered", 6, 1)] == places(proof)
    assert (6, 14) == (proof.found, proof.rows)


async def test_every_damaged_entry_is_named(tmp_path: Path) -> None:
    """In one journal and in others; an entity that is whole has none."""
    path = tmp_path / "x.db"
    async with interlock.open(f"sqlite:///{path}", charts=[CHART], work=False) as opened:
        await sell(opened, "1", "2", "3")
        for number in range(6):
            await opened.send("order/1", "pay", principal=ADA, key=f"again-{number}")
    forged = "UPDATE journal SET record = CAST(replace(record, '\"ada\"', '\"bob\"') AS BLOB)"
    damage(path, f"{forged} WHERE id = '1' AND version = 1", f"{forged} WHERE id = '3' AND version = 2")
    async with interlock.open(f"sqlite:///{path}", charts=[CHART], work=False) as opened:
        proof = await proof_of(opened, None, [])

    assert {("order/1", 1), ("order/3", 2)} == {(each.place, each.number) for each in proof.problems}


async def test_a_checkpoint_after_damage_still_holds(tmp_path: Path, key: SigningKey) -> None:
    """It proves the rows after the damage; what was there is proven up to the checkpoint before."""
    clock, published = VirtualClock(START_MS), list[SignedCheckpoint]()
    path = tmp_path / "x.db"
    async with interlock.open(f"sqlite:///{path}", charts=[CHART], clock=clock, work=False) as opened:
        checkpoints = writer(opened, key, published)
        for number in ("1", "2", "3"):
            await sell(opened, number)
            await checkpoints.write_all()
            clock.time_ms += 60_000
    damage(path, f"{EVE_TO_BOB} = 3")  # after the first checkpoint, which is row 2
    async with interlock.open(f"sqlite:///{path}", charts=[CHART], clock=clock, work=False) as opened:
        proof = await proof_of(opened, key, published)

    assert [("audit.altered", 3, 1)] == places(proof)
    assert [True, False, True] == [each.holds for each in proof.covers]  # the second names row 3
    assert START_MS == proof.proven_ms


# Retention and checkpoints


async def pruned_shop(path: Path, clock: VirtualClock, key: SigningKey) -> list[SignedCheckpoint]:
    """Write two orders and a checkpoint; prune one of them; write another checkpoint."""
    published = list[SignedCheckpoint]()
    async with interlock.open(f"sqlite:///{path}", charts=[CHART], clock=clock, work=False) as opened:
        await sell(opened, "1", "2", "3")
        await opened.send("order/1", "ship", principal=ADA, key="shipped")
        checkpoints = writer(opened, key, published)
        await checkpoints.write_all()
        clock.time_ms += 86_400_000
        run = RetentionRun(opened, [RetentionRule(kind="order", ended_ms=1_000)])
        assert ["pruned"] == [each.done async for each in run.run()]
        await checkpoints.write_all()
    return published


TOMBSTONE = """
    INSERT INTO entity_tombstone (tenant, kind, id, version, head, pruned_ms, pending)
    SELECT tenant, kind, id, version, head, 1800000000000, 0 FROM entity WHERE id = '2'"""


async def test_a_forged_tombstone_does_not_hide_a_deletion(tmp_path: Path, key: SigningKey) -> None:
    """Someone deletes an entity with all its rows, and adds a tombstone that agrees with the checkpoint."""
    clock, path = VirtualClock(START_MS), tmp_path / "x.db"
    published = await pruned_shop(path, clock, key)
    damage(path, TOMBSTONE, *DELETED)
    async with interlock.open(f"sqlite:///{path}", charts=[CHART], clock=clock, work=False) as opened:
        proof = await proof_of(opened, key, published)
        blind = await proof_of(opened, None, [])

    assert [("retention.unrecorded", "order/2")] == [(each.code, each.place) for each in proof.problems]
    assert ["retention.unrecorded"] == [each.code for each in blind.problems]
    assert (None, [(3, 1, 1, 1), (1, 1, 0, 0)]) == (
        proof.proven_ms,
        [(each.entities, each.kept, each.pruned, each.damaged) for each in proof.covers],
    )


async def test_a_record_that_was_added_behind_a_checkpoint_is_named(tmp_path: Path, key: SigningKey) -> None:
    """Someone forges the record of retention, too, at a position that the checkpoints have passed."""
    clock, path = VirtualClock(START_MS), tmp_path / "x.db"
    published = await pruned_shop(path, clock, key)
    async with interlock.open(f"sqlite:///{path}", charts=[CHART], clock=clock, work=False) as opened:
        await opened.send("order/3", "ship", principal=ADA, key="late")
        await opened.send("order/2", "ship", principal=ADA, key="late")
        clock.time_ms += 86_400_000
        run = RetentionRun(opened, [RetentionRule(kind="order", ended_ms=1_000)])
        assert ["pruned", "pruned"] == [each.done async for each in run.run()]
        proof = await proof_of(opened, key, published)
        assert () == proof.problems  # newer than the last checkpoint
    damage(path, f"UPDATE journal SET position = -position WHERE id = '{run.record.entity.partition('/')[2]}'")
    async with interlock.open(f"sqlite:///{path}", charts=[CHART], clock=clock, work=False) as opened:
        proof = await proof_of(opened, key, published)

    assert [("retention.unsigned", run.record.entity)] == [(each.code, each.place) for each in proof.problems]


async def test_a_removed_tombstone_is_named(tmp_path: Path, key: SigningKey) -> None:
    """Without it, the id could be used again."""
    clock, path = VirtualClock(START_MS), tmp_path / "x.db"
    published = await pruned_shop(path, clock, key)
    damage(path, "DELETE FROM entity_tombstone WHERE id = '1'")
    async with interlock.open(f"sqlite:///{path}", charts=[CHART], clock=clock, work=False) as opened:
        proof = await proof_of(opened, key, published)

    assert {("retention.tombstone", "order/1")} == {(each.code, each.place) for each in proof.problems}


async def test_a_checkpoint_of_another_key_is_not_one(tmp_path: Path, key: SigningKey) -> None:
    """Someone who can write to the database has a key, too."""
    other = SigningKey.create(tmp_path / "other.pem")
    async with interlock.open("memory:", charts=[CHART], work=False) as opened:
        await sell(opened, "1")
        await writer(opened, other, []).write_all()
        proof = await proof_of(opened, key, [])

    assert (["checkpoint.signature"], None) == ([each.code for each in proof.problems], proof.proven_ms)


async def test_an_older_copy_is_shown_by_published_checkpoints(tmp_path: Path, key: SigningKey) -> None:
    published = list[SignedCheckpoint]()
    path, copy = tmp_path / "x.db", tmp_path / "copy.db"
    for number in ("1", "2"):
        async with interlock.open(f"sqlite:///{path}", charts=[CHART], work=False) as opened:
            await sell(opened, number)
            checkpoints = writer(opened, key, published)
            await checkpoints.write_all()
            await checkpoints.close()
        if number == "1":
            copy.write_bytes(path.read_bytes())
    async with interlock.open(f"sqlite:///{copy}", charts=[CHART], work=False) as opened:
        inside = await proof_of(opened, key, [])
        outside = await proof_of(opened, key, published)

    assert () == inside.problems
    assert {"checkpoint.missing", "audit.cut"} <= {each.code for each in outside.problems}


def test_keys_are_read_as_they_were_written(tmp_path: Path, key: SigningKey) -> None:
    again = SigningKey.read(tmp_path / "audit.pem")
    (tmp_path / "no.pem").write_text("no key")

    assert key.public.text == again.public.text == VerifyingKey.of(key.public.text).text
    assert 0o600 == (tmp_path / "audit.pem").stat().st_mode & 0o777
    for mistake in (
        lambda: SigningKey.create(tmp_path / "audit.pem"),
        lambda: SigningKey.read(tmp_path / "no.pem"),
        lambda: VerifyingKey.of("12"),
        lambda: VerifyingKey.of("no hex"),
    ):
        with pytest.raises(UsageError):
            mistake()


async def test_a_store_without_an_audit_has_no_export() -> None:
    class Without(MemoryStore):
        audit = None  # type: ignore[assignment]  # a store that cannot

    with pytest.raises(UsageError) as caught:
        _ = [each async for each in export_audit(Without())]

    assert "audit.unsupported" == caught.value.code
