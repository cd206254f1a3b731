"""Verification: read whole journals, check every link, replay every entry, and compare with the rows derived from them.

Rule 1: a replayed step must give what its entry records: from, to, outcome, reason, effects, and the digest of the
snapshot after it; and the stored snapshot must equal the replayed one at its version. Anything else is a divergence,
reported with its version. Entries of earlier releases have no digest.
Rule 2: damage is a result, not an exception: one bad entity does not stop the verification of the others. So is an
entity that cannot be read, as long as the store itself responds.
Rule 3: an entity whose revision is not loaded is not replayed, and the result says so. A compatible chart may replay
it, but where that gives a different result nothing is proven: it may rightly differ.
Rule 4: the rows that a database derives from its journals, for lists, counts and keys, are compared with them.
Rule 5: the store checks the links; it knows its key and tenant. Without a key a chain shows accidents and careless
edits, but not the work of an attacker who can rewrite the whole chain.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from itertools import zip_longest

from msgspec import Struct

from interlock.errors import (
    ArchivedError,
    CompactedError,
    CorruptionError,
    InterlockError,
    NotFoundError,
    UnavailableError,
)
from interlock.kernel.step import Kernel
from interlock.model.encoding.codec import encode
from interlock.model.entity_id import kind_of
from interlock.model.journal.entry import Entry
from interlock.model.journal.record import JournalRecord
from interlock.model.limits import JOURNAL_PLACES_MAX
from interlock.model.snapshot import Sight, Snapshot
from interlock.model.step import Step
from interlock.ports.delivery import CHART_MISSING_CODES
from interlock.ports.store import PAGE_MAX, Duplicate, EntityQuery, Loaded, Store
from interlock.ports.trust.retention import JournalBase
from interlock.runtime.charts.revisions import Revisions, missing_functions
from interlock.runtime.history.removed import beginning, missing_entity
from interlock.runtime.history.replay import (
    DIGEST,
    DIGEST_HINT,
    as_recorded,
    digest_problem,
    kernel_of_entry,
    read_before_damage,
    repeat_step,
    unproven,
)

UNKNOWN, UNREAD = "entity.unknown", "journal.unread"
UNVERIFIED = CHART_MISSING_CODES | {UNKNOWN, UNREAD}
"""Codes of problems that are not damage: a chart or function is missing, or the entity is unknown or unreadable."""

_SHOWN_MAX = 80
_UNREAD_MAX = 3
"""Records in sequence that cannot be read, after which a journal is read no further: each costs ten reads."""
_UNKNOWN = Loaded(2**63, 0, None)
"""Replaces an entity that cannot be loaded: its journal is read to its end."""


class VerificationProblem(Struct, frozen=True, omit_defaults=True):
    """A problem of an entity: a stable code, the message, and the version where it was found, if known."""

    code: str
    message: str
    version: int | None = None

    @property
    def is_corruption(self) -> bool:
        """Whether the journal is damaged; otherwise it could not be judged here."""
        return self.code not in UNVERIFIED


class Verification(Struct, frozen=True, omit_defaults=True):
    """The result for one entity: how many entries are linked, up to which hash, whether replayed, and the first
    problem.

    `archive` is the address of the archive to which its records were released; the archive was not checked. `since` is
    the version at which a compacted journal starts: the entries up to it no longer exist.
    """

    entity: str
    entries: int = 0
    head: str | None = None
    replayed: bool = False
    archive: str | None = None
    problem: VerificationProblem | None = None
    since: int = 0


async def verify_entity(store: Store, revisions: Revisions | None, entity: str) -> Verification:
    """Verify one entity; without charts, only its chain.

    Raises NotFoundError for an unknown entity, UnavailableError when the store as a whole does not respond.
    """
    damage: CorruptionError | None = None
    try:
        loaded = await store.load(entity)
    except CorruptionError as error:
        loaded, damage = _UNKNOWN, error
    except UnavailableError as error:
        return await _unreadable(store, entity, error)
    if loaded is None or isinstance(loaded, Duplicate):
        raise await missing_entity(store, entity)
    verifier = EntityVerifier(revisions, entity, loaded)
    try:
        while verifier.entries < loaded.version and not verifier.is_corrupt:
            try:
                records = await store.read(entity, after=verifier.entries, limit=PAGE_MAX)
            except CompactedError as error:  # perhaps only now
                verifier.begin(await beginning(store, error, entity))
                continue
            if not records:
                break
            await verifier.check(records)
    except ArchivedError as error:
        return Verification(entity, archive=error.archive)
    except CorruptionError as error:
        with suppress(UnavailableError):  # the damage is reported in any case, only at a less exact version
            await verifier.check(await read_before_damage(store, entity, after=verifier.entries))
        verifier.fail(error.code, error.message, verifier.entries + 1)
    except UnavailableError as error:
        return await _unreadable(store, entity, error)
    if damage is not None:
        verifier.fail(damage.code, damage.message)
    if revisions is not None and store.verification is not None and not verifier.is_corrupt:
        for difference in await store.verification.differences(entity):
            verifier.fail("store.beside", f"`{entity}`: {difference}")
    return verifier.result()


async def damage_after(store: Store, entity: str, version: int) -> list[tuple[int, int]]:
    """Return the damaged places of a journal after a damaged version: the first version of each, and how many.

    A place counts once a record after it can be read. Where the store reads a journal from its start only, there are
    none.
    """
    found: list[tuple[int, int]] = []
    first = count = 0
    after = version
    while count <= _UNREAD_MAX and len(found) < JOURNAL_PLACES_MAX:
        is_damaged = False
        try:
            records = await store.read(entity, after=after, limit=PAGE_MAX)
        except CorruptionError:
            records, is_damaged = await read_before_damage(store, entity, after=after), True
        except InterlockError:
            break
        if count and (records or not is_damaged):
            found.append((first, count))
            count = 0
        if not records and not is_damaged:
            break
        after = records[-1].version if records else after
        if is_damaged:
            after += 1
            first, count = (first if count else after), count + 1
    return found


async def _unreadable(store: Store, entity: str, error: UnavailableError) -> Verification:
    """Return the result for an unreadable entity. Raises UnavailableError when the store does not respond at all."""
    await store.kinds()
    return Verification(entity, problem=VerificationProblem(UNREAD, error.message))


async def verify_store(store: Store, revisions: Revisions | None, *, now_ms: int) -> AsyncIterator[Verification]:
    """Verify every entity, kind by kind. `now_ms` is the time at the start.

    An entity that changes during the walk is listed again further back. Each such entity is verified at most once more,
    and the walk ends with a page that shows nothing new.
    """
    names = None if store.verification is None else await store.verification.entity_names()
    if names is not None:  # its lists leave out what is damaged
        for name in names:
            result = await _verify_named(store, revisions, name)
            if result is not None:
                yield result
        return
    for kind in await store.kinds():
        moved: set[str] = set()
        cursor: str | None = None
        while True:  # ends with the last page, or with one that shows nothing new
            page = await store.find(EntityQuery(kind=kind, after=cursor, limit=PAGE_MAX))
            fresh = [each for each in page.rows if each.entity not in moved]
            moved |= {each.entity for each in fresh if each.entered_ms >= now_ms}
            for row in fresh:
                yield await verify_entity(store, revisions, row.entity)
            cursor = page.after
            if cursor is None or (page.rows and not fresh):
                break
    if revisions is not None and store.verification is not None:
        for each in await store.verification.differences():
            yield Verification("the store", problem=VerificationProblem("store.beside", each))


async def _verify_named(store: Store, revisions: Revisions | None, name: str) -> Verification | None:
    """Verify what has a name; None when it was created and never written."""
    if "/" not in name:
        message = "the journal does not say which entity it belongs to"
        return Verification(name, problem=VerificationProblem("entity.unreadable", message))
    try:
        return await verify_entity(store, revisions, name)
    except NotFoundError:
        return None


class EntityVerifier:
    """Checks the records of one entity in order."""

    def __init__(self, revisions: Revisions | None, entity: str, loaded: Loaded) -> None:
        self._revisions = revisions
        self._entity = entity
        self._loaded = loaded
        self._snapshot: Snapshot | None = None
        self._head: str | None = None
        self._since = 0
        self._problem: VerificationProblem | None = None
        # Entries of an earlier release do not record what others see; replay starts to count with the first entry.
        sight = None if loaded.snapshot is None else loaded.snapshot.sight
        self._has_sight = sight is not None and sight.since == 1
        self.entries = 0

    @property
    def is_corrupt(self) -> bool:
        return self._problem is not None and self._problem.is_corruption

    def begin(self, base: JournalBase) -> None:
        """Continue at the base of a compacted journal. What was verified before must lead to it."""
        is_known = self._snapshot is not None and base.version == self.entries
        if base.snapshot.version != base.version or (is_known and encode(self._snapshot) != encode(base.snapshot)):
            message = f"the journal of `{self._entity}` does not start with its snapshot at version {base.version}"
            self.fail("journal.base", message, base.version)
        self._snapshot, self._head, self.entries, self._since = base.snapshot, base.head, base.version, base.version

    async def check(self, records: tuple[JournalRecord, ...]) -> None:
        """Check the next records. Those after the loaded version were written meanwhile and are skipped."""
        for record in records:
            if self.is_corrupt or self.entries == self._loaded.version:
                return
            if record.key != record.entry.key:
                message = f"the record has the key `{record.key}`, its entry `{record.entry.key}`"
                self._fail_at(record, "journal.key", message)
            elif self._revisions is not None and self._problem is None:
                await self._replay(self._revisions, record)
            if not self.is_corrupt:
                self.entries, self._head = record.version, record.head

    def fail(self, code: str, message: str, version: int | None = None) -> None:
        """Record a problem, unless damage was found before."""
        if not self.is_corrupt:
            self._problem = VerificationProblem(code, message, version)

    def _fail_at(self, record: JournalRecord, code: str, message: str) -> None:
        self.fail(code, f"the journal of `{self._entity}` at version {record.version}: {message}", record.version)

    def result(self) -> Verification:
        """Return the result."""
        if self.entries != self._loaded.version:  # this is damage even without a chart
            message = f"`{self._entity}` is at version {self._loaded.version}, but its journal ends at {self.entries}"
            self.fail("journal.short", message, self.entries + 1)
        replayed = self._revisions is not None and self._problem is None
        return Verification(self._entity, self.entries, self._head, replayed, None, self._problem, self._since)

    async def _replay(self, revisions: Revisions, record: JournalRecord) -> None:
        entry = record.entry
        try:
            kernel = await kernel_of_entry(revisions, kind_of(self._entity), entry)
        except (NotFoundError, UnavailableError) as error:
            self._problem = VerificationProblem(error.code, error.message, record.version)
            return
        try:
            step = repeat_step(kernel, self._entity, self._snapshot, entry)
        except InterlockError as error:
            if kernel is None:
                self._fail_at(record, error.code, error.message)
                return
            self._record_divergence(kernel, record, f"the step fails: {error.message}")
            return
        missing = None if kernel is None else revisions.missing_call(kernel)
        if kernel is not None and missing is not None:
            lacking = missing_functions(kernel.chart, (missing,))
            self._problem = VerificationProblem(lacking.code, lacking.message, record.version)
            return
        after = as_recorded(step.snapshot, entry)
        found, code = difference(entry, self._snapshot, step), "journal.divergence"
        if found is None and self._has_sight:
            found = _sight_difference(entry, step.snapshot)
        if found is None and (found := digest_problem(entry, after)) is not None:
            code = DIGEST
        fields = self._different_fields(after)
        if found is None and fields:
            found = f"{fields} of the stored snapshot differs from the replayed one"
        elif found is not None and code == DIGEST:
            found = f"{found} ({fields + ' differs; ' if fields else ''}{DIGEST_HINT})"
        if found is not None:
            self._record_divergence(kernel, record, found, code)
        self._snapshot = after

    def _record_divergence(
        self, kernel: Kernel | None, record: JournalRecord, found: str, code: str = "journal.divergence"
    ) -> None:
        """Record that a repeated step gives a different result. It is damage only by the chart that wrote the entry."""
        if kernel is None or kernel.chart.is_revision(record.entry.revision):
            self._fail_at(record, code, found)
            return
        error = unproven(self._entity, record.entry, kernel)
        self._problem = VerificationProblem(error.code, error.message, record.version)

    def _different_fields(self, snapshot: Snapshot) -> str:
        """Return the fields in which the stored snapshot differs from the replayed one, if it is of this version."""
        stored = self._loaded.snapshot
        if stored is None or stored.version != snapshot.version:
            return ""
        skipped = {"revision"} if self._has_sight else {"revision", "sight"}
        names = (each for each in stored.__struct_fields__ if each not in skipped)
        return ", ".join(
            f"`{name}`" for name in names if encode(getattr(stored, name)) != encode(getattr(snapshot, name))
        )


def _sight_difference(entry: Entry, after: Snapshot) -> str | None:
    """Return how what others see of an entry differs from what the chart gives."""
    sight = after.sight or Sight()
    if (entry.unseen, entry.shown) == (sight.unseen, sight.shown):
        return None
    return f"it is shown as `{entry.shown}`, {entry.unseen} unseen, but the chart gives `{sight.shown}`, {sight.unseen}"


def difference(entry: Entry, before: Snapshot | None, step: Step) -> str | None:
    """Return the first field in which an entry and its repeated step differ."""
    after = step.snapshot
    fields = (
        ("version", entry.version, after.version),
        ("from", entry.before, () if before is None else before.configuration),
        ("to", entry.after, after.configuration),
        ("outcome", entry.outcome, step.outcome),
        ("reason", entry.reason, step.reason),
        ("effects", entry.effects, step.effects),
    )
    for name, recorded, given in fields:
        if encode(recorded) != encode(given):
            written, found = _shorten(recorded, given)
            return f"`{name}` is {written}, but the chart gives {found}"
    return None


def _shorten(recorded: object, given: object) -> tuple[str, str]:
    """Return two different values as JSON; of long values the part where they start to differ."""
    texts = [encode(each).decode() for each in (recorded, given)]
    if max(map(len, texts)) <= _SHOWN_MAX:
        return texts[0], texts[1]
    same = next(at for at, (left, right) in enumerate(zip_longest(*texts)) if left != right)
    start = 0 if same < _SHOWN_MAX // 2 else same - _SHOWN_MAX // 4
    cut = [("…" if start else "") + each[start : start + _SHOWN_MAX] for each in texts]
    ends = ["…" if len(each) > start + _SHOWN_MAX else "" for each in texts]
    return cut[0] + ends[0], cut[1] + ends[1]
