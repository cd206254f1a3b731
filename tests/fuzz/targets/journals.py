"""The readers of journals: a journal file, `state.json`, and a bundle.

Their hashes are no secret unless the store has a key, so most inputs are signed again after they were mutated: the
content is hostile, and the hash is right. For every input:
1. a journal file is read to its end, or to a place that is named; only UsageError is raised, for unknown work;
2. whatever was read is written again as the same bytes, and the steps are repeated or refused with an error of ours;
3. `state.json` is read, or is not a snapshot;
4. a bundle is imported, or refused with an error of ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from hashlib import blake2b
from io import BytesIO
from random import Random
from typing import Any, cast

import msgspec

from interlock.assemble.charts import loads
from interlock.errors import InterlockError, UsageError
from interlock.model.encoding.codec import encode
from interlock.model.journal.record import JournalRecord, chain_start, decode_record, encode_line
from interlock.model.limits import BUNDLE_LINE_BYTES_MAX
from interlock.ports.store import (
    Append,
    Appended,
    AppendResult,
)
from interlock.runtime.charts.registry import ChartRegistry
from interlock.runtime.charts.revisions import Revisions
from interlock.runtime.history.bundle import BundleReader, export_bundle, import_bundle
from interlock.runtime.history.replay import repeat_step
from interlock.runtime.history.verify import difference
from interlock.runtime.runtime import Runtime
from interlock.stores.files.filesystem import FileSystem
from interlock.stores.files.journal.line_formats import (
    BASE,
    BASE_BYTES_MAX,
    MARK,
    SEAL,
    WORK,
    Position,
    decode_base,
    sign_line,
)
from interlock.stores.files.journal.reading import SegmentReader
from interlock.stores.files.journal.snapshot_file import decode_snapshot_file
from interlock.stores.memory import MemoryStore
from tests.fuzz import seeds
from tests.fuzz.mutation import Mutator, json_bytes
from tests.fuzz.target import ACCEPTED, run_async
from tests.unit.runtime.scene import StillClock

CHART = """
interlock: 1
kind: job
revision: 1.0.0
context: {n: {type: integer, default: 0}, who: {type: string, nullable: true}}
events: {add: {payload: {by: {type: integer, required: true}}}, go: {}, run: {}, back: {}, home: {}}
initial: a
states:
  a:
    on:
      add: {actions: [{assign: {n: "= context.n + event.data.by"}}, {emit: {type: added, data: {n: "= context.n"}}}]}
      go: b
      run: c
  b:
    after: {1h: a}
    on: {home: a}
    states: {x: {on: {back: y}}, y: {}, h: {type: history, target: x}}
  c:
    invoke: {id: child, type: chart, src: {kind: part, states: {x: {}}}}
    entry: [ring, {log: {label: started}}]
    on: {back: a}
"""
ENTITY = "job/1"
EVENTS: tuple[tuple[str, Any], ...] = (
    ("add", {"by": 2}),
    ("go", None),
    ("back", None),
    ("home", None),
    ("unheard.of", {"a": [1, "b"]}),
    ("run", None),
    ("back", None),
    ("add", {"by": "x"}),
    ("run", None),
)
START = Position(0, 0, chain_start(ENTITY))


class _Recorded(MemoryStore):
    """A store that remembers what was appended to the entity."""

    def __init__(self) -> None:
        super().__init__()
        self.appends: list[Append] = []

    async def append(self, append: Append) -> AppendResult:
        """Append, and remember it."""
        found = await super().append(append)
        if isinstance(found, Appended) and append.entity == ENTITY:
            self.appends.append(append)
        return found


class Corpus:
    """One life of an entity, as appends, as the lines of its journal, as `state.json` and as a bundle."""

    def __init__(self) -> None:
        self.chart = loads(CHART)
        self.chart.handler("ring")(lambda attempt: None)
        run_async(self._live())
        self.journal = [line for each in self.appends for line in _lines(each)]
        mark = {"d": 0, "p": {"lane": "timer", "version": 3, "ordinal": 0}, "stand": {"attempts": 1, "error": {"a": 1}}}
        self.journal += [(MARK, mark), (SEAL, {"d": 0, "first": 1, "last": len(self.appends)})]
        last = self.appends[-1].snapshot
        facts = {"created_ms": 1, "changed_ms": 2, "entered_ms": {"a": 1}, "tags": ["t"]}
        keys = [["k1", 1], ["k2", 2]]
        store = {"format": 1, "segment": 1, "offset": 9, "head": "0" * 32, "facts": facts, "keys": keys, "beside": 0}
        self.snapshot = {**msgspec.json.decode(encode(last)), "store": {**store, "work": [], "times": {}}}
        base = {"n": 2, "first": 7, "since": 1, "p": "0" * 32, "d": 0, "archive": "file:old"}
        self.base = [(BASE, base), *self.journal[-2:]]
        self.bundle = [msgspec.json.decode(each) for each in self.bundle_lines[:-1]]
        self.words = sorted({*seeds.words("yaml"), *_words([each.entry for each in self.appends])})

    async def _live(self) -> None:
        store = _Recorded()
        registry = ChartRegistry([self.chart.kernel])
        runtime = Runtime(store, registry, StillClock())
        await runtime.create(ENTITY)
        for number, (event, data) in enumerate(EVENTS):
            try:
                await runtime.send(ENTITY, event, data, key=f"k{number}", principal={"id": "ada", "roles": ["clerk"]})
            except UsageError:  # refused before the store: no entry
                continue
        self.appends = store.appends
        self.bundle_lines: list[bytes] = []
        revisions = Revisions(registry, store, StillClock())
        await export_bundle(store, ENTITY, revisions, self.bundle_lines.append, now_ms=1, children=False)


@cache
def corpus() -> Corpus:
    """Return the corpus, made on first use."""
    return Corpus()


def _lines(append: Append) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """The lines of an append, as JSON values without their hashes."""
    version = append.entry.version
    if append.work.created or append.work.finished or append.work.cancelled:
        yield WORK, {"d": 0, "v": version, "left": msgspec.json.decode(encode(append.work))}
    entry = msgspec.json.decode(encode(append.entry))
    yield b"", {"v": version, "k": append.entry.key, "d": 0, "e": entry}


def _words(value: Any) -> set[str]:
    text = encode(value).decode()
    return {each for each in text.replace('"', " ").replace(":", " ").replace(",", " ").split() if len(each) < 60}


class JournalTarget:
    """Journal files, snapshot files and bundles."""

    name = "journal"

    def inputs(self, random: Random) -> Iterator[bytes]:
        """Yield files with mutated lines and right hashes, and files with mutated bytes."""
        known = corpus()
        mutator = Mutator(random, [repr(known.appends[0])], known.words)
        while True:
            kind = random.random()
            if kind < 0.45:
                lines = list(random.choice((known.journal, known.journal, known.journal, known.base)))
                found = _journal(_mutated(random, mutator, lines))
            elif kind < 0.65:
                found = _signed_snapshot(mutator.value(known.snapshot))
            else:
                found = _bundle(_mutated_values(random, mutator, known.bundle))
            yield mutator.data(found) if random.random() < 0.1 else found

    def attempt(self, data: bytes) -> str:
        """Read the input as each of the three. Its start says which one it is meant to be."""
        if data.startswith((b'{"bundle"', b'{"bundl')):
            return _attempt_bundle(data)
        snapshot = decode_snapshot_file(data, None)
        if snapshot is not None:
            assert snapshot.snapshot.version == snapshot.position.version
            return f"{ACCEPTED} snapshot {snapshot.snapshot.version}"
        return _attempt_journal(data)


# Writing


def _mutated(random: Random, mutator: Mutator, lines: list[tuple[bytes, Any]]) -> list[tuple[bytes, Any]]:
    """The lines with one or two of them mutated, removed, repeated or exchanged."""
    for _ in range(random.choice((1, 1, 2))):
        at = random.randrange(len(lines)) if lines else 0
        kind = random.randrange(8)
        if not lines:
            break
        if kind <= 4:
            lines[at] = (lines[at][0], mutator.value(lines[at][1]))
        elif kind == 5:
            del lines[at]
        elif kind == 6:
            lines.insert(at, random.choice(lines))
        else:
            lines[at] = (random.choice((b"", WORK, MARK, SEAL, BASE)), lines[at][1])
    return lines


def _mutated_values(random: Random, mutator: Mutator, values: list[Any]) -> list[Any]:
    return [each for _, each in _mutated(random, mutator, [(b"", each) for each in values])]


def _journal(lines: list[tuple[bytes, Any]]) -> bytes:
    """A journal file: every line signed for its place, as a writer would."""
    head, found = START.head, []
    for start, value in lines:
        body = json_bytes(value)
        if start and body.startswith(b"{") and len(body) > 2:
            found.append(sign_line(start + b"," + body[1:-1], head, b""))
        elif isinstance(value, dict) and {"v", "k", "e"} <= value.keys() and type(value["v"]) is int:
            key = value["k"] if isinstance(value["k"], str) and value["k"].isprintable() else "k"
            head, line = encode_line(value["v"], key, json_bytes(value["e"]), durable=0, previous=head)
            found.append(line)
        else:
            found.append(body + b"\n")
    return b"".join(found)


def _signed_snapshot(value: Any) -> bytes:
    body = json_bytes(value)[:-1]
    return b'%b,"h":"%b"}\n' % (body, blake2b(body, digest_size=16).hexdigest().encode())


def _bundle(values: list[Any]) -> bytes:
    lines = [json_bytes(each) + b"\n" for each in values]
    end = {"end": len(lines), "hash": blake2b(b"".join(lines), digest_size=16).hexdigest()}
    return b"".join([*lines, json_bytes(end) + b"\n"])


# Reading


class _OneFile:
    """The file system of a reader of one file."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, file: int, offset: int, size: int) -> bytes:
        """Return the bytes at a place."""
        del file
        return self._data[offset : offset + size]


def _attempt_journal(data: bytes) -> str:
    base = decode_base(data[:BASE_BYTES_MAX], START)
    if base is None:
        return "the base is damaged"
    reader = SegmentReader(cast("FileSystem", _OneFile(data)), 0, base.position, on_line=lambda *_: None)
    try:
        records = list(reader)
    except UsageError as error:
        assert error.code == "store.format", error.code
        return error.code
    assert 0 <= reader.position.offset <= len(data)
    previous = base.position.head
    for each in records:
        again = decode_record(each.line, previous=previous, version=each.version)
        assert isinstance(again, JournalRecord), f"a record that was read cannot be read again: {again}"
        previous = each.head
    said = _replayed(records)
    return f"{ACCEPTED if records else 'empty'} {len(records)} {reader.problem[:80]} {said}"


def _replayed(records: list[JournalRecord]) -> str:
    """Repeat the steps of the records, as `verify` does. Return how far that went."""
    kernel, snapshot = corpus().chart.kernel, None
    for each in records:
        try:
            step = repeat_step(kernel, ENTITY, snapshot, each.entry)
        except InterlockError as error:
            return f"{each.version} {error.code}"
        problem = difference(each.entry, snapshot, step)
        if problem is not None:
            return f"{each.version} differs"
        snapshot = step.snapshot
    return "replayed"


def _attempt_bundle(data: bytes) -> str:
    def lines() -> Iterator[bytes]:
        file = BytesIO(data)
        while line := file.readline(BUNDLE_LINE_BYTES_MAX):
            yield line

    store = MemoryStore()
    revisions = Revisions(ChartRegistry(()), store, StillClock())
    try:
        done = run_async(import_bundle(store, BundleReader(lines), revisions, now_ms=1))
    except InterlockError as error:
        return error.code
    return f"{ACCEPTED} bundle of {done.entries}"


JOURNAL = JournalTarget()
