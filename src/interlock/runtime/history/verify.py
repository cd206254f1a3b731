"""Verify: read journals whole, check every link, replay every entry, and compare with what is kept beside them.

Rule 1: what a step gives when it is done again must be what its entry says: from, to, outcome, reason, effects; and the
stored snapshot must be the replayed one at its version. Anything else is a divergence, told with its version.
Rule 2: damage is an answer, not an exception: one bad entity does not keep the others from being looked at. One that
cannot be read is an answer too, as long as the store itself answers.
Rule 3: an entity whose revision is not here is not replayed, and that is said; nothing is guessed about it. A chart
that is compatible may replay it, but where it gives something else, nothing is proven: it may be right to differ.
Rule 4: what a database keeps beside its journals for lists, counts and known keys is held against them.
Rule 5: links are checked by the store, which knows its key and tenant. Without a key a chain shows accidents and
clumsy edits; it proves nothing against someone who can write it anew as a whole.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from itertools import zip_longest

from msgspec import Struct

from interlock.errors import ArchivedError, CorruptionError, InterlockError, NotFoundError, UnavailableError
from interlock.kernel.step import Kernel
from interlock.model.codec import encode
from interlock.model.journal.entry import Entry
from interlock.model.journal.record import JournalRecord
from interlock.model.snapshot import Snapshot
from interlock.model.step import Step
from interlock.ports.store import PAGE_MAX, DerivedRows, Duplicate, EntityNames, EntityQuery, Loaded, Store
from interlock.runtime.chart_registry import ChartRegistry
from interlock.runtime.history.readable import before_damage
from interlock.runtime.history.replay import repeat_step, unproven
from interlock.runtime.request_checks import unknown_entity

UNKNOWN, UNREAD = "entity.unknown", "journal.unread"
UNPROVEN = frozenset({"kind.unknown", "revision.unknown", UNKNOWN, UNREAD})
"""Codes of problems that are not the journal's: the chart is not here, the name is wrong, or nobody can read it."""

_SHOWN_MAX = 80
_UNKNOWN = Loaded(2**63, 0, None)
"""What stands for an entity that does not load: its journal is heard to where it ends."""


class VerificationProblem(Struct, frozen=True, omit_defaults=True):
    """What is wrong with an entity: a stable code, the message, and the version it was found at when it is known."""

    code: str
    message: str
    version: int | None = None

    @property
    def is_corruption(self) -> bool:
        """Whether the journal is at fault; otherwise it could not be judged here."""
        return self.code not in UNPROVEN


class Verification(Struct, frozen=True, omit_defaults=True):
    """What is proven of an entity: so many linked entries up to this hash, replayed or not, and the first problem.

    `archive` is the address of the archive, when its records were released to one: nothing was looked at there.
    """

    entity: str
    entries: int = 0
    head: str | None = None
    replayed: bool = False
    archive: str | None = None
    problem: VerificationProblem | None = None


async def verify_entity(store: Store, charts: ChartRegistry | None, entity: str) -> Verification:
    """Check one entity; without charts its chain only. Raises NotFoundError when there is none, UnavailableError when
    the store as a whole does not answer.
    """
    damage: CorruptionError | None = None
    try:
        loaded = await store.load(entity)
    except CorruptionError as error:
        loaded, damage = _UNKNOWN, error
    except UnavailableError as error:
        return await _unread(store, entity, error)
    if loaded is None or isinstance(loaded, Duplicate):
        raise unknown_entity(entity)
    witness = _Witness(charts, entity, loaded)
    try:
        while witness.entries < loaded.version and not witness.is_corrupt:
            records = await store.read(entity, after=witness.entries, limit=PAGE_MAX)
            if not records:
                break
            witness.hear(records)
    except ArchivedError as error:
        return Verification(entity, archive=error.archive)
    except CorruptionError as error:
        with suppress(UnavailableError):  # the damage is told all the same, only not as near to its place
            witness.hear(await before_damage(store, entity, after=witness.entries))
        witness.fail(error.code, error.message, witness.entries + 1)
    except UnavailableError as error:
        return await _unread(store, entity, error)
    if damage is not None:
        witness.fail(damage.code, damage.message)
    if charts is not None and isinstance(store, DerivedRows) and not witness.is_corrupt:
        for told in await store.differences(entity):
            witness.fail("store.beside", f"`{entity}`: {told}")
    return witness.proof()


async def _unread(store: Store, entity: str, error: UnavailableError) -> Verification:
    """What is said of an entity that cannot be read while the store answers. Where it does not, it raises."""
    await store.kinds()
    return Verification(entity, problem=VerificationProblem(UNREAD, error.message))


async def verify_store(store: Store, charts: ChartRegistry | None, *, now_ms: int) -> AsyncIterator[Verification]:
    """Check every entity, kind by kind. `now_ms` is the time at the beginning.

    What moves while we look is listed again behind it, so of entities that moved since the beginning each is looked at
    once more at most, and the walk ends when it meets nothing new.
    """
    if isinstance(store, EntityNames):  # its lists would pass over what is damaged
        for name in await store.names():
            proof = await _verify_named(store, charts, name)
            if proof is not None:
                yield proof
        return
    for kind in await store.kinds():
        moved: set[str] = set()
        cursor: str | None = None
        while True:  # ends with the last page, or with one that shows nothing new
            page = await store.find(EntityQuery(kind=kind, after=cursor, limit=PAGE_MAX))
            fresh = [each for each in page.rows if each.entity not in moved]
            moved |= {each.entity for each in fresh if each.entered_ms >= now_ms}
            for row in fresh:
                yield await verify_entity(store, charts, row.entity)
            cursor = page.after
            if cursor is None or (page.rows and not fresh):
                break
    if charts is not None and isinstance(store, DerivedRows):
        for told in await store.differences():
            yield Verification("the store", problem=VerificationProblem("store.beside", told))


async def _verify_named(store: Store, charts: ChartRegistry | None, name: str) -> Verification | None:
    """Check what has a name; None when it was begun and never written."""
    if "/" not in name:
        return Verification(
            name, problem=VerificationProblem("entity.unreadable", "whose journal this is cannot be read from it")
        )
    try:
        return await verify_entity(store, charts, name)
    except NotFoundError:
        return None


class _Witness:
    """Hears the records of one entity in order, and says what they prove."""

    def __init__(self, charts: ChartRegistry | None, entity: str, loaded: Loaded) -> None:
        self._charts = charts
        self._entity = entity
        self._loaded = loaded
        self._snapshot: Snapshot | None = None
        self._head: str | None = None
        self._problem: VerificationProblem | None = None
        self.entries = 0

    @property
    def is_corrupt(self) -> bool:
        return self._problem is not None and self._problem.is_corruption

    def hear(self, records: tuple[JournalRecord, ...]) -> None:
        """Take the next records; those after the version that was loaded were written meanwhile."""
        for record in records:
            if self.is_corrupt or self.entries == self._loaded.version:
                return
            if record.key != record.entry.key:
                told = f"its key is `{record.key}` outside and `{record.entry.key}` inside"
                self._fail_at(record, "journal.key", told)
            elif self._charts is not None and self._problem is None:
                self._replay(self._charts, record)
            if not self.is_corrupt:
                self.entries, self._head = record.version, record.head

    def fail(self, code: str, message: str, version: int | None = None) -> None:
        """Note the first problem."""
        if not self.is_corrupt:
            self._problem = VerificationProblem(code, message, version)

    def _fail_at(self, record: JournalRecord, code: str, message: str) -> None:
        self.fail(code, f"the journal of `{self._entity}` at version {record.version}: {message}", record.version)

    def proof(self) -> Verification:
        """What was proven."""
        if self.entries != self._loaded.version:  # damage without a chart, too
            message = f"`{self._entity}` is at version {self._loaded.version}, and its journal ends at {self.entries}"
            self.fail("journal.short", message, self.entries + 1)
        replayed = self._charts is not None and self._problem is None
        return Verification(self._entity, self.entries, self._head, replayed, None, self._problem)

    def _replay(self, charts: ChartRegistry, record: JournalRecord) -> None:
        entry = record.entry
        try:
            kernel = charts.revision(self._entity.partition("/")[0], entry.revision)
        except (NotFoundError, UnavailableError) as error:
            self._problem = VerificationProblem(error.code, error.message, record.version)
            return
        try:
            step = repeat_step(kernel, self._entity, self._snapshot, entry)
        except InterlockError as error:
            self._diverges(kernel, record, f"the step fails: {error.message}")
            return
        found = difference(entry, self._snapshot, step) or self._snapshot_difference(step.snapshot)
        if found is not None:
            self._diverges(kernel, record, found)
        self._snapshot = step.snapshot

    def _diverges(self, kernel: Kernel, record: JournalRecord, found: str) -> None:
        """A step, done again, gives something else. Only the chart that wrote the entry can call that damage."""
        if kernel.chart.revision == record.entry.revision:
            self._fail_at(record, "journal.divergence", found)
            return
        error = unproven(self._entity, record.entry, kernel)
        self._problem = VerificationProblem(error.code, error.message, record.version)

    def _snapshot_difference(self, snapshot: Snapshot) -> str | None:
        """How the stored snapshot differs from the replayed one, if it is of this version."""
        stored = self._loaded.snapshot
        if stored is None or stored.version != snapshot.version:
            return None
        # A compatible chart may replay what another revision wrote; the name of the revision is all that differs then.
        for name in stored.__struct_fields__:
            kept, given = getattr(stored, name), getattr(snapshot, name)
            if name != "revision" and encode(kept) != encode(given):
                return f"the stored snapshot has another {name} than the replayed one"
        return None


def difference(entry: Entry, before: Snapshot | None, step: Step) -> str | None:
    """The first thing that an entry says and the step, done again, does not give."""
    after = step.snapshot
    told = (
        ("version", entry.version, after.version),
        ("from", entry.before, () if before is None else before.configuration),
        ("to", entry.after, after.configuration),
        ("outcome", entry.outcome, step.outcome),
        ("reason", entry.reason, step.reason),
        ("effects", entry.effects, step.effects),
    )
    for name, said, given in told:
        if encode(said) != encode(given):
            written, found = _short(said, given)
            return f"`{name}` is {written}, and the chart gives {found}"
    return None


def _short(said: object, given: object) -> tuple[str, str]:
    """Two values that differ as JSON; of long ones the part where they begin to."""
    texts = [encode(each).decode() for each in (said, given)]
    if max(map(len, texts)) <= _SHOWN_MAX:
        return texts[0], texts[1]
    same = next(at for at, (left, right) in enumerate(zip_longest(*texts)) if left != right)
    begin = 0 if same < _SHOWN_MAX // 2 else same - _SHOWN_MAX // 4
    cut = [("…" if begin else "") + each[begin : begin + _SHOWN_MAX] for each in texts]
    ends = ["…" if len(each) > begin + _SHOWN_MAX else "" for each in texts]
    return cut[0] + ends[0], cut[1] + ends[1]
