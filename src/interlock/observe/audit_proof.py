"""Verifies the audit as a whole: its chain, the chain of every journal, all checkpoints, and what retention removed.

Rule 1: damage is a result and not an exception. All of it is counted, and the first `AUDIT_PROBLEMS_MAX` are named: the
verification goes on after each.
Rule 2: a checkpoint covers what it names and what those before it name. A later one replaces what an earlier one says
of an entity: a head proves everything before it.
Rule 3: what a checkpoint names may be gone if retention removed it. A tombstone, or the base of a compacted journal,
counts only if a record of retention names it (`runtime/history/retention_records.py`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from hashlib import blake2b
from typing import Literal

from msgspec import Struct

from interlock.errors import ArchivedError, CompactedError, CorruptionError, NotFoundError, UsageError
from interlock.model.audit import CHECKPOINT, AuditRecord, AuditRow
from interlock.model.limits import AUDIT_COVERS_MAX, AUDIT_PROBLEMS_MAX
from interlock.ports.store import Store
from interlock.ports.trust.audit import AuditLog
from interlock.runtime.charts.registry import RETENTION_KIND
from interlock.runtime.history.retention_records import Removed, What, recorded_batches
from interlock.runtime.history.verify import Verification, damage_after, verify_store
from interlock.runtime.reading.feed import feed_of
from interlock.trust.audit_chain import ChainDamage, verify_chain
from interlock.trust.checkpoints import Checkpoint, JournalHead, SignedCheckpoint, VerifyingKey

RECENT_ROWS = 10_000
"""Rows between a checkpoint and the last row that it names: it is written at once."""

PAGE = 1_000

_DAMAGE = {"altered": "changed", "missing": "missing", "repeated": "there twice, or out of order"}


class AuditProblem(Struct, frozen=True, omit_defaults=True):
    """Damage: its stable code, where it is, and what it is. `place` is `audit`, `checkpoint` or an entity.

    `number` is the row, the checkpoint or the version, and `count` how many of them in sequence.
    """

    code: str
    place: str
    message: str
    number: int | None = None
    count: int = 1


class CheckpointCover(Struct, frozen=True):
    """What a checkpoint still covers. `holds`: its signature, its number and its row of the audit are as they must be.

    Of the `entities` that it names, `kept` are there, with everything up to the version that it names; of the others,
    retention pruned some or compacted their journals. `damaged` are neither.
    """

    number: int
    time_ms: int
    sequence: int
    holds: bool
    entities: int
    kept: int
    pruned: int
    compacted: int
    damaged: int


class AuditProof(Struct, frozen=True):
    """What was verified, and what is still proven.

    `rows` of the audit are linked, up to `sequence`; `entries` of `entities` are linked. Retention pruned `pruned`
    entities, and compacted the journals of `compacted`. `checkpoints` were found, and `signed` of them carry a valid
    signature; `covers` are the newest of them. `proven_ms` is the time of the last checkpoint before any damage: what
    was there then has not been changed since, or was removed by retention. None: nothing is proven.
    `found` is the number of problems, `problems` the first of them.
    """

    rows: int
    sequence: int
    entities: int
    entries: int
    archived: int
    pruned: int
    compacted: int
    checkpoints: int
    signed: int
    proven_ms: int | None
    found: int
    problems: tuple[AuditProblem, ...]
    covers: tuple[CheckpointCover, ...]


async def verify_audit(
    store: Store,
    *,
    now_ms: int,
    key: VerifyingKey | None = None,
    published: Iterable[SignedCheckpoint] = (),
) -> AuditProof:
    """Verify the audit, every journal, what retention removed, and all checkpoints: those in the audit and those that
    were published.

    Without a key, signatures are not verified, and an audit that was replaced as a whole is not found.
    """
    if store.audit is None:
        raise UsageError("this store has no audit", code="audit.unsupported")
    verifier = _AuditVerifier(store, store.audit, key)
    await verifier.follow_audit(tuple(published))
    async for result in verify_store(store, None, now_ms=now_ms):
        await verifier.add_entity(result)
    await verifier.compare_removals()
    await verifier.compare_journals()
    return verifier.proof()


class _Gone(Struct, frozen=True):
    """Up to which version entries of an entity are gone, and how."""

    version: int
    how: Literal["pruned", "compacted"]


class _AuditVerifier:
    """Collects what is found: first of the audit, then of journals and removals, then of the checkpoints."""

    def __init__(self, store: Store, log: AuditLog, key: VerifyingKey | None) -> None:
        self._store = store
        self._log = log
        self._key = key
        self._problems: list[AuditProblem] = []
        self._found = 0
        self._stored: dict[int, SignedCheckpoint] = {}
        self._rows = self._sequence = 0
        self._first_damage: int | None = None
        self._heads: dict[int, str] = {}
        self._checkpoints: list[tuple[Checkpoint, bool]] = []
        self._journals: dict[str, tuple[JournalHead, int]] = {}
        self._versions: dict[str, tuple[int, bool]] = {}  # of each entity: how many entries, and whether archived
        self._broken: dict[str, int] = {}  # from which version on
        self._gone: dict[str, _Gone] = {}
        self._bases: dict[str, int] = {}
        self._record_entries: dict[str, int] = {}
        self._signed = self._entries = self._archived = self._pruned = 0

    # The audit and its checkpoints

    async def follow_audit(self, published: tuple[SignedCheckpoint, ...]) -> None:
        """Follow the chain, and read the checkpoints in it; then compare all checkpoints with it."""
        self._heads[0] = self._log.first_audit_head
        wanted = {0, *(each.checkpoint.sequence for each in published)}
        recent: dict[int, str] = {}

        def on_row(record: AuditRecord) -> None:
            recent[record.sequence] = record.head
            if record.sequence in wanted:
                self._heads[record.sequence] = record.head
            if len(recent) > RECENT_ROWS:
                del recent[next(iter(recent))]
            if record.actor is not None and (row := record.decode()).event == CHECKPOINT:
                self._add_stored(row, record.sequence, recent)

        chain = await verify_chain(self._log, on_row=on_row)
        self._rows, self._sequence, self._first_damage = chain.linked, chain.sequence, chain.broken
        for each in chain.damages:
            self._fail(f"audit.{each.damage}", "audit", _damage_text(each), each.sequence, each.rows)
        self._found += chain.places - len(chain.damages)
        self._compare(published)

    def _add_stored(self, row: AuditRow, sequence: int, recent: Mapping[int, str]) -> None:
        try:
            signed = SignedCheckpoint.of_row(row)
            number, named = signed.checkpoint.number, signed.checkpoint.sequence
        except UsageError as error:
            self._fail("checkpoint.malformed", "checkpoint", f"row {sequence}: {error.message}", sequence)
            return
        if number in self._stored:
            self._fail("checkpoint.repeated", "checkpoint", f"checkpoint {number} is there twice", number)
        self._stored[number] = signed
        head = recent.get(named)
        if head is not None:
            self._heads[named] = head

    def _compare(self, published: tuple[SignedCheckpoint, ...]) -> None:
        """Compare the checkpoints with the chain, with each other, and with those that were published."""
        outside = {each.checkpoint.number: each for each in published}
        every = {**self._stored, **outside}
        for number, signed in sorted(every.items()):
            stored = self._stored.get(number)
            holds = True
            if stored is None:
                end = ": its end was removed" if number > max(self._stored, default=0) else ""
                message = f"checkpoint {number} was published and is not in the audit{end}"
                self._fail("checkpoint.missing", "audit", message, number)
            elif number in outside and stored.text != outside[number].text:
                message = f"checkpoint {number} differs from the one that was published: the audit was replaced"
                holds = self._fail("checkpoint.differs", "audit", message, number)
            holds = self._check(number, signed, every.get(number - 1)) and holds
            self._checkpoints.append((signed.checkpoint, holds))
            if holds:
                for entity, journal in signed.checkpoint.journals.items():
                    self._journals[entity] = (journal, number)
        for number in range(1, max(every, default=0)):
            if number not in every:
                self._fail("checkpoint.missing", "checkpoint", f"checkpoint {number} is not in the audit", number)

    def _check(self, number: int, signed: SignedCheckpoint, before: SignedCheckpoint | None) -> bool:
        """Whether a checkpoint is signed, follows the one before, and names the head that the audit has."""
        found = signed.checkpoint
        if self._key is not None:
            if not self._key.is_signed(signed):
                message = f"checkpoint {number} has another signature"
                return self._fail("checkpoint.signature", "checkpoint", message, number)
            self._signed += 1
        if found.stream != self._log.first_audit_head:
            return self._fail("checkpoint.stream", "checkpoint", f"checkpoint {number} is of another tenant", number)
        if before is not None and found.previous != before.digest:
            message = f"checkpoint {number} does not follow {number - 1}"
            return self._fail("checkpoint.order", "checkpoint", message, number)
        head = self._heads.get(found.sequence)
        if head is None and found.sequence > self._sequence:
            message = f"checkpoint {number} names row {found.sequence}, and the audit ends at {self._sequence}"
            return self._fail("audit.cut", "audit", message, found.sequence)
        if head is not None and head != found.head:
            message = f"the rows up to {found.sequence} differ from checkpoint {number}: the chain was replaced"
            return self._fail("audit.rewritten", "audit", message, found.sequence)
        return head is not None  # None: that row is damaged, which is reported

    # Journals

    async def add_entity(self, result: Verification) -> None:
        """Add the result of a journal, and the places of its damage after the first."""
        entity, problem = result.entity, result.problem
        self._versions[entity] = (result.entries, result.archive is not None)
        self._entries += result.entries - result.since
        self._archived += result.archive is not None
        if result.since:
            await self._add_base(entity, result.since)
        if entity.startswith(f"{RETENTION_KIND}/"):
            self._record_entries[entity] = result.entries
        if problem is None:
            return
        version = 1 if problem.version is None else problem.version
        self._broken[entity] = version
        places = await damage_after(self._store, entity, version) if problem.is_corruption else []
        # An entry after a damaged one may be whole: it does not follow the hash that the damaged one has now.
        count = 1 + (places.pop(0)[1] if places and places[0][0] == version + 1 else 0)
        self._fail(problem.code, entity, problem.message, problem.version, count)
        for first, number in places:
            text = f"version {first}" if number == 1 else f"versions {first} to {first + number - 1}"
            self._fail(problem.code, entity, f"the journal of `{entity}` is damaged at {text}, too", first, number)

    async def _add_base(self, entity: str, since: int) -> None:
        base = None if self._store.retention is None else await self._store.retention.journal_base(entity)
        if base is not None:
            self._gone[entity] = _Gone(base.version, "compacted")
            self._bases[entity] = _name("compact", Removed(entity, base.version, base.digest))
        else:
            self._gone[entity] = _Gone(since, "compacted")
            self._bases[entity] = 0

    # What retention removed

    async def compare_removals(self) -> None:
        """Compare tombstones and bases with the records of retention."""
        if self._store.retention is None:
            return
        tombstones = {_name("prune", each) async for each in self._tombstones()}
        self._pruned = len(tombstones)
        recorded: set[int] = set()
        async for batch in recorded_batches(self._store):
            for each in batch.removed:
                name = _name(batch.what, each)
                recorded.add(name)
                if batch.what == "prune" and name not in tombstones:
                    await self._check_recorded(batch.record, each)
        forged = tombstones - recorded
        if forged:
            async for each in self._tombstones():
                if _name("prune", each) in forged:
                    message = f"`{each.entity}` has a tombstone that no record of retention names: it was deleted"
                    self._break(each.entity, "retention.unrecorded", message, each.version)
        for entity, name in self._bases.items():
            if name not in recorded:
                version = self._gone[entity].version
                message = (
                    f"the journal of `{entity}` starts after version {version}, and no record of retention says so"
                )
                self._break(entity, "retention.unrecorded", message, version)
        await self._check_records_signed()

    async def _tombstones(self) -> AsyncIterator[Removed]:
        assert self._store.retention is not None
        after: str | None = None
        while page := await self._store.retention.tombstones(after=after, limit=PAGE):
            for each in page:
                yield Removed(each.entity, each.version, each.head)
            after = page[-1].entity

    async def _check_recorded(self, record: str, removed: Removed) -> None:
        """Rule 2 of the records: it is there, or has another tombstone, which is compared itself."""
        assert self._store.retention is not None
        entity = removed.entity
        if entity in self._versions or await self._store.retention.tombstone(entity) is not None:
            return
        if await self._store.load(entity) is None:
            message = (
                f"`{record}` says that `{entity}` was pruned at version {removed.version}; its tombstone is missing"
            )
            self._break(entity, "retention.tombstone", message, removed.version)

    async def _check_records_signed(self) -> None:
        """Report records that no checkpoint names although they are older: they were added behind its back."""
        valid = [found for found, holds in self._checkpoints if holds]
        if self._key is None or not valid or len(valid) < len(self._checkpoints):
            return  # without all checkpoints it is not known what they name
        recent: dict[str, int] = {}
        cursor = valid[-1].cursor
        while True:  # ends with the feed
            page = await feed_of(self._store).feed(cursor, kinds=(RETENTION_KIND,), limit=PAGE)
            for each in page.entries:
                recent.setdefault(each.entity, each.entry.version)
            if page.is_last:
                break
            cursor = page.after
        for record, entries in self._record_entries.items():
            named = self._journals[record][0].version if record in self._journals else 0
            if entries > named and recent.get(record, entries + 1) > named + 1:
                message = f"`{record}` is older than the last checkpoint, and none names its version {named + 1}"
                self._break(record, "retention.unsigned", message, named + 1)

    # What checkpoints say of journals

    async def compare_journals(self) -> None:
        """Compare the journals with the heads that checkpoints name."""
        for entity, (journal, number) in self._journals.items():
            if entity not in self._versions:
                await self._check_pruned(entity, journal, number)
                continue
            gone, (_, is_archived) = self._gone.get(entity), self._versions[entity]
            if is_archived or (gone is not None and gone.version > journal.version):
                continue
            head = await _head_at(self._store, entity, journal.version)
            if head is None and entity not in self._broken:
                message = f"`{entity}` had version {journal.version} at checkpoint {number}; its journal was cut"
                self._break(entity, "journal.cut", message, journal.version)
            elif head is not None and head != journal.head:
                message = f"the journal of `{entity}` differs from checkpoint {number}: it was replaced"
                self._break(entity, "journal.rewritten", message, 1, shown=journal.version)

    async def _check_pruned(self, entity: str, journal: JournalHead, number: int) -> None:
        """Whether an entity that is not there has the tombstone of what a checkpoint names."""
        last = None if self._store.retention is None else await self._store.retention.tombstone(entity)
        if last is not None and (
            last.version > journal.version or (last.version, last.head) == (journal.version, journal.head)
        ):
            self._gone[entity] = _Gone(last.version, "pruned")
        elif entity not in self._broken:
            message = f"`{entity}` was there at checkpoint {number}, at version {journal.version}, and was deleted"
            self._break(entity, "journal.deleted", message, 1, shown=journal.version)

    # The result

    def proof(self) -> AuditProof:
        """Return the result."""
        covers = [self._cover(found, holds) for found, holds in self._checkpoints]
        return AuditProof(
            rows=self._rows,
            sequence=self._sequence,
            entities=len(self._versions),
            entries=self._entries,
            archived=self._archived,
            pruned=self._pruned,
            compacted=len(self._bases),
            checkpoints=len(self._stored),
            signed=self._signed,
            proven_ms=self._proven_ms(covers) if self._key is not None else None,
            found=self._found,
            problems=tuple(self._problems),
            covers=tuple(covers[-AUDIT_COVERS_MAX:]),
        )

    def _cover(self, found: Checkpoint, holds: bool) -> CheckpointCover:  # noqa: FBT001 - a pair
        counts = {"kept": 0, "pruned": 0, "compacted": 0, "damaged": 0}
        for entity, journal in found.journals.items():
            counts[self._state_of(entity, journal.version)] += 1
        return CheckpointCover(found.number, found.time_ms, found.sequence, holds, len(found.journals), **counts)

    def _state_of(self, entity: str, version: int) -> str:
        if self._broken.get(entity, version + 1) <= version:
            return "damaged"
        gone = self._gone.get(entity)
        return gone.how if gone is not None and gone.version >= version else "kept"

    def _proven_ms(self, covers: list[CheckpointCover]) -> int | None:
        """Return the time of the last checkpoint before any damage: rule 2."""
        proven: int | None = None
        for number, each in enumerate(covers, start=1):
            is_whole = self._first_damage is None or self._first_damage > each.sequence
            if each.number != number or not each.holds or each.damaged or not is_whole:
                break
            proven = each.time_ms
        return proven

    def _fail(self, code: str, place: str, message: str, number: int | None = None, count: int = 1) -> Literal[False]:
        self._found += 1
        if len(self._problems) < AUDIT_PROBLEMS_MAX:
            self._problems.append(AuditProblem(code, place, message, number, count))
        return False

    def _break(self, entity: str, code: str, message: str, version: int, *, shown: int | None = None) -> None:
        """Report damage of an entity from a version on."""
        self._broken[entity] = min(version, self._broken.get(entity, version))
        self._fail(code, entity, message, version if shown is None else shown)


def _name(what: What, removed: Removed) -> int:
    """Return a number for a removal: a store may have millions, and each is kept in memory."""
    text = f"{what}\0{removed.entity}\0{removed.version}\0{removed.hash}"
    return int.from_bytes(blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest())


def _damage_text(found: ChainDamage) -> str:
    text = _DAMAGE[found.damage]
    if found.rows == 1:
        return f"row {found.sequence} {'was' if found.damage == 'altered' else 'is'} {text}"
    verb = "were" if found.damage == "altered" else "are"
    return f"rows {found.sequence} to {found.sequence + found.rows - 1} {verb} {text}"


async def _head_at(store: Store, entity: str, version: int) -> str | None:
    """Return the head of an entity's record; None if there is none, or it cannot be read."""
    try:
        records = await store.read(entity, after=version - 1, limit=1)
    except CompactedError:  # the record before it is gone: its base has the head
        base = None if store.retention is None else await store.retention.journal_base(entity)
        return base.head if base is not None and base.version == version else None
    except (ArchivedError, CorruptionError, NotFoundError):
        return None
    return records[0].head if records and records[0].version == version else None
