"""`interlock audit verify`: every tenant, what checkpoints still cover, and how damage is shown."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.cli import Caller

ORDER = """\
interlock: 1
kind: order
events: {pay: {roles: [clerk]}}
create: {roles: [clerk]}
states: {unpaid: {on: {pay: paid}}, paid: {type: final}}
"""
URL = "sqlite:///shop.db"
CLERK = ("--principal", "ada:clerk")


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Caller) -> Path:
    """A folder with a chart, and a database with two tenants: each has an order, and two refused events."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "order.yaml").write_text(ORDER)
    (tmp_path / "interlock.toml").write_text('charts = ["order.yaml"]\n')
    for tenant in ("", "?tenant=acme"):
        assert call("create", f"{URL}{tenant}", "order/1", *CLERK).code == 0
        for _ in range(2):
            assert call("send", f"{URL}{tenant}", "order/1", "pay", "--principal", "eve:other").code != 0
    return tmp_path


@pytest.mark.parametrize("reason", ["=1+1", "+1", "-1", "@SUM(1)", "＝1", '=1,"x"\n@y'])  # noqa: RUF001 - a wide form
def test_a_spreadsheet_runs_no_field_of_the_csv_export_as_a_formula(call: Caller, reason: str) -> None:
    assert call("send", URL, "order/1", "pay", *CLERK, "--reason", reason).code == 0
    lines = list(csv.DictReader(io.StringIO(call("audit", "export", URL, "--format", "csv").out)))
    rows = [json.loads(each) for each in call("audit", "export", URL).out.splitlines()]

    assert ["'" + reason.replace("\n", "\\n")] == [
        each["reason"] for each in lines if each["event"] == "pay" and each["outcome"] == "applied"
    ]
    assert [reason] == [each["reason"] for each in rows if each["event"] == "pay" and each["outcome"] == "applied"]


def damage(statement: str) -> None:
    with closing(sqlite3.connect("shop.db")) as connection, connection:
        for trigger in ("audit_no_update", "audit_no_delete"):
            connection.execute(f"DROP TRIGGER {trigger}")
        connection.execute(statement)


def test_damage_of_one_tenant_does_not_stop_the_others(call: Caller) -> None:
    """A tenant whose entities were all deleted is verified, too: it has rows of the audit."""
    whole = call("audit", "verify", URL, "--all-tenants", "--json")
    damage("DELETE FROM audit WHERE tenant = '' AND sequence = 1")
    found = call("audit", "verify", URL, "--all-tenants", "--json")
    one = call("audit", "verify", f"{URL}?tenant=acme", "--json")
    shown = call("audit", "verify", URL, "--all-tenants")
    damage_acme = json.loads(found.out)["acme"]

    assert (0, 8, 0, 8) == (whole.code, found.code, one.code, shown.code)
    assert {"": 0, "acme": 0} == {tenant: each["found"] for tenant, each in json.loads(whole.out).items()}
    assert [["audit.missing", 1]] == [[each["code"], each["number"]] for each in json.loads(found.out)[""]["problems"]]
    assert damage_acme == json.loads(one.out)
    assert (2, 0) == (damage_acme["rows"], damage_acme["found"])
    assert shown.out.index("audit.missing") < shown.out.index("tenant acme")


def test_a_tenant_without_entities_is_verified(call: Caller) -> None:
    assert call("create", f"{URL}?tenant=late", "order/1", "--principal", "eve:other").code != 0
    found = json.loads(call("audit", "verify", URL, "--all-tenants", "--json").out)

    assert {"": 2, "acme": 2, "late": 1} == {tenant: each["rows"] for tenant, each in found.items()}


def test_what_a_checkpoint_covers_is_shown(call: Caller) -> None:
    """After a prune, it covers the entities that are left; nothing is damaged."""
    assert call("send", URL, "order/1", "pay", *CLERK).code == 0
    assert call("create", URL, "order/2", *CLERK).code == 0
    public = call("audit", "key", "audit.pem").out.strip()
    assert call("audit", "checkpoint", URL, "--key", "audit.pem", "--publish", "published.jsonl").code == 0
    assert call("prune", URL, "--kind", "order", "--older", "1ms").code == 0
    words = ("--public-key", public, "--anchors", "published.jsonl")
    shown = call("audit", "verify", URL, *words)
    found = json.loads(call("audit", "verify", URL, *words, "--json").out)
    every = call("audit", "verify", URL, *words, "--all-tenants")

    assert (0, 0) == (shown.code, every.code)  # the published checkpoint is of one of the tenants
    assert "checkpoint 1 covers 1 of 2 entities (1 pruned)" in shown.out
    (cover,) = found["covers"]
    assert (1, True, 2, 1, 1) == tuple(cover[each] for each in ("number", "holds", "entities", "kept", "pruned"))
    assert (1, 0) == (found["pruned"], found["found"])
    assert found["proven_ms"] == cover["time_ms"]


def test_records_of_retention_are_not_pruned(call: Caller) -> None:
    refused = call("prune", URL, "--kind", "interlock-retention", "--older", "1d")

    assert 2 == refused.code
    assert "retention" in refused.err
