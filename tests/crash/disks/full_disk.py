"""A real disk that fills up and is freed again, several times, while a store is in use.

The disk is a small tmpfs with a ballast file. Each round sends until the disk is full, continues for a while (every
answer is `store.full`), frees the ballast, and sends the refused keys again: each is accepted once. At the end the
files are copied, as a kill would leave them, and the store is closed; both copies are read.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from interlock.assemble.runtimes import open as opening
from interlock.errors import UnavailableError
from interlock.runtime.blocking import BlockingRuntime
from tests.crash.kills.store_writer import ROTATING, parcels

ENTITY = "parcel/1"
URLS = {"files": "file://{}/store", "sqlite": "sqlite:///{}/store.db"}
ADDRESSES = {**URLS, "files, rotating": URLS["files"] + ROTATING}
"""The same, and file stores that rotate all the time: for processes that are killed and cut off."""


REFUSED_EACH = 3
"""Sends that are refused in each round before there is room again."""

SENDS_MAX = 5_000
TEXT = "x" * 2_000


@dataclass
class Filled:
    """The result."""

    rounds: int = 0
    kept: dict[str, int] = field(default_factory=dict)
    codes: set[str] = field(default_factory=set)
    refused: int = 0
    found: list[str] = field(default_factory=list)


def filled(store: str, disk: Path, *, rounds: int) -> Filled:
    """Fill and free a small disk several times; then read everything through new handles."""
    filled = Filled()
    url = URLS[store].format(disk)
    with tempfile.TemporaryDirectory() as left:
        with opening(url, charts=[parcels()]).blocking() as runtime:
            runtime.create(ENTITY, key="born")
            for number in range(rounds):
                _round(runtime, disk / "ballast", number, filled)
                filled.rounds += 1
            pipes = shutil.ignore_patterns("*-wakeups")  # pipes of a running worker are no part of a store
            shutil.copytree(disk, left, dirs_exist_ok=True, ignore=pipes)
        for place in (disk, Path(left)):
            with opening(URLS[store].format(place), charts=[parcels()]).blocking() as runtime:
                judge_filled(runtime, filled)
    return filled


def _round(runtime: BlockingRuntime, ballast: Path, number: int, filled: Filled) -> None:
    refused: list[str] = []
    for each in range(SENDS_MAX):
        if each == 2:
            fill(ballast)
        key = f"r{number}.{each}"
        if not sent(runtime, key, filled):
            refused.append(key)
            if len(refused) == REFUSED_EACH:
                break
    else:
        filled.found.append(f"other: round {number}: the disk never was full")
    ballast.unlink(missing_ok=True)
    for key in refused:
        if not sent(runtime, key, filled):
            filled.found.append(f"other: round {number}: {key} is refused though there is room")


def fill(ballast: Path) -> None:
    """Use up the free space."""
    with ballast.open("wb", buffering=0) as file:
        for size in (65_536, 4_096):
            try:
                while file.write(b"\0" * size) == size:
                    pass
            except OSError:
                continue


def sent(runtime: BlockingRuntime, key: str, filled: Filled) -> bool:
    """Send one event; if the store cannot store it, record the code and return False."""
    try:
        receipt = runtime.send(ENTITY, "written", {"text": TEXT}, key=key)
    except UnavailableError as error:
        filled.codes.add(error.code)
        filled.refused += 1
        return False
    filled.kept[key] = receipt.version
    return True


def judge_filled(runtime: BlockingRuntime, filled: Filled) -> None:
    """Read the journal, and record what is wrong."""
    keys: list[str] = []
    while page := runtime.journal(ENTITY, after=len(keys), limit=100):
        keys += [entry.key for entry in page]
    places = {key: version for version, key in enumerate(keys, start=1)}
    filled.found += [f"lost: {key}" for key, version in filled.kept.items() if places.get(key) != version]
    filled.found += [f"doubled: {key}" for key in places if keys.count(key) > 1]
    filled.found += [f"phantom: {key}" for key in places if key not in filled.kept and key != "born"]
    if runtime.state(ENTITY).version != len(keys):
        filled.found.append("other: the snapshot is not at the journal's end")
