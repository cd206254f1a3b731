"""Commands on a chart that waits, ends and is archived: what is shown of it, and what stays when it must."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.cli import Caller

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


def test_show_lists_timers_and_invokes(call: Caller, orders: Path) -> None:
    printed = call("show", "order/1").out

    assert "● refund_pending" in printed
    assert "  invoke   refund  key order/1/3/0\n" in printed


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_a_key_that_another_event_has_is_a_wrong_call(call: Caller, orders: Path, more: tuple[str, ...]) -> None:
    call("create", "door/2", "--key", "k")
    ended = call("send", "door/2", "opened", "--key", "k", *more)

    assert 2 == ended.code
    assert "the key `k` of `door/2` belongs to its creation, version 1, not to `opened`" in ended.err
    assert "one key per event" in ended.err


def test_an_ended_entity_accepts_nothing(call: Caller, orders: Path) -> None:
    assert call("can", "order/2").out.endswith("  ended; no events accepted\n")
    assert "  ended    done\n" in call("show", "order/2").out


def test_an_entry_without_a_state_change_shows_the_state(call: Caller, orders: Path, folder: Path) -> None:
    (folder / "note.yaml").write_text(
        "interlock: 1\nkind: note\ncontext: {n: {type: integer, default: 0}}\n"
        'states: {a: {on: {add: {actions: [{assign: {n: "= context.n + 1"}}]}}}}\n'
    )
    call("create", "note/1", "--chart", "note.yaml")
    call("send", "note/1", "add", "--chart", "note.yaml")

    assert "add  no state change (a" in call("journal", "note/1").out
    assert "context  n: 0 → 1" in call("replay", "note/1", "--chart", "note.yaml").out


def test_a_limit_names_the_kinds_it_excluded(call: Caller, orders: Path) -> None:
    printed = call("ls", "--limit", "1")
    found = json.loads(call("ls", "--limit", "1", "--json").out)

    assert "more: --kind order" in printed.err
    assert ["order"] == found["more_kinds"]


def test_a_corrupt_journal_is_not_archived(call: Caller, orders: Path, folder: Path) -> None:
    with closing(sqlite3.connect(orders)) as connection, connection:
        connection.execute("UPDATE journal SET head = 'x' WHERE id = '2' AND version = 2")
        connection.execute("UPDATE entity SET head = 'x' WHERE id = '2'")
    code, out, _ = _archive(call)

    assert (1, True) == (code, out.startswith("✗ order/2  skipped: "))
    assert "0 archived, 1 skipped" in out
    assert [] == list((folder / "shelf").iterdir())


def test_an_archive_for_programs(call: Caller, orders: Path) -> None:
    runs = [_archive(call, "--json", *more) for more in (("--dry-run",), (), ())]

    assert ["would", "yes", "before"] == [json.loads(out)["archived"] for _, out, _ in runs]
    assert [0, 0, 0] == [code for code, _, _ in runs]


def test_an_archive_below_a_missing_folder_is_not_created(call: Caller, orders: Path) -> None:
    ended = call("archive", "--kind", "order", "--state", "shipped", "--older", "1d", "--to", "file:no/such/shelf")

    assert (6, True) == (ended.code, "does not exist" in ended.err)


def test_a_store_without_entities_is_sound(call: Caller, orders: Path) -> None:
    call("db", "upgrade", "sqlite:///empty.db")
    ended = call("verify", "sqlite:///empty.db")

    assert (0, "0 entities, 0 entries, chains and replay: 0 corrupt\n") == (ended.code, ended.out)


def test_a_file_that_is_no_database_has_no_schema(call: Caller, orders: Path, folder: Path) -> None:
    (folder / "letter.db").write_bytes(b"dear aunt, " * 500)
    ended = call("db", "status", "sqlite:///letter.db")

    assert (8, True) == (ended.code, "letter.db" in ended.err)
