"""Commands on a chart that waits, ends and is archived: what is shown of it, and what stays when it must."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.unit.cli.calls import Caller

EXAMPLES = Path(__file__).parents[3] / "examples"
STORE = "sqlite:///orders.db"


@pytest.fixture
def orders(call: Caller, folder: Path) -> Path:
    """A store with an order that is being refunded, one that was shipped, and a door."""
    shutil.copytree(EXAMPLES, folder / "examples")
    names = ("order", "door")
    charts = ", ".join(f'"examples/{name}.interlock.yaml"' for name in names)
    (folder / "interlock.toml").write_text(f'store = "{STORE}"\ncharts = [{charts}]\n')
    for number in (1, 2):
        call("create", f"order/{number}", "--context", '{"amount": 5}')
        call("send", f"order/{number}", "payment.confirmed", '{"id": "p"}', "--principal", "bank:payments")
    call("send", "order/1", "order.cancelled", "--principal", "ada:customer")
    call("send", "order/2", "parcel.shipped", "--principal", "hall:warehouse")
    call("create", "door/1")
    return folder / "orders.db"


def _archive(call: Caller, *more: str) -> tuple[int, str, str]:
    words = ("archive", "--kind", "order", "--state", "shipped", "--older", "0ms", "--to", "file:shelf", *more)
    ended = call(*words)
    return ended.code, ended.out, ended.err


def test_what_an_entity_waits_for_is_shown(call: Caller, orders: Path) -> None:
    """A pending invoke with the key that its handler sees."""
    told = call("show", "order/1").out

    assert "● refund_pending" in told
    assert "  invoke   refund  key order/1/3/0\n" in told


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_a_key_that_another_event_has_is_a_wrong_call(call: Caller, orders: Path, more: tuple[str, ...]) -> None:
    """2, as for any call to mend; the message says whose key it is, and the hint what to do."""
    call("create", "door/2", "--key", "k")
    ended = call("send", "door/2", "opened", "--key", "k", *more)

    assert 2 == ended.code
    assert "the key `k` of `door/2` belongs to its creation, version 1, not to `opened`" in ended.err
    assert "one key per event" in ended.err


def test_an_ended_entity_accepts_nothing(call: Caller, orders: Path) -> None:
    """And says so, instead of a list of refusals."""
    assert call("can", "order/2").out.endswith("  ended; no events accepted\n")
    assert "  ended    done\n" in call("show", "order/2").out


def test_an_entry_that_changes_no_state_says_where_it_stays(call: Caller, orders: Path, folder: Path) -> None:
    """An event that only assigns is an entry too."""
    (folder / "note.yaml").write_text(
        "interlock: 1\nkind: note\ncontext: {n: {type: integer, default: 0}}\n"
        'states: {a: {on: {add: {actions: [{assign: {n: "= context.n + 1"}}]}}}}\n'
    )
    call("create", "note/1", "--chart", "note.yaml")
    call("send", "note/1", "add", "--chart", "note.yaml")

    assert "add  no state change (a" in call("journal", "note/1").out
    assert "context  n: 0 → 1" in call("replay", "note/1", "--chart", "note.yaml").out


def test_a_limit_says_which_kinds_it_did_not_reach(call: Caller, orders: Path) -> None:
    """A list over all kinds that was cut is not taken for the whole."""
    told = call("ls", "--limit", "1")
    found = json.loads(call("ls", "--limit", "1", "--json").out)

    assert "more: --kind order" in told.err
    assert ["order"] == found["more_kinds"]


def test_a_damaged_journal_is_not_archived_away(call: Caller, orders: Path, folder: Path) -> None:
    """It stays where a person can look at it; the others go, and the code tells."""
    with closing(sqlite3.connect(orders)) as connection, connection:
        connection.execute("UPDATE journal SET head = 'x' WHERE id = '2' AND version = 2")
        connection.execute("UPDATE entity SET head = 'x' WHERE id = '2'")
    code, out, _ = _archive(call)

    assert (1, True) == (code, out.startswith("✗ order/2  skipped: "))
    assert "0 archived, 1 skipped" in out
    assert [] == list((folder / "shelf").iterdir())


def test_an_archive_for_programs(call: Caller, orders: Path) -> None:
    """One object to a line: what would go, what went, what had gone."""
    runs = [_archive(call, "--json", *more) for more in (("--dry-run",), (), ())]

    assert ["would", "yes", "before"] == [json.loads(out)["archived"] for _, out, _ in runs]
    assert [0, 0, 0] == [code for code, _, _ in runs]


def test_an_archive_below_a_folder_that_is_not_there_is_not_made(call: Caller, orders: Path) -> None:
    """A typing error in the path must not become a place that nobody backs up."""
    ended = call("archive", "--kind", "order", "--state", "shipped", "--older", "1d", "--to", "file:no/such/shelf")

    assert (6, True) == (ended.code, "does not exist" in ended.err)


def test_a_store_without_entities_is_sound(call: Caller, orders: Path) -> None:
    """Nothing is proven, and nothing is wrong."""
    call("db", "upgrade", "sqlite:///empty.db")
    ended = call("verify", "sqlite:///empty.db")

    assert (0, "0 entities, 0 entries, chains and replay: 0 corrupt\n") == (ended.code, ended.out)


def test_a_file_that_is_no_database_has_no_schema(call: Caller, orders: Path, folder: Path) -> None:
    """Told as damage, with the file's name."""
    (folder / "letter.db").write_bytes(b"dear aunt, " * 500)
    ended = call("db", "status", "sqlite:///letter.db")

    assert (8, True) == (ended.code, "letter.db" in ended.err)
