"""Commands on stores: where store and charts come from, corruption, and hostile text."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from interlock.cli.output.values import age_text, time_text
from interlock.cli.project import Project, project
from interlock.effects.retry import HandlerDefaults
from interlock.errors import UsageError
from interlock.stores.sql.schema import newest_schema
from tests.support import journal_only_store
from tests.support.cli import LAMP, Caller
from tests.support.old_stores import forget_definitions

STORE = "sqlite:///lamps.db"
CHARTED = ("--chart", "lamp.yaml")


@pytest.fixture
def lamps(call: Caller, folder: Path) -> Path:
    """A store with three lamps, each pressed twice."""
    for number in (1, 2, 3):
        assert 0 == call("create", STORE, f"lamp/{number}", *CHARTED).code
        for _ in range(2):
            assert 0 == call("send", STORE, f"lamp/{number}", "press", *CHARTED).code
    return folder / "lamps.db"


def _changed(path: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement, values)


# Where the store and the charts come from


def test_the_command_line_goes_before_the_environment_before_the_project(
    call: Caller, lamps: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "interlock.toml").write_text('store = "sqlite:///nowhere.db"\ncharts = ["nothing.yaml"]\n')
    by_project = call("show", "lamp/1")
    monkeypatch.setenv("INTERLOCK_CHARTS", f"{folder / 'lamp.yaml'}{os.pathsep}")
    half = call("show", "lamp/1")
    monkeypatch.setenv("INTERLOCK_STORE", STORE)
    by_environment = call("show", "lamp/1")
    by_word = call("show", "sqlite:///other.db", "lamp/1")
    by_option = call("show", "lamp/1", "--chart", "absent.yaml")

    assert "file nothing.yaml does not exist" in by_project.err.replace('"', "")
    assert "nowhere.db" in half.err
    assert (0, "") == (by_environment.code, by_environment.err)
    assert "other.db" in by_word.err
    assert "absent.yaml" in by_option.err


def test_a_project_is_found_from_a_folder_below(call: Caller, lamps: Path, folder: Path) -> None:
    (folder / "pyproject.toml").write_text(f'[tool.interlock]\nstore = "{STORE}"\ncharts = ["lamp.yaml"]\n')
    below = folder / "a" / "b"
    below.mkdir(parents=True)
    (below / "pyproject.toml").write_text("[project]\nname = 'x'\n")  # says nothing about us: look further up
    os.chdir(below)

    assert Project(store="sqlite:///../../lamps.db", charts=("../../lamp.yaml",), folder=folder) == project()
    assert 0 == call("show", "lamp/1").code


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("store = 1", "project.store"),
        ('store = "orders"', "project.store"),
        ('charts = "a.yaml"', "project.charts"),
        ("charts = [1]", "project.charts"),
        ("chart = []", "project.key"),
        ("key_prefix = 1", "project.key_prefix"),
        ("handlers = 3", "project.handlers"),
        ("[handlers]\nretries = 3", "project.handlers"),
        ('[handlers]\ntimeout = "soon"', "project.handlers"),
        ("= 3", "project.malformed"),
    ],
)
def test_an_invalid_project_file_is_refused(folder: Path, text: str, code: str) -> None:
    (folder / "interlock.toml").write_text(text + "\n")
    with pytest.raises(UsageError) as raised:
        project()

    assert code == raised.value.code
    assert "interlock.toml" in raised.value.message


def test_a_project_sets_defaults_of_handlers(folder: Path) -> None:
    (folder / "interlock.toml").write_text('[handlers]\nretry = {max = 3, backoff = "1s..9s"}\ntimeout = "30s"\n')

    assert HandlerDefaults(retry={"max": 3, "backoff": "1s..9s"}, timeout="30s") == project().handler_defaults


def test_a_relative_file_store_is_resolved_from_the_project_folder(folder: Path) -> None:
    file = folder / "interlock.toml"
    for store, expected in (
        ("file:kept", "file:kept"),
        ("file:///var/kept", "file:///var/kept"),
        ("sqlite:////var/x.db", "sqlite:////var/x.db"),
        ("postgresql://host/name", "postgresql://host/name"),
    ):
        file.write_text(f'store = "{store}"\n')

        assert expected == project().store


def test_a_chart_with_code_is_named_by_its_module(call: Caller, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    text = LAMP.replace("{press: bright}", "{press: {target: bright, guard: is_allowed}}")
    (folder / "coded.yaml").write_text(text)
    (folder / "lamps_of_mine.py").write_text(
        'import interlock\nlamp = interlock.load("coded.yaml")\n'
        'lamp.guard("is_allowed")(lambda context, event: False)\n'
    )
    monkeypatch.delitem(sys.modules, "lamps_of_mine", raising=False)
    made = call("create", STORE, "lamp/1", "--chart", "lamps_of_mine:lamp")
    refused = call("send", STORE, "lamp/1", "press", "--chart", "lamps_of_mine:lamp")
    without = call("send", STORE, "lamp/1", "press", "--chart", "coded.yaml")
    wrong = [call("show", STORE, "lamp/1", "--chart", f"lamps_of_mine:{name}").err for name in ("x", "interlock")]

    assert (0, 5, 2) == (made.code, refused.code, without.code)
    assert "is false: is_allowed" in refused.out
    assert "is_allowed" in without.err
    assert ["has no `x`" in wrong[0], "is not a chart" in wrong[1]] == [True, True]


def test_modules_of_the_project_are_imported_from_its_folder(
    call: Caller, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each not in ("", str(folder))])
    monkeypatch.delitem(sys.modules, "shop_of_mine", raising=False)
    (folder / "interlock.toml").write_text(f'store = "{STORE}"\ncharts = ["shop_of_mine:charts"]\n')
    (folder / "shop_of_mine.py").write_text(
        "import interlock\n"
        "from pathlib import Path\n"
        'text = Path(__file__).with_name("lamp.yaml").read_text()\n'
        'charts = [interlock.loads(text), interlock.loads(text.replace("kind: lamp", "kind: torch"))]\n'
    )
    below = folder / "below"
    below.mkdir()
    monkeypatch.chdir(below)
    made = [call("create", name) for name in ("lamp/1", "torch/1")]

    assert [0, 0] == [each.code for each in made]
    assert str(folder) in sys.path


def test_reading_creates_no_store(call: Caller, folder: Path) -> None:
    for words in (
        ["ls"],
        ["journal", "lamp/1"],
        ["show", "lamp/1", *CHARTED],
        ["can", "lamp/1", *CHARTED],
        ["send", "lamp/1", "press", *CHARTED],
        ["replay", "lamp/1", *CHARTED],
        ["verify", *CHARTED],
        ["db", "status"],
    ):
        for address in ("sqlite:///absent.db", f"file://{folder}/absent"):
            place = 1 if words[0] != "db" else 2
            ended = call(*words[:place], address, *words[place:])

            assert 6 == ended.code, words
    assert {"lamp.yaml", "bad.yaml"} == {each.name for each in folder.iterdir()}


def test_an_entity_without_a_chart_creates_no_store(call: Caller, folder: Path) -> None:
    ended = call("create", STORE, "lantern/1", *CHARTED)

    assert (6, True) == (ended.code, "unknown kind" in ended.err)
    assert not (folder / "lamps.db").exists()


# Damage


def test_a_kind_to_list_is_a_word_or_an_option(call: Caller, lamps: Path) -> None:
    named, optioned = (
        [line.split()[0] for line in call("ls", STORE, *words).out.splitlines()]
        for words in (("lamp",), ("--kind", "lamp"))
    )

    assert ["lamp/1", "lamp/2", "lamp/3"] == named == optioned
    assert (0, "") == (call("ls", STORE, "desk").code, call("ls", STORE, "desk").out)
    assert "lamp and desk" in call("ls", STORE, "lamp", "--kind", "desk").err


def test_verify_reports_the_first_bad_link_of_each_entity(call: Caller, lamps: Path) -> None:
    _changed(
        lamps,
        "UPDATE journal SET record = CAST(replace(record, 'press', 'prexx') AS BLOB) WHERE id = '1' AND version = 2",
    )
    _changed(lamps, "DELETE FROM journal WHERE id = '3' AND version = 3")
    ended = call("verify", STORE, *CHARTED)

    assert 8 == ended.code
    assert "✗ lamp/1  journal.chain: the journal of `lamp/1` is damaged at version 2" in ended.out
    assert "✗ lamp/3  journal.chain" in ended.out
    assert "lamp/2" not in ended.out
    assert "3 entities" in ended.out
    assert "2 corrupt" in ended.out
    assert 'hint: change nothing, and read "A journal is damaged"' in ended.err
    assert "without a secret key" not in ended.err
    assert "without a secret key" in call("verify", STORE, *CHARTED, "-v").err


def test_verify_finds_a_snapshot_that_the_journal_does_not_give(call: Caller, lamps: Path) -> None:
    _changed(
        lamps,
        "UPDATE entity SET snapshot = CAST(replace(snapshot, '[\"dark\"]', '[\"bright\"]') AS BLOB) WHERE id = '2'",
    )
    whole = call("verify", STORE, *CHARTED)
    chains = call("verify", STORE, "--chains-only")

    assert (8, 0) == (whole.code, chains.code)
    assert "lamp/2  journal.divergence" in whole.out
    assert "`configuration`" in whole.out


def test_verify_finds_one_changed_byte_in_a_folder(call: Caller, folder: Path) -> None:
    address = f"file://{folder}/kept"
    for number in (1, 2):
        call("create", address, f"lamp/{number}", *CHARTED)
        for _ in range(3):
            call("send", address, f"lamp/{number}", "press", *CHARTED)
    (journal,) = [each for each in (folder / "kept").rglob("events.log") if each.parent.name.endswith("1")]
    data = journal.read_bytes()
    second = data.index(b'"v":2')
    place = data.index(b"press", second)
    journal.write_bytes(data[:place] + b"d" + data[place + 1 :])
    ended = call("verify", address, *CHARTED)

    assert (8, True) == (ended.code, ended.out.startswith("✗ lamp/1  "))
    assert "2 entities" in ended.out
    assert "1 corrupt" in ended.out


def test_verify_without_the_revision_is_not_damage(call: Caller, lamps: Path, folder: Path) -> None:
    (folder / "newer.yaml").write_text(LAMP.replace("press: bright", "press: bright, kick: bright"))
    forget_definitions(lamps)
    ended = call("verify", STORE, "--chart", "newer.yaml", "lamp/1", "lamp/2")

    assert 7 == ended.code
    assert "? lamp/1  revision.unknown" in ended.out
    assert "2 not replayed (chart missing)" in ended.out


def test_replay_stops_at_the_first_difference(
    call: Caller, folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chart that claims to be compatible and is not: the first entry that differs is shown, and the code is 7:
    only the chart that wrote an entry can call it damaged. A store of another package keeps no definitions.
    """
    journal_only_store.install(tmp_path_factory.mktemp("plugin"), monkeypatch)
    first = LAMP.replace("kind: lamp", "kind: lamp\nrevision: 1.0.0")
    other = first.replace("revision: 1.0.0", 'revision: 2.0.0\ncompatible: ">=1 <3"').replace(
        "press: bright", "press: off"
    )
    (folder / "first.yaml").write_text(first)
    (folder / "other.yaml").write_text(other + "  off: {type: final}\n")
    url = "journals:lamps"
    call("create", url, "lamp/9", "--chart", "first.yaml")
    for _ in range(2):
        call("send", url, "lamp/9", "press", "--chart", "first.yaml")
    agreed = call("replay", url, "lamp/9", "--chart", "first.yaml", "--to", "2")
    ended = call("replay", url, "lamp/9", "--chart", "other.yaml")
    proof = call("verify", url, "lamp/9", "--chart", "other.yaml")

    assert (0, 2) == (agreed.code, agreed.out.count("✓"))
    assert (7, 1, 1) == (ended.code, ended.out.count("✓"), ended.out.count("✗"))
    assert 'differs at version 2: `to` is ["bright"], but the chart gives ["off"]' in ended.err
    assert "the journal may be intact" in ended.err
    assert (7, True) == (proof.code, "? lamp/9  revision.unknown: version 2" in proof.out)


def test_a_damaged_journal_cannot_be_printed_past_the_damage(call: Caller, lamps: Path) -> None:
    _changed(
        lamps,
        "UPDATE journal SET record = CAST(replace(record, 'press', 'prexx') AS BLOB) WHERE id = '1' AND version = 2",
    )
    ended = call("journal", STORE, "lamp/1")

    assert (8, True) == (ended.code, "damaged at version 2" in ended.err)


# For programs


def test_every_command_on_stores_prints_json(call: Caller, lamps: Path) -> None:
    documents = [
        ("create", STORE, "lamp/9", *CHARTED),
        ("send", STORE, "lamp/9", "press", *CHARTED),
        ("send", STORE, "lamp/9", "press", "--dry-run", *CHARTED),
        ("show", STORE, "lamp/9", *CHARTED),
        ("can", STORE, "lamp/9", *CHARTED),
        ("ls", STORE),
        ("db", "status", STORE),
        ("db", "upgrade", STORE),
    ]
    for words in documents:
        ended = call(*words, "--json")
        assert (0, True) == (ended.code, isinstance(json.loads(ended.out), dict)), words
    for words in (
        ("journal", STORE, "lamp/1"),
        ("replay", STORE, "lamp/1", *CHARTED),
        ("verify", STORE, *CHARTED),
    ):
        ended = call(*words, "--json")
        lines = [json.loads(line) for line in ended.out.splitlines()]

        assert (0, True) == (ended.code, len(lines) >= 3), words


def test_a_journal_is_limited_by_after_and_limit(call: Caller, lamps: Path) -> None:
    ended = call("journal", STORE, "lamp/1", "--after", "1", "--limit", "1", "--json")

    assert [2] == [json.loads(line)["version"] for line in ended.out.splitlines()]


def test_lists_are_paged_by_a_cursor(call: Caller, lamps: Path) -> None:
    found: list[str] = []
    after: list[str] = []
    for _ in range(3):
        page = json.loads(call("ls", STORE, "--kind", "lamp", "--limit", "1", *after, "--json").out)
        found += [each["entity"] for each in page["rows"]]
        after = ["--after", page["after"]] if page["after"] else []
    printed = call("ls", STORE, "--limit", "1")

    assert ["lamp/1", "lamp/2", "lamp/3"] == sorted(found)
    assert [] == after
    assert "more: --kind lamp --after" in printed.err


def test_db_status_and_upgrade_of_the_schema(call: Caller, lamps: Path) -> None:
    now = newest_schema("sqlite")
    fine = call("db", "status", STORE)
    _changed(lamps, "INSERT INTO schema_version (version, name) VALUES (?, 'later')", now + 1)
    newer = call("db", "status", STORE)
    refused = call("show", STORE, "lamp/1", *CHARTED)
    made = call("db", "upgrade", "sqlite:///fresh.db")

    assert (0, f"sqlite: schema {now}; this release uses {now}\n") == (fine.code, fine.out)
    assert (1, f"sqlite: schema {now + 1}; this release uses {now}\n") == (newer.code, newer.out)
    assert (2, True) == (refused.code, "use the release that wrote it" in refused.err)
    assert (0, f"schema 0 → {now}\n") == (made.code, made.out)


def test_db_status_shows_the_format_of_a_file_store(call: Caller, folder: Path) -> None:
    address = f"file://{folder}/kept"
    call("create", address, "lamp/1", *CHARTED)
    fine = call("db", "status", address)
    (folder / "kept" / "format.json").write_text("{")
    broken = call("db", "status", address)

    assert (0, "file: schema 1, layout A; this release uses 1\n") == (fine.code, fine.out)
    assert (8, True) == (broken.code, "format.json is not readable" in broken.err)


# People at a terminal


def test_hostile_text_in_a_store_does_not_steer_the_terminal(call: Caller, folder: Path) -> None:
    made = call("create", STORE, "lamp/evil", *CHARTED, "--key", "\u202ek")
    payload = json.dumps({"text": "\x1b[2J\x9b31m\u202e"})
    call("send", STORE, "lamp/evil", "press", payload, *CHARTED, "--principal", "\x1b[31mroot")
    printed = call("journal", STORE, "lamp/evil", "-v")

    assert 0 == made.code
    assert 0 == printed.code
    assert not any(ord(each) < 32 and each != "\n" for each in printed.out)
    assert ("\x9b" in printed.out, "\u202e" in printed.out) == (False, False)


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (-5, "0ms"),
        (0, "0ms"),
        (999, "999ms"),
        (1_500, "1s"),
        (61_500, "1m1s"),
        (3_661_000, "1h1m"),
        (90_061_000, "1d1h"),
    ],
)
def test_an_age_has_two_units_at_most(ms: int, text: str) -> None:
    assert text == age_text(ms)


def test_a_time_that_no_calendar_has_is_its_number() -> None:
    assert ("1970-01-01T00:00:00.000Z", f"{2**62} ms") == (time_text(0), time_text(2**62))


def test_check_without_a_file_means_those_of_the_project(call: Caller, folder: Path) -> None:
    bare = call("check")
    (folder / "interlock.toml").write_text('charts = ["bad.yaml", "lamps_of_mine:lamp"]\n')
    found = call("check")
    (folder / "interlock.toml").write_text('charts = ["lamps_of_mine:lamp"]\n')
    coded = call("check")

    assert [2, 1, 2] == [bare.code, found.code, coded.code]
    assert found.out.startswith("bad.yaml:")
    assert "missing argument 'FILE...'" in coded.err
