"""A real disk that fills up and is freed again, round after round, under a store that goes on.

The disk is a small tmpfs with a ballast file. Each round sends until the disk is full, sends on for a while (every
answer is `store.full`), frees the ballast, and sends the refused keys again: they are taken, each once. In the end the
store is copied as it stands, which is what a kill would leave, and then closed; both are read again.
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
    """What came of it."""

    rounds: int = 0
    kept: dict[str, int] = field(default_factory=dict)
    codes: set[str] = field(default_factory=set)
    refused: int = 0
    found: list[str] = field(default_factory=list)


def filled(store: str, disk: Path, *, rounds: int) -> Filled:
    """Rounds of full and freed on a store at a small disk; then everything is read again through new handles."""
    filled = Filled()
    url = URLS[store].format(disk)
    with tempfile.TemporaryDirectory() as left:
        with opening(url, charts=[parcels()]) as runtime:
            runtime.create(ENTITY, key="born")
            for number in range(rounds):
                _round(runtime, disk / "ballast", number, filled)
                filled.rounds += 1
            shutil.copytree(disk, left, dirs_exist_ok=True)
        for place in (disk, Path(left)):
            with opening(URLS[store].format(place), charts=[parcels()]) as runtime:
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
    """Takes all the room that is left."""
    with ballast.open("wb", buffering=0) as file:
        for size in (65_536, 4_096):
            try:
                while file.write(b"\0" * size) == size:
                    pass
            except OSError:
                continue


def sent(runtime: BlockingRuntime, key: str, filled: Filled) -> bool:
    """Sends one event; False, and the code noted, when the store cannot keep it."""
    try:
        receipt = runtime.send(ENTITY, "written", {"text": TEXT}, key=key)
    except UnavailableError as error:
        filled.codes.add(error.code)
        filled.refused += 1
        return False
    filled.kept[key] = receipt.version
    return True


def judge_filled(runtime: BlockingRuntime, filled: Filled) -> None:
    """Reads the journal, and writes down what is wrong with it."""
    keys: list[str] = []
    while page := runtime.journal(ENTITY, after=len(keys), limit=100):
        keys += [entry.key for entry in page]
    places = {key: version for version, key in enumerate(keys, start=1)}
    filled.found += [f"lost: {key}" for key, version in filled.kept.items() if places.get(key) != version]
    filled.found += [f"doubled: {key}" for key in places if keys.count(key) > 1]
    filled.found += [f"phantom: {key}" for key in places if key not in filled.kept and key != "born"]
    if runtime.state(ENTITY).version != len(keys):
        filled.found.append("other: the snapshot is not at the journal's end")
