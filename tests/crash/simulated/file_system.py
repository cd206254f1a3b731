"""A simulated file system with the protocol of the file store. On purpose it guarantees less than any real one.

Rule 1: a file's bytes are lost until its flush: any prefix of the pending operations, the last write torn, a later
write kept while an earlier one is lost, zeros where a file was cut and its size is still the old one. Names are lost
until their directory's flush, in any subset; flushing a file does not keep its name.
Rule 2: a flush that fails drops the pending bytes from ever reaching the disk, while reads still show them; the next
flush says yes. That is what real kernels do.
Rule 3: locks belong to open descriptions and vanish with their process.
Rule 4: every call is a point where the process can be killed, the power cut, or an error injected; each is counted.

Nodes are immutable values, so a copy of a world is a copy of one dictionary.
"""

from __future__ import annotations

import errno
import functools
import itertools
import os
import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

from interlock.stores.files.journal.line_formats import BLANKS

Write = tuple[int, bytes]
Operation = Write | int  # a write at an offset, or a truncation to a size
Change = tuple[tuple[str, int | None], ...]  # names that are set, or removed

CRASHES_MAX = 64
"""Crash states of one world; beyond that, a seeded sample."""


class Killed(BaseException):
    """The process ended here; its later calls have no effect."""


class File(NamedTuple):
    """A file: what readers see, what the disk has, and what is pending between them."""

    cache: bytes
    disk: bytes
    pending: tuple[Operation, ...]


class Directory(NamedTuple):
    """A directory, in the same three parts."""

    cache: dict[str, int]
    disk: dict[str, int]
    pending: tuple[Change, ...]


class World:
    """All nodes of the file system, and who holds which lock."""

    def __init__(self) -> None:
        self.nodes: dict[int, File | Directory] = {1: Directory({}, {}, ())}
        self.locks: dict[int, tuple[int, int]] = {}
        self.next_node = 2

    def copy(self) -> World:
        """An independent copy."""
        world = World()
        world.nodes = dict(self.nodes)
        world.locks = dict(self.locks)
        world.next_node = self.next_node
        return world

    def found(self, *path: str) -> int | None:
        """The node at a path; None when it does not exist."""
        number: int | None = 1
        for part in path:
            node = self.nodes[number] if number is not None else None
            number = node.cache.get(part) if isinstance(node, Directory) else None
        return number

    def image(self) -> tuple[Any, ...]:
        """Everything that distinguishes this world from another, as one hashable value."""
        nodes = tuple(
            (number, node)
            if isinstance(node, File)
            else (number, tuple(sorted(node.cache.items())), tuple(sorted(node.disk.items())), node.pending)
            for number, node in sorted(self.nodes.items())
        )
        return nodes, tuple(sorted(self.locks.items()))


def applied(content: bytes, operation: Operation) -> bytes:
    """A file's bytes after an operation; a write after the end leaves zeros before it."""
    if isinstance(operation, int):
        return content[:operation].ljust(operation, b"\0")
    offset, data = operation
    return content[:offset].ljust(offset, b"\0") + data + content[offset + len(data) :]


def settled(file: File) -> bytes:
    """What the disk has once everything pending has reached it."""
    return functools.reduce(applied, file.pending, file.disk)


def file_crashes(file: File) -> list[bytes]:
    """Every content that a power cut may leave of a file."""
    found = [file.disk]
    content = file.disk
    for position, operation in enumerate(file.pending):
        if not isinstance(operation, int):
            offset, data = operation
            size = len(data.rstrip(BLANKS))  # in the blank lines behind it no cut makes a difference
            half, whole = size // 2, len(data)
            cuts = (1, size // 4, half, size - size // 4, size - 1, size, (size + whole) // 2)
            torn = [data[:cut] for cut in cuts]
            torn += [b"\0" * whole, data[:half] + b"\0" * (whole - half), b"\0" * half + data[half:]]
            torn += [content[offset : offset + half].ljust(half, b"\0") + data[half:]]
            found += [applied(content, (offset, part)) for part in torn]
        later = file.pending[position + 1 :]
        if later:
            found.append(functools.reduce(applied, later, content))
        if isinstance(operation, int):  # the end of the block is cleared immediately, and the new size may be lost
            zeroed = content[:operation].ljust(len(content), b"\0")
            found += [zeroed, functools.reduce(applied, later, zeroed)]
        content = applied(content, operation)
        found.append(content)
    return list(dict.fromkeys(found))


def directory_crashes(directory: Directory) -> list[dict[str, int]]:
    """Every set of names that a power cut may leave of a directory; for many changes, a part of the sets."""
    found = []
    for kept in _subsets(directory.pending):
        names = dict(directory.disk)
        for name, node in itertools.chain.from_iterable(kept):
            if node is None:
                names.pop(name, None)
            else:
                names[name] = node
        if names not in found:
            found.append(names)
    return found


def _subsets(changes: tuple[Change, ...]) -> Iterator[tuple[Change, ...]]:
    """All subsets of a few changes; for more than six, every prefix and every set without one."""
    if len(changes) > 6:
        yield from (changes[:count] for count in range(len(changes) + 1))
        yield from (changes[:place] + changes[place + 1 :] for place in range(len(changes)))
    else:
        for count in range(len(changes) + 1):
            yield from itertools.combinations(changes, count)


def crashes(world: World, chance: random.Random) -> Iterator[World]:
    """The worlds that a power cut may leave of this one."""
    numbers: list[int] = []
    options: list[list[File | Directory]] = []
    for number, node in sorted(world.nodes.items()):
        if node.pending or node.cache != node.disk:  # what a failed flush dropped is lost, and no longer pending
            numbers.append(number)
            options.append(
                [File(content, content, ()) for content in file_crashes(node)]
                if isinstance(node, File)
                else [Directory(names, names, ()) for names in directory_crashes(node)]
            )
    total = 1
    for each in options:
        total *= len(each)
    choices: Iterator[tuple[File | Directory, ...]] = itertools.product(*options)
    if total > CRASHES_MAX:
        ends = [tuple(each[0] for each in options), tuple(each[-1] for each in options)]
        choices = itertools.chain(ends, (tuple(map(chance.choice, options)) for _ in range(CRASHES_MAX - 2)))
    for choice in choices:
        after = world.copy()
        after.locks = {}
        after.nodes.update(zip(numbers, choice, strict=True))
        yield after


F = TypeVar("F", bound=Callable[..., Any])


def call(method: F) -> F:
    """Make a method a point where a crash or an error can happen."""

    @functools.wraps(method)
    def counted(self: Simulated, *arguments: Any) -> Any:
        return self.performed(method, *arguments)

    return counted  # type: ignore[return-value]  # the wrapper has the method's own signature


class Simulated:
    """The file system as one process sees it.

    `watch` is called before every call; `kill_at` and `fail_at` name the number of the call that ends the process or
    fails with `fault` (`SHORT`: a write takes half).
    """

    SHORT = -1
    tokens = itertools.count()

    def __init__(self, world: World, *, process: int = 1) -> None:
        self.world = world
        self.process = process
        self.count = 0
        self.calls: list[str] = []
        self.watch: Callable[[str], None] | None = None
        self.kill_at = 0
        self.fail_at = 0
        self.fault = errno.EIO
        self.faults_more = 0
        self.fired = ""
        self.dead = False
        self.now = 0.0
        self._opened: dict[int, int] = {}
        self._next = 100

    def performed(self, method: Callable[..., Any], *arguments: Any) -> Any:
        """One call, or the end of the process, or an error, or a part of it and an error."""
        if self.dead:
            raise Killed
        name = method.__name__
        self.count += 1
        self.calls.append(name)
        if self.watch is not None:
            self.watch(name)
        if self.count == self.kill_at:
            self.fired = name
            self.die()
            raise Killed
        if self.count == self.fail_at and name != "unique":
            self.fired = name
            if self.faults_more:
                self.faults_more -= 1
                self.fail_at += 1  # misfortunes never come singly
            return self._failed(name, *arguments)
        return method(self, *arguments)

    def _failed(self, name: str, *arguments: Any) -> int:
        if name in {"fdatasync", "fsync", "sync_directory"}:
            number = self._opened[arguments[0]]
            self.world.nodes[number] = self.world.nodes[number]._replace(pending=())
        if name in {"write", "write_at"} and self.fault == self.SHORT:
            file, data = arguments[0], arguments[-1]
            half = len(data.rstrip(BLANKS)) // 2
            place = arguments[1] if name == "write_at" else len(self._file(file).cache)
            self._write(self._opened[file], place, data[:half])
            return half
        code = errno.ENOSPC if self.fault == self.SHORT else self.fault
        raise OSError(code, os.strerror(code))

    def die(self) -> None:
        """End the process: its locks are released, its descriptors closed."""
        self.dead = True
        self.world.locks = {node: owner for node, owner in self.world.locks.items() if owner[0] != self.process}

    # Nodes

    def _directory(self, descriptor: int) -> Directory:
        node = self.world.nodes[self._opened[descriptor]]
        if not isinstance(node, Directory):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        return node

    def _file(self, descriptor: int) -> File:
        node = self.world.nodes[self._opened[descriptor]]
        assert isinstance(node, File)
        return node

    def _look_up(self, at: int, name: str) -> int:
        found = self._directory(at).cache.get(name)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return found

    def _change(self, at: int, *change: tuple[str, int | None]) -> None:
        directory = self._directory(at)
        cache = dict(directory.cache)
        for name, node in change:
            if node is None:
                del cache[name]
            else:
                cache[name] = node
        pending = (*directory.pending, change)
        self.world.nodes[self._opened[at]] = Directory(cache, directory.disk, pending)

    def _make(self, at: int, name: str, node: File | Directory) -> int:
        if name in self._directory(at).cache:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
        number = self.world.next_node
        self.world.next_node += 1
        self.world.nodes[number] = node
        self._change(at, (name, number))
        return number

    def _descriptor(self, number: int) -> int:
        self._next += 1
        self._opened[self._next] = number
        return self._next

    def _write(self, number: int, offset: int, data: bytes) -> None:
        file = self.world.nodes[number]
        assert isinstance(file, File)
        operation = (offset, data)
        self.world.nodes[number] = File(applied(file.cache, operation), file.disk, (*file.pending, operation))

    # The protocol

    @call
    def parent(self, root: str) -> tuple[int, str]:
        return self._descriptor(1), root

    def network_type(self, directory: int) -> str | None:
        return None

    @call
    def make_directory(self, at: int, name: str) -> None:
        self._make(at, name, Directory({}, {}, ()))

    @call
    def open_directory(self, at: int, name: str) -> int:
        number = self._look_up(at, name)
        if not isinstance(self.world.nodes[number], Directory):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        return self._descriptor(number)

    @call
    def open_file(self, at: int, name: str) -> int:
        return self._descriptor(self._look_up(at, name))

    @call
    def open_append(self, at: int, name: str) -> int:
        found = self._directory(at).cache.get(name)
        return self._descriptor(self._make(at, name, File(b"", b"", ())) if found is None else found)

    @call
    def open_update(self, at: int, name: str) -> int:
        found = self._directory(at).cache.get(name)
        return self._descriptor(self._make(at, name, File(b"", b"", ())) if found is None else found)

    @call
    def create(self, at: int, name: str) -> int:
        return self._descriptor(self._make(at, name, File(b"", b"", ())))

    @call
    def names(self, directory: int) -> list[str]:
        return list(self._directory(directory).cache)

    @call
    def size(self, file: int) -> int:
        return len(self._file(file).cache)

    @call
    def read(self, file: int, offset: int, count: int) -> bytes:
        return self._file(file).cache[offset : offset + count]

    @call
    def write(self, file: int, data: bytes) -> int:
        self._write(self._opened[file], len(self._file(file).cache), data)
        return len(data)

    @call
    def write_at(self, file: int, offset: int, data: bytes) -> int:
        self._write(self._opened[file], offset, data)
        return len(data)

    @call
    def truncate(self, file: int, size: int) -> None:
        found = self._file(file)
        self.world.nodes[self._opened[file]] = File(applied(found.cache, size), found.disk, (*found.pending, size))

    @call
    def fdatasync(self, file: int) -> None:
        self._flush(file)

    @call
    def fsync(self, file: int) -> None:
        self._flush(file)

    def _flush(self, file: int) -> None:
        found = self._file(file)
        self.world.nodes[self._opened[file]] = File(found.cache, settled(found), ())

    @call
    def sync_directory(self, directory: int) -> None:
        self._sync(directory)

    def _sync(self, directory: int) -> None:
        found = self._directory(directory)
        self.world.nodes[self._opened[directory]] = Directory(found.cache, found.cache, ())

    @call
    def protect(self, file: int) -> None:
        self._file(file)

    @call
    def drop_cache(self, file: int) -> None:
        found = self._file(file)
        self.world.nodes[self._opened[file]] = File(settled(found), found.disk, found.pending)

    @call
    def rename(self, at: int, old: str, new: str) -> None:
        self._change(at, (new, self._look_up(at, old)), (old, None))

    @call
    def link(self, at: int, old: str, new: str) -> None:
        if new in self._directory(at).cache:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new)
        self._change(at, (new, self._look_up(at, old)))

    def identity(self, file: int) -> int:
        return self._opened[file]

    def resolve(self, root: str) -> str:
        return root

    def identity_at(self, path: str) -> int | None:
        return self.world.found(*filter(None, path.split("/")))

    @call
    def unlink(self, at: int, name: str) -> None:
        self._look_up(at, name)
        self._change(at, (name, None))

    @call
    def remove_directory(self, at: int, name: str) -> None:
        found = self.world.nodes[self._look_up(at, name)]
        assert isinstance(found, Directory)
        if found.cache:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), name)
        self._change(at, (name, None))

    @call
    def lock(self, directory: int, ms_max: int) -> None:
        owner = self.world.locks.setdefault(self._opened[directory], (self.process, directory))
        if owner != (self.process, directory):
            raise TimeoutError(f"process {owner[0]}")

    @call
    def unlock(self, directory: int) -> None:
        self._release(directory)

    @call
    def close(self, descriptor: int) -> None:
        self._release(descriptor)
        del self._opened[descriptor]

    def _release(self, descriptor: int) -> None:
        number = self._opened[descriptor]
        if self.world.locks.get(number) == (self.process, descriptor):
            del self.world.locks[number]

    def seconds(self) -> float:
        return self.now

    @call
    def unique(self) -> str:
        return f"{next(self.tokens):x}"
