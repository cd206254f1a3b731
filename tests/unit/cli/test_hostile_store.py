r"""A store in which every text is hostile: whatever command reads it, each line is one of ours, and nothing steers.

The text starts a separate line (`\n`, `\r`, U+2028), moves the cursor, colours, and turns the direction of writing.
"""

from __future__ import annotations

import asyncio
import json
import sys
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from interlock.cli.main import COMMANDS
from interlock.cli.output.progress import Progress
from interlock.cli.output.terminal import Terminal
from interlock.model.audit import AuditRow
from interlock.model.effect import Effect
from interlock.model.journal.work import Work, WorkDelta, WorkId
from interlock.ports.store import Append
from interlock.ports.work import Settlement
from interlock.stores.sqlite.store import open_store
from interlock.testing.store_suite.samples import PARCEL, SampleEntity
from interlock.testing.store_suite.subject import append_all
from tests.support.cli import Caller

FORGED = "FORGED"
HOSTILE = f"x\n{FORGED} a\r{FORGED} b\u2028{FORGED} c\x1b[2J\x1b]0;d\x07\x9b31m\u202ee\u2066f\x7f\tg"
SEEN = f"x\u2028{FORGED} c\x9b31m\u202ee\u2066f"
"""As much of it as a command takes in an id."""

STORE = "sqlite:///hostile.db"
ENTITY = f"parcel/{SEEN}"
CHART = ("--chart", "parcel.yaml")

READING = {
    "audit": [["export", STORE, "--format", "csv"], ["verify", STORE]],
    "bundle": [
        ["export", STORE, ENTITY, *CHART, "-o", "out.bundle"],
        ["export", STORE, f"parcel/no {SEEN}", "-o", "out.bundle"],
    ],
    "can": [[STORE, ENTITY, *CHART]],
    "db": [["status", STORE], ["tenants", STORE]],
    "doctor": [[STORE, *CHART], [STORE]],
    "effects": [["ls", STORE], ["ls", STORE, "--dead"], ["ls", STORE, "--entity", ENTITY]],
    "holds": [[STORE], [STORE, SEEN]],
    "journal": [[STORE, ENTITY]],
    "ls": [[STORE], [STORE, "--kind", "parcel"], [STORE, "--kind", SEEN]],
    "migrate": [["plan", STORE, *CHART], ["status", STORE, "parcel"], ["status", STORE, SEEN]],
    "refold": [[STORE, *CHART]],
    "replay": [[STORE, ENTITY, *CHART], [STORE, "parcel/plain", *CHART]],
    "rollout": [["status", STORE, "parcel"], ["status", STORE, SEEN]],
    "shadow": [["replay", STORE, *CHART]],
    "show": [[STORE, ENTITY, *CHART], [STORE, ENTITY, *CHART, "--all"], [STORE, f"parcel/no {SEEN}", *CHART]],
    "stuck": [[STORE, *CHART], [STORE]],
    "tail": [[STORE, "--since", "start"]],
    "top": [[STORE, "--once", *CHART]],
    "verify": [[STORE, *CHART], [STORE, "--chains-only"], [STORE, ENTITY, *CHART]],
}
"""How each command is called that reads a store. Each is called with -v, too."""

ACTING = {
    "archive": [
        [STORE, "--kind", "parcel", "--state", "packed", "--older", "1ms", "--to", "file:///nowhere/at/all", *CHART]
    ],
    "compact": [[STORE, "--kind", SEEN, "--older", "400d", *CHART]],
    "create": [[STORE, ENTITY, *CHART]],
    "erase": [[STORE, ENTITY, "--dry-run", *CHART], [STORE, ENTITY, SEEN, "--dry-run"]],
    "hold": [[STORE, ENTITY, "--reason", SEEN, *CHART], [STORE, SEEN, "--reason", SEEN]],
    "keyring": [["status", STORE], ["rotate", STORE, "--keyring", f"file:{SEEN}"]],
    "prune": [[STORE, "--kind", SEEN, "--older", "1d", *CHART]],
    "resume": [[STORE, f"parcel/no {SEEN}", *CHART], [STORE, SEEN]],
    "send": [[STORE, ENTITY, "noted", *CHART], [STORE, f"parcel/no {SEEN}", SEEN, *CHART]],
}
"""Commands that write, and print something about the content."""

WITHOUT_A_STORE = {
    "check", "completion", "convert", "demo", "diff", "draw", "export", "fmt", "keys", "lifecycle", "new", "run",
    "schema", "serve", "simulate", "types",
}  # fmt: skip
"""Commands that read no store, or do not end by themselves. What `run` and `serve` print are logs (below)."""


def spoiled(append: Append) -> Append:
    """The same append with every text that others write made hostile, and work with it."""
    entry = append.entry
    principal = {"id": HOSTILE, "reason": HOSTILE, "kind": HOSTILE, "roles": [HOSTILE]}
    event = replace(entry.event, principal=principal, source=HOSTILE, origin=HOSTILE, sendid=HOSTILE, invokeid=HOSTILE)
    effects = (Effect("call", 0, f"{append.entity}/{entry.version}/0", {"name": HOSTILE, "src": HOSTILE}),)
    places = (WorkId("effect", entry.version, 0), WorkId("outbox", entry.version, 1), WorkId("timer", entry.version, 2))
    works = tuple(Work(each, HOSTILE, {"name": HOSTILE, "event": HOSTILE, "type": HOSTILE}, 0) for each in places)
    changed = replace(entry, event=event, reason=HOSTILE, trace=HOSTILE, effects=effects)
    return replace(append, entry=changed, work=WorkDelta(created=works))


async def fill() -> None:
    """Two entities: one hostile in every text, one plain; dead letters, and refusals."""
    store = open_store(STORE)
    try:
        sample = SampleEntity(ENTITY)
        await append_all(store, spoiled(sample.create(key="born", context={"text": HOSTILE})))
        await append_all(store, spoiled(sample.step("written", {"text": HOSTILE}, key=HOSTILE)))
        plain = SampleEntity("parcel/plain")
        await append_all(store, plain.create())
        await append_all(store, plain.step("shipped", key="s"))
        await append_all(store, spoiled(SampleEntity(f"parcel/{HOSTILE}").create()))
        odd = SampleEntity("parcel/1").create()
        snapshot = replace(odd.snapshot, entity=f"{HOSTILE}/1", kind=HOSTILE, revision=HOSTILE)
        await append_all(store, replace(odd, kind=HOSTILE, entity=f"{HOSTILE}/1", snapshot=snapshot))
        claims = await store.claim("effect", None, owner=HOSTILE, now_ms=1, until_ms=9, limit=1)
        error = {"code": HOSTILE, "message": HOSTILE, "type": HOSTILE}
        await store.settle((Settlement(claims[0], "dead", error=error),), now_ms=2)
        await store.claim("effect", None, owner=HOSTILE, now_ms=1, until_ms=2**50, limit=1)
        row = AuditRow(ENTITY, HOSTILE, HOSTILE, HOSTILE, 1, actor=HOSTILE, trace=HOSTILE)
        await store.append_audit((row,))
    finally:
        await store.close()


@pytest.fixture
def home(folder: Path) -> Path:
    """A folder with such a store."""
    (folder / "parcel.yaml").write_text(PARCEL.format(kind="parcel", revision="1.0.0"), encoding="utf-8")
    asyncio.run(fill())
    return folder


def wrong(text: str) -> list[str]:
    """Lines that are forged, and those with characters that steer."""
    lines = text.split("\n")
    return [
        each
        for each in lines
        if each.lstrip().startswith(FORGED)
        or any(unicodedata.category(one) in ("Cc", "Cf", "Zl", "Zp") for one in each)
    ]


def test_every_command_is_known_here() -> None:
    assert set(COMMANDS) == {*READING, *ACTING, *WITHOUT_A_STORE}


@pytest.mark.parametrize("verbose", [False, True])
@pytest.mark.parametrize("command", [*READING, *ACTING])
def test_no_command_prints_control_characters_or_forged_lines(
    call: Caller, home: Path, command: str, verbose: bool
) -> None:
    printed = ""
    if command == "holds":
        assert 0 == call("hold", STORE, "parcel/plain", "--reason", SEEN, *CHART).code
    for arguments in {**READING, **ACTING}[command]:
        ended = call(command, *arguments, *(["-v"] if verbose else []))
        assert [] == wrong(ended.out + ended.err), arguments
        assert ended.code != 70, ended.err
        printed += ended.out + ended.err
    if command not in ("db", "top", "archive", "doctor"):
        assert FORGED in printed


@pytest.mark.parametrize("command", [each for each in READING if each not in ("db", "tail")])
def test_a_command_in_colour_sends_no_codes_but_its_own(call: Caller, home: Path, command: str) -> None:
    for arguments in READING[command]:
        ended = call("--color", "always", command, *arguments)
        assert not any(
            each in ended.out + ended.err for each in ("\x1b[2J", "\x1b]0", "\x9b", "\u202e", "\u2028", "\r")
        )


@pytest.mark.parametrize("command", ["journal", "show", "effects", "stuck", "ls", "verify"])
def test_json_keeps_the_text_as_it_is(call: Caller, home: Path, command: str) -> None:
    ended = call(command, *READING[command][0], "--json")
    lines = ended.out.splitlines() if command in ("journal", "verify") else [ended.out]
    decoded: list[Any] = [json.loads(each) for each in ended.out.split("\n") if each] if len(lines) > 1 else []

    assert FORGED in (json.dumps(decoded) if decoded else ended.out)
    assert not any(each.startswith(FORGED) for each in ended.out.split("\n"))


def test_a_line_of_progress_is_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    progress = Progress(Terminal(color="never"), HOSTILE)
    progress.line(HOSTILE)
    progress.at(1, HOSTILE)
    written = capsys.readouterr().err.replace("\r\x1b[K", "")

    assert FORGED in written
    assert [] == wrong(written)


def test_stuck_names_the_kinds_that_have_no_chart(call: Caller, home: Path) -> None:
    """These entities were written without a definition, so neither the project nor the store has a chart of them."""
    assert "no chart of parcel" in call("stuck", STORE, "parcel").err
    assert "no chart of" not in call("stuck", STORE, "parcel", *CHART).err
