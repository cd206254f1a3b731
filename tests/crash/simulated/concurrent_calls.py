"""Small programs for interleavings, the model that explains their answers, and the protocol that loses entries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from unittest.mock import patch

import msgspec
from msgspec.structs import replace

from interlock.errors import InterlockError
from interlock.model.journal.work import Work, WorkDelta, WorkId
from interlock.ports.store import Appended, Conflict, Duplicate
from interlock.stores.files.durable_io import Settings
from interlock.stores.files.filesystem import FileSystem
from interlock.stores.files.journal.line_formats import BLANKS
from tests.crash.life import ENTITY, ROTATING, SETTINGS, opened, step
from tests.crash.simulated.file_system import Simulated, World
from tests.crash.simulated.interleave import Answer, Exploration, Explorer, Operation, Program


class Process(Simulated):
    """A process whose random names depend on its own calls only, so that equal states look equal."""

    def unique(self) -> str:
        """A name that no other call of any process gets."""
        return f"{self.process}.{self.count}"


def process(world: World, number: int) -> Process:
    """A process without a fault."""
    return Process(world, process=number)


def prepared(*, entries: int, torn: bytes = b"", settings: Settings = SETTINGS, ended: bool = False) -> World:
    """A store with some entries, perhaps at their end, or with the torn tail of a writer that died."""
    world = World()
    fs = Simulated(world, process=7)
    journals = opened(fs, settings)
    for version in range(1, entries + 1):
        journals.append(step(version, f"k{version}", ended=ended and version == entries))
    if torn:
        address = journals.root.address(ENTITY)
        directory = fs.open_directory(address.resources, address.name)
        journal = fs.open_update(directory, "events.log")
        fs.write_at(journal, len(fs.read(journal, 0, 1 << 20).rstrip(BLANKS)) + 1, torn)
    fs.die()
    return world


def appending(*steps: tuple[int, str], settings: Settings = SETTINGS) -> Program:
    """A process that appends these versions under these keys, one after the other."""

    def run(fs: Any, asked: Callable[[Operation], None], given: Callable[[Answer], None]) -> None:
        journals = opened(fs, settings)
        for version, key in steps:
            asked(("append", version - 1, key))
            try:
                answer = journals.append(step(version, key))
            except InterlockError as error:
                given((error.code,))
            else:
                given((type(answer).__name__, answer.version))

    return run


def reading() -> Program:
    """A process that reads the journal."""

    def run(fs: Any, asked: Callable[[Operation], None], given: Callable[[Answer], None]) -> None:
        journals = opened(fs)
        asked(("read",))
        try:
            records = journals.read(ENTITY)
        except InterlockError as error:
            given((error.code,))
        else:
            given(tuple(record.key for record in records))

    return run


def loading(key: str) -> Program:
    """A process that loads the entity, asking for a key."""

    def run(fs: Any, asked: Callable[[Operation], None], given: Callable[[Answer], None]) -> None:
        journals = opened(fs)
        asked(("load", key))
        try:
            answer = journals.load(ENTITY, key)
        except InterlockError as error:
            given((error.code,))
        else:
            given(("none",) if answer is None else (type(answer).__name__, answer.version))

    return run


def releasing(version: int) -> Program:
    """A process that releases the records."""

    def run(fs: Any, asked: Callable[[Operation], None], given: Callable[[Answer], None]) -> None:
        journals = opened(fs, ROTATING)
        asked(("release",))
        try:
            answer = journals.release(ENTITY, version=version, archive="file:///archive")
        except InterlockError as error:
            given((error.code,))
        else:
            given((answer,))

    return run


def leaving(version: int, key: str) -> Program:
    """A process whose entry creates work, and which then looks for the marker."""

    def run(fs: Any, asked: Callable[[Operation], None], given: Callable[[Answer], None]) -> None:
        journals = opened(fs)
        asked(("leave", version - 1, key))
        answer = journals.append(
            replace(step(version, key), left=WorkDelta((Work(WorkId("timer", version, 0), "t", {}, 0),)))
        )
        given((type(answer).__name__, answer.version))
        asked(("look",))
        given((any(True for _ in journals.markers.addresses()),))

    return run


def retiring() -> Program:
    """A process that removes the marker if no work is left, and then looks for it."""

    def run(fs: Any, asked: Callable[[Operation], None], given: Callable[[Answer], None]) -> None:
        journals = opened(fs)
        with journals.journals.using(journals.root.address(ENTITY)) as journal:
            asked(("retire",))
            given((journal.remove_marker(),))
        asked(("look",))
        given((any(True for _ in journals.markers.addresses()),))

    return run


def rested() -> World:
    """An entity whose only work has ended, and whose marker still exists."""
    world = World()
    fs = Simulated(world, process=7)
    journals = opened(fs)
    place = WorkId("timer", 1, 0)
    journals.append(replace(step(1, "k1"), left=WorkDelta((Work(place, "t", {}, 0),))))
    journals.append(replace(step(2, "k2"), left=WorkDelta(ended=(place,))))
    fs.die()
    return world


class Model:
    """A model of the store: a list of keys, whether the records were released, whether there is work."""

    def __init__(self, entries: int) -> None:
        self.keys = [f"k{version}" for version in range(1, entries + 1)]
        self.is_released = False
        self.has_work = False
        self.has_marker = True

    def answer(self, asked: Operation) -> Answer:
        """The answer to an operation."""
        keys = self.keys
        match asked:
            case ("append", expected, key):
                if key in keys:
                    return Duplicate.__name__, keys.index(key) + 1
                if len(keys) != expected:
                    return Conflict.__name__, len(keys)
                keys.append(key)
                return Appended.__name__, len(keys)
            case ("leave", expected, key):
                self.has_work = self.has_marker = True
                return self.answer(("append", expected, key))
            case ("retire",):
                self.has_marker = self.has_work
                return (not self.has_work,)
            case ("look",):
                return (self.has_marker,)
            case ("load", key):
                return ("Duplicate", keys.index(key) + 1) if key in keys else ("Loaded", len(keys))
            case ("release",):
                self.is_released = True
                return (True,)
            case _:
                return ("journal.archived",) if self.is_released else tuple(keys)


def explains(entries: int) -> Callable[[list[tuple[Operation, Answer]]], bool]:
    """A function that checks whether the model gives these answers in this order."""

    def run(order: list[tuple[Operation, Answer]]) -> bool:
        model = Model(entries)
        return all(model.answer(asked) == given for asked, given in order)

    return run


class SeedStore:
    """Read, compare, write another file, rename: atomic, and yet both of two writers succeed. The negative control."""

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        parent, name = fs.parent("seed")
        self._directory = fs.open_directory(parent, name)

    def append(self, expected: int, key: str) -> Answer:
        """One write of the whole state, if it is at the expected version."""
        fs = self._fs
        file = fs.open_file(self._directory, "state.json")
        keys = msgspec.json.decode(fs.read(file, 0, 100_000), type=list[str])
        if len(keys) != expected:
            return "Conflict", len(keys)
        temporary = f"state.json.{fs.unique()}"
        file = fs.create(self._directory, temporary)
        fs.write(file, msgspec.json.encode([*keys, key]))
        fs.fsync(file)
        fs.rename(self._directory, temporary, "state.json")
        return "Appended", expected + 1


def seeded() -> World:
    """A store of the seed's protocol with one entry."""
    world = World()
    fs = Simulated(world, process=7)
    parent, name = fs.parent("seed")
    fs.make_directory(parent, name)
    fs.write(fs.create(fs.open_directory(parent, name), "state.json"), b'["k1"]')
    return world


def seed_appending(version: int, key: str) -> Program:
    """A process that appends by the seed's protocol."""

    def run(fs: Any, asked: Callable[[Operation], None], given: Callable[[Answer], None]) -> None:
        store = SeedStore(fs)
        asked(("append", version - 1, key))
        given(store.append(version - 1, key))

    return run


class Scene(NamedTuple):
    """Programs that run concurrently, their first world, and the model of their answers."""

    programs: tuple[Program, ...]
    world: Callable[[], World]
    entries: int

    def explored(self, processes: Callable[[World, int], Simulated] = process) -> Exploration:
        """All schedules of the scene. Reads are cut small, so that a reader can be overtaken in the middle."""
        with patch("interlock.stores.files.journal.reading.READ_BYTES", 150):
            return Explorer(self.programs, processes, explains(self.entries)).explore(self.world())


TORN = b'{"v":2,"k":"dead","d":0,"e":{"version":2,"event":' + b"x" * 100

SCENES = {
    "two appends": Scene((appending((2, "a")), appending((2, "b"))), lambda: prepared(entries=1), 1),
    "two creations": Scene((appending((1, "a")), appending((1, "b"))), lambda: prepared(entries=0), 0),
    "one key twice": Scene((appending((2, "a")), appending((2, "a"))), lambda: prepared(entries=1), 1),
    "two times two appends": Scene(
        (appending((2, "a"), (3, "c")), appending((2, "b"), (3, "d"))), lambda: prepared(entries=1), 1
    ),
    "three appends": Scene(
        (appending((2, "a")), appending((2, "b")), appending((2, "c"))), lambda: prepared(entries=1), 1
    ),
    "append and read": Scene((appending((2, "a")), reading()), lambda: prepared(entries=1), 1),
    "append and load": Scene((appending((2, "a")), loading("a")), lambda: prepared(entries=1), 1),
    "torn tail and two appends": Scene(
        (appending((2, "a")), appending((2, "b"))), lambda: prepared(entries=1, torn=TORN), 1
    ),
    "torn tail and reader": Scene(
        (appending((2, "a"), (3, "b"), (4, "c")), reading()), lambda: prepared(entries=1, torn=TORN), 1
    ),
    "two appends that rotate": Scene(
        (appending((3, "a"), settings=ROTATING), appending((3, "b"), settings=ROTATING)),
        lambda: prepared(entries=2, settings=ROTATING),
        2,
    ),
    "rotation and read": Scene(
        (appending((3, "a"), settings=ROTATING), reading()), lambda: prepared(entries=2, settings=ROTATING), 2
    ),
    "rotation and load": Scene(
        (appending((3, "a"), settings=ROTATING), loading("a")), lambda: prepared(entries=2, settings=ROTATING), 2
    ),
    "release and read": Scene((releasing(3), reading()), lambda: prepared(entries=3, settings=ROTATING, ended=True), 3),
    "release and load": Scene(
        (releasing(3), loading("k2")), lambda: prepared(entries=3, settings=ROTATING, ended=True), 3
    ),
    "work and retirement": Scene((leaving(3, "a"), retiring()), rested, 2),
    "two appends and load": Scene(
        (appending((2, "a")), appending((2, "b")), loading("b")), lambda: prepared(entries=1), 1
    ),
}
"""The scenes, of which every schedule is explored."""

SEED = Scene((seed_appending(2, "a"), seed_appending(2, "b")), seeded, 1)
"""The negative control."""
