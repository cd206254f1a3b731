"""What the crash tests do to a store, and what they check afterwards.

A `Ledger` records what was requested and what was acknowledged; `violations` opens what a crash left and compares it
with that record.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from interlock.errors import CorruptionError, UnavailableError, UsageError
from interlock.model.event import Event
from interlock.model.journal.entry import Entry
from interlock.model.journal.record import JournalRecord
from interlock.model.snapshot import Snapshot
from interlock.ports.store import (
    Append,
    Appended,
    AppendResult,
    Conflict,
    Duplicate,
    Loaded,
)
from interlock.stores.files.blocking_store import BlockingFileStore
from interlock.stores.files.durable_io import Settings
from interlock.stores.files.filesystem import FileSystem
from interlock.stores.files.journal.snapshot_file import decode_snapshot_file
from interlock.stores.files.names import JOURNAL, SNAPSHOT, directory_name, segment_first_version
from tests.crash.simulated.file_system import Directory, File, Simulated, World

ENTITY = "order/A-1"
BLOCK_BYTES = 512
"""So small that every other entry needs more padding."""
SETTINGS = Settings(snapshot_every=2, block_bytes=BLOCK_BYTES)
ROTATING = Settings(snapshot_every=4, segment_bytes_max=300, block_bytes=BLOCK_BYTES)
"""So small that every second entry starts a segment, and snapshots are in older ones."""


def step(version: int, key: str, *, entity: str = ENTITY, ended: bool = False, filler: str = "") -> Append:
    """The append of one step: entry `version`, on the version before it."""
    kind = entity.partition("/")[0]
    configuration = (f"s{version % 3}",)
    event = Event("moved", filler or None, key=key, time_ms=version)
    entry = Entry(version, event, "applied", (), configuration, "r1", key)
    snapshot = Snapshot(kind, entity, version, "r1", configuration, {}, ended="done" if ended else None)
    return Append(kind, entity, version - 1, entry, snapshot, configuration, ())


def opened(fs: FileSystem, settings: Settings = SETTINGS, *, shard_digits: int = 0) -> BlockingFileStore:
    """A process that opens the store; without shards, so that crash points are about entities."""
    return BlockingFileStore("store", fs, settings, shard_digits=shard_digits)


@dataclass
class Ledger:
    """What a caller knows: the keys it asked for, and the version of each that was acknowledged."""

    asked: set[str] = field(default_factory=set)
    acknowledged: dict[str, int] = field(default_factory=dict)

    def copy(self) -> Ledger:
        """An independent copy."""
        return Ledger(set(self.asked), dict(self.acknowledged))


class StuckError(Exception):
    """The store reports a lost swap, and there is no other writer."""


def appended(journals: BlockingFileStore, append: Append) -> AppendResult:
    """Append every second version inline where that is possible, as a store with one caller does."""
    answer = journals.append_inline(append) if append.entry.version % 2 else None
    return journals.append(append) if answer is None else answer


def send(journals: BlockingFileStore, ledger: Ledger, key: str) -> Appended | Duplicate:
    """Do what a driver does: load, step, append, and repeat when the swap was lost."""
    for _ in range(5):
        loaded = journals.load(ENTITY)
        version = loaded.version if isinstance(loaded, Loaded) else 0
        ledger.asked.add(key)
        answer = appended(journals, step(version + 1, key))
        if isinstance(answer, Appended | Duplicate):
            ledger.acknowledged[key] = answer.version
            return answer
    raise StuckError("the swap was lost five times without a rival")


def append_blindly(journals: BlockingFileStore, ledger: Ledger, key: str, version: int) -> None:
    """Append without loading first: the shortest path through the protocol."""
    ledger.asked.add(key)
    answer = appended(journals, step(version, key))
    assert not isinstance(answer, Conflict)
    ledger.acknowledged[key] = answer.version


def journal_file(world: World) -> bytes:
    """The bytes of the entity's active segment as readers see them."""
    return _content(world, JOURNAL) or b""


def record_bytes(world: World) -> int:
    """The bytes of all records of the entity, whole or not, in all its segments."""
    number = world.found("store", "resources", directory_name(ENTITY))
    directory = None if number is None else world.nodes[number]
    names = directory.cache if isinstance(directory, Directory) else {}
    nodes = {node for name, node in names.items() if name == JOURNAL or segment_first_version(name) is not None}
    files = [world.nodes[node] for node in nodes]
    lines = [line for file in files if isinstance(file, File) for line in file.cache.splitlines()]
    return sum(len(line.rstrip()) for line in lines if not line.startswith(b'{"t":'))


def _content(world: World, name: str) -> bytes | None:
    number = world.found("store", "resources", directory_name(ENTITY), name)
    if number is None:
        return None
    node = world.nodes[number]
    assert isinstance(node, File)
    return node.cache


def violations(world: World, ledger: Ledger, *, retry: str | None = None, settings: Settings = SETTINGS) -> list[str]:
    """What is wrong after a crash; then a retry and a new entry, which must be accepted.

    `retry` is the key that was being sent when it happened.
    """
    world = world.copy()
    found = _snapshot_violations(world)
    try:
        journals = opened(Simulated(world, process=9), settings)
        before = journals.read(ENTITY)
        found += record_violations(before, ledger)
        known = {record.key: record.version for record in before}
        after = ledger.copy()
        for key in (retry, "new") if retry is not None else ("new",):
            answer = send(journals, after, key)
            expected = Duplicate if key in known else Appended
            if not isinstance(answer, expected):
                found.append(f"doubled: {key} gave {answer}")
        found += record_violations(journals.read(ENTITY), after)
        if journals.context.snapshot_failures:
            found.append("snapshot: it could not be kept")
    except CorruptionError as error:
        found.append(f"unreadable: {error}")
    except (UnavailableError, UsageError, StuckError) as error:
        found.append(f"unavailable: {error}")
    return found


def record_violations(records: tuple[JournalRecord, ...], ledger: Ledger) -> list[str]:
    """Acknowledged entries that are missing, duplicate entries, and entries that were never sent."""
    keys = [record.key for record in records]
    found = [
        f"lost: {key} at version {version}"
        for key, version in ledger.acknowledged.items()
        if version > len(keys) or keys[version - 1] != key
    ]
    found += [f"doubled: {key}" for key in set(keys) if keys.count(key) > 1]
    return found + [f"phantom: {key}" for key in keys if key not in ledger.asked]


def _snapshot_violations(world: World) -> list[str]:
    data = _content(world, SNAPSHOT)
    if data is not None and decode_snapshot_file(data, ENTITY) is None:
        return ["snapshot: state.json is not whole"]
    return []
