"""Real processes, killed at any moment: what they were promised must be in the journal, once."""

from __future__ import annotations

import os
import random
import select
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from interlock.model.record import Record
from interlock.stores.files_journals import Journals
from interlock.stores.files_shared import Settings
from interlock.stores.filesystem import OperatingSystem

ENTITY = "order/storm"
ROOT = Path(__file__).parents[2]
WRITERS = 4


@dataclass
class Outcome:
    """What came of a storm."""

    kills: int = 0
    kept: dict[str, int] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    phantoms: list[str] = field(default_factory=list)


def storm(root: Path, *, kills: int, seed: int) -> Outcome:
    """Keeps four writers running on one entity and kills one of them again and again; then reads the journal."""
    chance = random.Random(seed)
    outcome = Outcome()
    fleet = [_writer(root, f"w{number}") for number in range(WRITERS)]
    born = WRITERS
    try:
        while outcome.kills < kills:
            for _ in range(chance.randrange(1, 30)):
                _listen(fleet, outcome)
            victim = fleet.pop(chance.randrange(len(fleet)))
            victim.kill()
            _finish(victim, outcome)
            outcome.kills += 1
            fleet.append(_writer(root, f"w{born}"))
            born += 1
    finally:
        for process in fleet:
            process.kill()
            _finish(process, outcome)
    _judge(_records(root), outcome)
    return outcome


def _writer(root: Path, name: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.crash.files_writer", str(root), name, ENTITY]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    return subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, env=environment)


def _listen(fleet: list[subprocess.Popen[bytes]], outcome: Outcome) -> None:
    """Waits until some writer says something, and takes it down."""
    pipes = [process.stdout for process in fleet if process.stdout is not None]
    ready, _, _ = select.select(pipes, [], [], 30)
    assert ready, "no writer got anywhere in 30 seconds"
    for pipe in ready:
        line = pipe.readline()
        assert line, "a writer ended by itself"
        _note(line, outcome)


def _finish(process: subprocess.Popen[bytes], outcome: Outcome) -> None:
    """Takes down what a killed writer had said."""
    rest, _ = process.communicate()
    for line in rest.splitlines(keepends=True):
        if line.endswith(b"\n"):
            _note(line, outcome)


def _note(line: bytes, outcome: Outcome) -> None:
    words = line.decode().split()
    outcome.asked.add(words[1])
    if words[0] == "kept":
        outcome.kept[words[1]] = int(words[2])


def _records(root: Path) -> list[Record]:
    journals = Journals(str(root), OperatingSystem(), Settings())
    records: list[Record] = []
    while page := journals.read(ENTITY, after=len(records)):
        records += page
    journals.close()
    return records


def _judge(records: list[Record], outcome: Outcome) -> None:
    keys = [record.key for record in records]
    places = {key: number for number, key in enumerate(keys, start=1)}
    outcome.lost = [key for key, version in outcome.kept.items() if places.get(key) != version]
    outcome.doubled = [key for key in places if keys.count(key) > 1]
    outcome.phantoms = [key for key in keys if key not in outcome.asked]
