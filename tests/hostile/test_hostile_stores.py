"""Invalid names, payloads and paths of a store: refused with their own code, and nothing is written.

The same rows run through the library and the command; unusual but valid names stay distinct, byte for byte.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest

import interlock
from interlock import BlockingRuntime, EntityQuery
from interlock.errors import InterlockError, NotFoundError, UnavailableError, UsageError
from interlock.model.limits import PAYLOAD_BYTES_MAX
from interlock.stores.sqlite.store import SqliteStore
from interlock.testing.store_suite.samples import PARCEL, SampleEntity
from interlock.testing.store_suite.subject import append_all
from tests.hostile.processes import Ended
from tests.hostile.processes import interlock as command
from tests.support.old_stores import forget_definitions

DOOR = """\
interlock: 1
kind: door
revision: 1.0.0
context: {openings: {type: integer, default: 0}}
states:
  closed: {on: {opened: open}, expect: {within: forever}}
  open: {on: {closed: closed}, expect: {within: forever}}
"""
USAGE, NOT_FOUND, UNAVAILABLE, CORRUPTION = 2, 6, 7, 8

STORES: dict[str, Callable[[Path], str]] = {
    "memory": lambda folder: "memory:",
    "files": lambda folder: f"file://{folder}/kept",
    "sqlite": lambda folder: f"sqlite:///{folder}/kept.db",
}
KEPT = ("files", "sqlite")
"""Stores that a second process can open."""

REFUSED = {
    "no kind": "/1",
    "no id": "door/",
    "no slash": "door",
    "nothing": "",
    "a NUL": "door/a\0b",
    "a line break": "door/a\nb",
    "an escape": "door/\x1b[2J",
    "10 kB": "door/" + "x" * 10_000,
    "201 bytes in 104 characters": "door/" + "é" * 98,
    "half a surrogate pair": "door/\ud800",
}
"""Ids that no store keeps."""

TRICKS = {
    "a way up": "door/../../../etc/passwd",
    "above": "door/..",
    "here": "door/.",
    "a way in the middle": "door/a/../b",
    "from right to left": "door/\u202egpj.exe",
    "a space of no width": "door/a\u200b",
    "a space that is another": "door/a\u00a0b",
    "a line of its own": "door/a\u2028b",
    "a control of the second kind": "door/a\u0085",
    "a letter in two parts": "door/e\u0301",
}
"""Ids that a new entity must not have: they look like paths, or like other ids."""

LAWFUL = [
    "door/a",
    "door/A",
    "door/\u0430",  # a Cyrillic letter that looks like the first
    "door/é",
    "door/%2e%2e%2f",
    "door/a/b/c",
    "door/...",
    "door/..a/.b",
    "door/CON",
    "door/a.b",
    "door/ ",
    "door/'; DROP TABLE entity; --",
    "door/" + "\N{GRINNING FACE}" * 48,
]
"""Ids that look like other ids, or like names and statements: each is a separate entity."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a chart in it, and room around it to see what is written there."""
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "door.yaml").write_text(DOOR, encoding="utf-8")
    return inner


def _opened(url: str, text: str = DOOR, *, work: bool = True) -> Any:
    return interlock.open(url, charts=[interlock.loads(text)], work=work)


def _all(doors: BlockingRuntime) -> dict[str, int]:
    """Every entity and its version."""
    found: dict[str, int] = {}
    after = None
    while True:  # ends with the last page
        page = doors.list(EntityQuery(kind="door", after=after))
        found |= {each.entity: each.version for each in page.rows}
        after = page.after
        if after is None:
            return found


def _tree(folder: Path) -> set[str]:
    """The files of stores, without the audit: it records what was refused."""
    return {str(each.relative_to(folder)) for each in folder.rglob("*") if "audit" not in each.parts}


# Ids


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("store", STORES)
def test_an_invalid_id_is_refused_by_every_call(store: str, name: str, folder: Path) -> None:
    entity = REFUSED[name]
    with _opened(STORES[store](folder)) as doors:
        doors.create("door/good")
        asked: list[Callable[[], object]] = [
            lambda: doors.create(entity),
            lambda: doors.send(entity, "opened"),
            lambda: doors.dry_run(entity, "opened"),
            lambda: doors.state(entity),
            lambda: doors.state(entity, at=1),
            lambda: doors.journal(entity),
            lambda: doors.can(entity),
            lambda: doors.verify(entity),
        ]
        for ask in asked:
            with pytest.raises(UsageError) as raised:
                ask()
            assert len(raised.value.message) < 300

        assert {"door/good": 1} == _all(doors)


@pytest.mark.parametrize("store", STORES)
def test_ids_that_look_alike_are_entities_of_their_own(store: str, folder: Path) -> None:
    """Each lives its own life, is listed by its own text, and nothing is written outside the store."""
    before = _tree(folder.parent)
    with _opened(STORES[store](folder)) as doors:
        for number, entity in enumerate(LAWFUL):
            doors.create(entity, {"openings": number})
        for entity in LAWFUL[::2]:
            doors.send(entity, "opened")

        assert {entity: 1 + (number % 2 == 0) for number, entity in enumerate(LAWFUL)} == _all(doors)
        assert list(range(len(LAWFUL))) == [doors.state(each).context["openings"] for each in LAWFUL]
        assert [None] * len(LAWFUL) == [doors.verify(each).problem for each in LAWFUL]
    assert all(each.startswith("inner/kept") for each in _tree(folder.parent) - before)


@pytest.mark.parametrize("name", TRICKS)
@pytest.mark.parametrize("store", STORES)
def test_a_new_entity_must_not_have_a_deceptive_id(store: str, name: str, folder: Path) -> None:
    """UsageError with what is wrong in it, in visible characters; nothing is written."""
    with _opened(STORES[store](folder), work=False) as doors:  # a worker creates files at any time
        before = _tree(folder.parent)
        with pytest.raises(UsageError) as raised:
            doors.create(TRICKS[name])

        assert ("entity.malformed", True) == (raised.value.code, raised.value.hint is not None)
        assert raised.value.message.isprintable()
        assert ({}, before) == (_all(doors), _tree(folder.parent))


def test_an_existing_entity_with_such_an_id_still_works(folder: Path) -> None:
    entity = "parcel/e\u0301/../\u202ex"
    store = SqliteStore(folder / "kept.db")
    asyncio.run(append_all(store, SampleEntity(entity).create()))
    asyncio.run(store.close())
    parcels = interlock.loads(PARCEL.format(kind="parcel", revision="1.0.0"))
    with interlock.open(STORES["sqlite"](folder), charts=[parcels]).blocking() as runtime:
        again = runtime.create(entity, key="born").outcome
        outcome = runtime.send(entity, "noted").outcome
        found = runtime.state(entity).version, len(runtime.journal(entity)), runtime.verify(entity).problem

    assert ("duplicate", "applied", (2, 2, None)) == (again, outcome, found)


@pytest.mark.parametrize(
    "name", [each for each in {**REFUSED, **TRICKS} if each not in {"a NUL", "half a surrogate pair"}]
)
@pytest.mark.parametrize("store", KEPT)
def test_the_command_refuses_them_too(store: str, name: str, folder: Path) -> None:
    """Code 2 and one line; no store is made. (A NUL cannot even be written on a command line.)"""
    entity = {**REFUSED, **TRICKS}[name]
    ended = command("create", STORES[store](folder), entity, "--chart", "door.yaml", folder=folder)

    assert USAGE == ended.code
    assert _is_refusal(ended)
    assert {"door.yaml"} == _tree(folder)


def test_bytes_that_are_no_text_are_refused_on_the_command_line(folder: Path) -> None:
    """What the shell hands over and UTF-8 does not know."""
    entity = os.fsdecode(b"door/\xff\xfe")
    ended = command("create", STORES["sqlite"](folder), entity, "--chart", "door.yaml", folder=folder)

    assert (USAGE, True) == (ended.code, _is_refusal(ended))
    assert {"door.yaml"} == _tree(folder)


def test_a_name_that_turns_the_writing_is_shown_as_what_it_is(folder: Path) -> None:
    store = SqliteStore(folder / "kept.db")
    asyncio.run(append_all(store, SampleEntity("parcel/\u202egpj.exe").create()))
    asyncio.run(store.close())
    ended = command("ls", STORES["sqlite"](folder), folder=folder)

    assert "parcel/\\u202egpj.exe" in ended.out
    assert "\u202e" not in ended.out


# Payloads


PAYLOADS: dict[str, Any] = {
    "too many bytes": "x" * (PAYLOAD_BYTES_MAX + 1),
    "too deep": [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["end"]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]],
    "no number": float("nan"),
    "endless": float("inf"),
    "half a surrogate pair": "\ud800",
    "an object": object(),
    "a key that is not text": {1: 2},
    "a list that holds itself": [],
}
PAYLOADS["a list that holds itself"].append(PAYLOADS["a list that holds itself"])


@pytest.mark.parametrize("name", PAYLOADS)
@pytest.mark.parametrize("store", STORES)
def test_a_payload_that_cannot_be_kept_is_refused(store: str, name: str, folder: Path) -> None:
    """It raises, nothing is written, and its key is still free."""
    with _opened(STORES[store](folder)) as doors:
        doors.create("door/1")
        with pytest.raises(UsageError) as refused:
            doors.send("door/1", "opened", PAYLOADS[name], key="k")
        taken = doors.send("door/1", "opened", "small", key="k")

    assert "event.payload" == refused.value.code
    assert ("applied", 2) == (taken.outcome, taken.version)


def test_a_payload_over_the_limit_is_rejected_by_the_command(folder: Path) -> None:
    """From a file, where a command line would not hold it."""
    url = STORES["sqlite"](folder)
    (folder / "large.json").write_text('"' + "x" * PAYLOAD_BYTES_MAX + '"')
    (folder / "deep.json").write_text("[" * 100_000)
    command("create", url, "door/1", "--chart", "door.yaml", folder=folder)
    large = command("send", url, "door/1", "opened", "@large.json", "--chart", "door.yaml", folder=folder)
    deep = command("send", url, "door/1", "opened", "@deep.json", "--chart", "door.yaml", folder=folder)
    shown = command("journal", url, "door/1", folder=folder)

    assert (USAGE, USAGE) == (large.code, deep.code)
    assert (1, True) == (len(shown.out.splitlines()), _is_refusal(deep))


# What this process does not have


@pytest.mark.parametrize("store", KEPT)
def test_a_kind_without_a_chart_is_not_found(store: str, folder: Path) -> None:
    with _opened(STORES[store](folder)) as doors:
        with pytest.raises(NotFoundError) as raised:
            doors.create("window/1")
        assert "kind.unknown" == raised.value.code
        assert {} == _all(doors)
    ended = command("create", STORES[store](folder), "window/1", "--chart", "door.yaml", folder=folder)

    assert NOT_FOUND == ended.code


@pytest.mark.parametrize("store", KEPT)
def test_an_entity_of_a_revision_that_is_not_here_is_left_alone(store: str, folder: Path) -> None:
    """Its store is of a release that stored no definitions."""
    url = STORES[store](folder)
    newer = DOOR.replace("1.0.0", "2.0.0").replace("openings:", "counted:")
    (folder / "newer.yaml").write_text(newer, encoding="utf-8")
    with _opened(url) as doors:
        doors.create("door/1")
    if store == "sqlite":
        forget_definitions(folder / "kept.db")
    else:
        rmtree(folder / "kept" / "definitions")
    with _opened(url, newer) as doors:
        asked: list[Callable[[], object]] = [lambda: doors.send("door/1", "opened"), lambda: doors.can("door/1")]
        for ask in asked:
            with pytest.raises(UnavailableError) as raised:
                ask()
            assert "revision.unknown" == raised.value.code
    ended = command("send", url, "door/1", "opened", "--chart", "newer.yaml", folder=folder)
    shown = command("journal", url, "door/1", folder=folder)

    assert (UNAVAILABLE, True) == (ended.code, _is_refusal(ended))
    assert 1 == len(shown.out.splitlines())


# Places


def _read_only(folder: Path) -> str:
    (folder / "closed").mkdir(mode=0o500)
    return "closed/kept"


def _forbidden(folder: Path) -> str:
    (folder / "closed").mkdir(mode=0o000)
    return "closed/kept"


def _nowhere(folder: Path) -> str:
    return "no/such/folder/kept"


def _a_file(folder: Path) -> str:
    (folder / "file").write_text("x")
    return "file/kept"


@pytest.mark.parametrize("place", [_read_only, _forbidden, _nowhere, _a_file])
@pytest.mark.parametrize("scheme", ["sqlite:///", "file://"])
def test_a_place_that_cannot_be_written_makes_no_store(scheme: str, place: Callable[[Path], str], folder: Path) -> None:
    """A documented code and one line that names the place; permissions hold even where the tests run as root."""
    path = folder / place(folder)
    ended = command("create", f"{scheme}{path}", "door/1", "--chart", "door.yaml", folder=folder, humble=True)
    if (folder / "closed").exists():
        (folder / "closed").chmod(0o700)

    assert ended.code in {USAGE, NOT_FOUND, UNAVAILABLE}
    assert _is_refusal(ended)
    assert not path.exists()


@pytest.mark.parametrize("mode", [0o000, 0o400])
def test_a_database_that_may_not_be_written_is_unavailable(mode: int, folder: Path) -> None:
    url = STORES["sqlite"](folder)
    with _opened(url) as doors:
        doors.create("door/1")
    (folder / "kept.db").chmod(mode)
    ended = command("send", url, "door/1", "opened", "--chart", "door.yaml", folder=folder, humble=True)
    (folder / "kept.db").chmod(0o600)

    assert (UNAVAILABLE, True) == (ended.code, _is_refusal(ended))
    with _opened(url) as doors:
        assert ("closed",) == doors.state("door/1").configuration


def test_a_folder_that_may_only_be_read_can_be_looked_at(folder: Path) -> None:
    """Journals on a read-only medium are still journals; sending says why it cannot."""
    url = STORES["files"](folder)
    with _opened(url) as doors:
        doors.create("door/1")
    for each in sorted((folder / "kept").rglob("*"), reverse=True):
        each.chmod(0o500 if each.is_dir() else 0o400)
    (folder / "kept").chmod(0o500)
    looked = command("show", url, "door/1", "--chart", "door.yaml", folder=folder, humble=True)
    sent = command("send", url, "door/1", "opened", "--chart", "door.yaml", folder=folder, humble=True)
    (folder / "kept").chmod(0o700)
    for each in sorted((folder / "kept").rglob("*")):
        each.chmod(0o700 if each.is_dir() else 0o600)

    assert (0, UNAVAILABLE, True) == (looked.code, sent.code, _is_refusal(sent))


def _newer_database(folder: Path) -> str:
    url = STORES["sqlite"](folder)
    with _opened(url) as doors:
        doors.create("door/1")
    with closing(sqlite3.connect(folder / "kept.db")) as connection, connection:
        connection.execute("INSERT INTO schema_version (version, name) VALUES (9999, 'later')")
    return url


def _newer_folder(folder: Path) -> str:
    url = STORES["files"](folder)
    with _opened(url) as doors:
        doors.create("door/1")
    (folder / "kept" / "format.json").write_text('{"format":9,"layout":"Z"}')
    return url


def _foreign_database(folder: Path) -> str:
    with closing(sqlite3.connect(folder / "kept.db")) as connection, connection:
        connection.execute("CREATE TABLE customers (name TEXT)")
        connection.execute("PRAGMA application_id = 252006673")  # Fossil
    return STORES["sqlite"](folder)


def _no_database(folder: Path) -> str:
    (folder / "kept.db").write_bytes(b"this is a letter to my aunt " * 100)
    return STORES["sqlite"](folder)


def _a_directory(folder: Path) -> str:
    (folder / "kept.db").mkdir()
    return STORES["sqlite"](folder)


PLACES: dict[str, tuple[Callable[[Path], str], int]] = {
    "a database of a newer release": (_newer_database, USAGE),
    "a folder of a newer release": (_newer_folder, USAGE),
    "a database of another program": (_foreign_database, USAGE),
    "a file that is not a database": (_no_database, CORRUPTION),
    "a directory where a database should be": (_a_directory, UNAVAILABLE),
}


@pytest.mark.parametrize("name", PLACES)
def test_a_place_that_is_not_ours_or_not_yet_ours_is_not_touched(name: str, folder: Path) -> None:
    made, code = PLACES[name]
    url = made(folder)
    before = {each: each.read_bytes() for each in sorted(folder.rglob("*")) if each.is_file() and "-" not in each.name}
    with pytest.raises(InterlockError), _opened(url):
        pass
    ended = command("create", url, "door/2", "--chart", "door.yaml", folder=folder)
    after = {each: each.read_bytes() for each in sorted(folder.rglob("*")) if each.is_file() and "-" not in each.name}

    assert (code, True) == (ended.code, _is_refusal(ended))
    assert before == after


def _is_refusal(ended: Ended) -> bool:
    """Whether stderr is one error line, perhaps with one hint line, and neither can control a terminal."""
    error, *hints = ended.err.split("\n")[:-1]
    shape = error.startswith("error: ") and len(hints) <= 1 and all(each.startswith("hint: ") for each in hints)
    return shape and ended.err.endswith("\n") and all(each.isprintable() for each in (error, *hints))
