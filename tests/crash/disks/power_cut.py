"""A power cut on a real file system: ext4 on a loop device, shut down while in use, and mounted again.

`FS_IOC_SHUTDOWN` without a flush of the log stops all writes immediately: data that is not yet on the disk is lost, as
after a power cut, and the next mount replays ext4's own journal. Only receipts before the call count, because fsync may
succeed while a shutdown is in progress.

This reveals missing flushes on a real kernel. It does not cover torn sectors, which the simulated file system has, nor
disks that confirm a flush without writing.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import random
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

from interlock.assemble.runtimes import open as opening
from interlock.errors import InterlockError
from interlock.runtime.blocking import BlockingRuntime
from tests.crash.disks.full_disk import (
    ADDRESSES,
    ENTITY,
    REFUSED_EACH,
    SENDS_MAX,
    URLS,
    Filled,
    fill,
    judge_filled,
    sent,
)
from tests.crash.disks.mounts import tmpfs
from tests.crash.kills.store_writer import parcels
from tests.crash.kills.storm import Outcome, Writer, born, hear, judge

FS_IOC_SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = 2
IMAGE_MIB = 48
WRITERS = 2


def is_possible(folder: Path) -> str | None:
    """Return why no file system can be mounted on a loop device here; None if one can."""
    if os.geteuid() != 0:
        return "mounting needs root: no real power cut; the simulated one is tested everywhere"
    try:
        with Disk(folder / "probe").mounted() as place:
            _shut_down(place)
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", None) or error
        return f"no file system on a loop device here ({said}); the simulated one is tested everywhere"
    return None


class Disk:
    """An ext4 image and its mount point."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._image = folder / "image"
        self._place = folder / "disk"
        self._place.mkdir()
        with self._image.open("wb") as file:
            file.truncate(IMAGE_MIB << 20)
        _run("mkfs.ext4", "-q", str(self._image))

    @contextlib.contextmanager
    def mounted(self) -> Iterator[Path]:
        """Mount the file system; unmount it at the end."""
        _run("mount", "-o", "loop", str(self._image), str(self._place))
        try:
            yield self._place
        finally:
            _run("umount", str(self._place))


def cut(store: str, folder: Path, *, cuts: int, seed: int, fault: str = "") -> Outcome:
    """Run writers on a file system, cut its power repeatedly, and read all journals at the end."""
    chance = random.Random(seed)
    outcome = Outcome()
    disk = Disk(folder)
    with disk.mounted() as place:
        url = ADDRESSES[store].format(place)
        asyncio.run(born(url))
    os.sync()
    fleet = [Writer(url, f"w{number}", fault, outcome) for number in range(WRITERS)]
    for _ in range(cuts):
        with disk.mounted() as place:
            _until_cut(place, fleet, outcome, chance)
        outcome.kills += 1
        if outcome.other:
            break
    with disk.mounted():
        try:
            asyncio.run(judge(url, outcome))
        except (AssertionError, InterlockError) as error:  # a journal that cannot be read or replayed
            outcome.other.append(f"other: {error}")
    return outcome


def _until_cut(place: Path, fleet: list[Writer], outcome: Outcome, chance: random.Random) -> None:
    """Run writers, cut the power, and end them."""
    for each in fleet:
        each.start()
    try:
        if not hear(fleet, chance.randrange(20, 120)):
            outcome.other.append("other: a writer ended without a kill")
        kept, other = dict(outcome.kept), list(outcome.other)
        _shut_down(place)
    finally:
        inside = [each.kill() for each in fleet]
    outcome.inside += any(inside)
    outcome.kept, outcome.other = kept, other  # what was said after the cut, receipts and errors, does not count


def failed(store: str, folder: Path, *, rounds: int) -> Filled:
    """Use a disk whose writes fail: in each round a new process finds all receipts, and accepts the refused keys.

    The image is in a tmpfs that is too small for it: when that is full, flushes fail.
    """
    result = Filled()
    with tmpfs(folder, f"{IMAGE_MIB // 2}m") as outer:
        disk = Disk(outer)
        refused: list[str] = []
        for number in range(rounds):
            with disk.mounted() as place, opening(URLS[store].format(place), charts=[parcels()]).blocking() as runtime:
                runtime.create(ENTITY, key="born")
                refused = [key for key in refused if not sent(runtime, key, result)]
                result.found += [f"other: {key} is refused though the disk is well" for key in refused]
                fill(outer / "ballast")
                refused = _until_refused(runtime, number, result)
            (outer / "ballast").unlink()
            result.rounds += 1
        with disk.mounted() as place, opening(URLS[store].format(place), charts=[parcels()]).blocking() as runtime:
            judge_filled(runtime, result)
    return result


def _until_refused(runtime: BlockingRuntime, number: int, result: Filled) -> list[str]:
    refused: list[str] = []
    for each in range(SENDS_MAX):
        key = f"r{number}.{each}"
        if not sent(runtime, key, result):
            refused.append(key)
            if len(refused) == REFUSED_EACH:
                return refused
    result.found.append(f"other: round {number}: the disk never failed")
    return refused


def _shut_down(place: Path) -> None:
    descriptor = os.open(place, os.O_RDONLY)
    try:
        fcntl.ioctl(descriptor, FS_IOC_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
    finally:
        os.close(descriptor)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
