"""`interlock erase` and `interlock keyring`: what they print and do, and how they fail."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.support.cli import Caller

CUSTOMER = """\
interlock: 1
kind: customer
context: {email: {type: string, nullable: true, personal: true}}
events: {join: {payload: {email: {type: string, personal: true}}}, leave: {}}
states:
  out: {on: {join: {target: in, actions: [{assign: {email: = event.data.email}}]}}}
  in: {on: {leave: gone}}
  gone: {type: final}
"""
EMAIL = "ada.canary@example.org"
STORES = ("sqlite:///shop.db", "file:shop")
ENTITY = "customer/c-7"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Caller) -> Path:
    """A folder with a chart and a keyring."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("INTERLOCK_KEYRING", raising=False)
    (tmp_path / "customer.yaml").write_text(CUSTOMER)
    assert call("keyring", "init", "keyring.json").code == 0
    (tmp_path / "interlock.toml").write_text('charts = ["customer.yaml"]\nkeyring = "file:keyring.json"\n')
    return tmp_path


def living(call: Caller, url: str, entity: str = ENTITY) -> None:
    assert call("create", url, entity).code == 0
    assert call("send", url, entity, "join", json.dumps({"email": EMAIL})).code == 0


@pytest.mark.parametrize("url", STORES)
def test_an_entity_that_lives_is_erased_only_if_asked_for(call: Caller, url: str) -> None:
    living(call, url)
    assert EMAIL in call("show", url, ENTITY).out

    assert 0 == call("erase", url, ENTITY, "--dry-run").code
    refused = call("erase", url, ENTITY, "--reason", "a test")
    assert (1, True) == (refused.code, EMAIL in call("show", url, ENTITY).out)
    done = json.loads(call("erase", url, ENTITY, "--reason", "a test", "--live", "--json").out)

    assert (True, "final", 3) == (done["erased"], done["destroyed"], done["version"])
    shown = call("show", url, ENTITY)
    assert (False, True) == (EMAIL in shown.out, "(erased)" in shown.out)
    assert 0 == call("verify", url).code
    assert "a test" in call("journal", url, ENTITY, "--json").out


def test_one_that_has_ended_is_erased(call: Caller) -> None:
    living(call, STORES[0])
    call("send", STORES[0], ENTITY, "leave")

    assert 0 == call("erase", STORES[0], ENTITY, "--reason", "a test").code
    assert 0 == call("erase", STORES[0], ENTITY, "--reason", "again").code


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("erase", STORES[0]), 2),
        (("erase", STORES[0], ENTITY), 2),
        (("erase", STORES[0], ENTITY, "--dry-run", "--reason", "x"), 2),
        (("erase", STORES[0], ENTITY, "--reason", " "), 2),
        (("erase", STORES[0], "customer/none", "--dry-run"), 6),
        (("keyring",), 2),
        (("keyring", "init", "keyring.json"), 2),
        (("keyring", "rotate", "sqlite:///none.db"), 6),
        (("keyring", "status", STORES[0], "--keyring", "file:none.json"), 2),
    ],
)
def test_wrong_calls_are_refused(call: Caller, arguments: tuple[str, ...], code: int) -> None:
    living(call, STORES[0])

    assert code == call(*arguments).code


def test_without_a_keyring_values_are_shown_sealed_and_nothing_is_erased(call: Caller, project: Path) -> None:
    living(call, STORES[0])
    (project / "interlock.toml").write_text('charts = ["customer.yaml"]\n')

    shown = call("show", STORES[0], ENTITY)
    assert (0, False, True) == (shown.code, EMAIL in shown.out, "(sealed)" in shown.out)
    assert 7 == call("erase", STORES[0], ENTITY, "--reason", "x", "--live").code
    assert 2 == call("keyring", "status", STORES[0]).code
    warned = json.loads(call("doctor", STORES[0], "--json").out)
    assert {"warning"} == {each["status"] for each in warned["checks"] if each["name"] == "data keys"}


@pytest.mark.parametrize("url", STORES)
def test_an_epoch_ends_and_everything_stays_readable(call: Caller, url: str) -> None:
    living(call, url)

    rotated = json.loads(call("keyring", "rotate", url, "--json").out)
    assert {"epoch": 2, "rewrapped": 128, "destroyed": [1], "kept": []} | {"rewrapped": rotated["rewrapped"]} == rotated
    assert [{"epoch": 2, "keys": rotated["rewrapped"], "in_keyring": True}] == json.loads(
        call("keyring", "status", url, "--json").out
    )
    assert EMAIL in call("show", url, ENTITY).out


def test_a_lost_master_key_is_reported(call: Caller, project: Path) -> None:
    living(call, STORES[0])
    (project / "keyring.json").unlink()
    call("keyring", "init", "keyring.json")
    call("keyring", "rotate", STORES[0])  # fails: the first keys cannot be unwrapped

    assert 8 == call("show", STORES[0], ENTITY).code


@pytest.mark.parametrize("old", ["journal", "keys"])
@pytest.mark.parametrize("url", STORES)
def test_an_erasure_is_applied_again_after_a_restore(call: Caller, project: Path, url: str, old: str) -> None:
    """Whichever of the two was restored from an older copy, the other one has the erasure."""
    living(call, url)
    copies = project / "copies"
    copies.mkdir()
    names = ("shop.db.keys", "shop.keys") if old == "keys" else ("shop.db", "shop")
    places = [project / name for name in names if (project / name).exists()]
    for place in places:
        _copy(place, copies / place.name)
    assert 0 == call("erase", url, ENTITY, "--reason", "a test", "--live").code
    for place in places:
        _restore(copies / place.name, place)

    if old == "keys":  # the master key that wraps it is there: it could be read
        assert 1 == call("doctor", url).code
    restored = call("db", "restored", url, "--json")
    assert (0, [ENTITY]) == (restored.code, json.loads(restored.out)["erased"])
    assert 0 == call("doctor", url).code
    assert EMAIL not in call("show", url, ENTITY).out
    assert 0 == call("verify", url).code
    assert [] == json.loads(call("db", "restored", url, "--json").out)["erased"]


def _copy(place: Path, copy: Path) -> None:
    if place.is_dir():
        shutil.copytree(place, copy)
        return
    for suffix in ("", "-wal", "-shm"):
        source = place.with_name(place.name + suffix)
        if source.exists():
            shutil.copy(source, copy.with_name(copy.name + suffix))


def _restore(copy: Path, place: Path) -> None:
    if place.is_dir():
        shutil.rmtree(place)
        shutil.copytree(copy, place)
        return
    for suffix in ("", "-wal", "-shm"):
        place.with_name(place.name + suffix).unlink(missing_ok=True)
        source = copy.with_name(copy.name + suffix)
        if source.exists():
            shutil.copy(source, place.with_name(place.name + suffix))


@pytest.mark.parametrize("address", ['"command:touch run"', "7", '"keyring.json"'])
def test_a_project_file_runs_no_command(call: Caller, project: Path, address: str) -> None:
    """Commands that only read work in folders that are not trusted."""
    living(call, STORES[0])
    (project / "interlock.toml").write_text(f"keyring = {address}\n")

    assert 2 == call("show", STORES[0], ENTITY).code
    assert not (project / "run").exists()


def test_ids_that_are_addresses_are_reported(call: Caller) -> None:
    living(call, STORES[0], "customer/ada@example.org")

    found = json.loads(call("doctor", STORES[0], "--json").out)["checks"]

    assert ["warning"] == [each["status"] for each in found if each["name"] == "personal ids"]


def test_entities_that_were_told_are_listed_and_followed(call: Caller, project: Path) -> None:
    (project / "customer.yaml").write_text(
        CUSTOMER.replace(
            "in: {on: {leave: gone}}",
            "in: {entry: [{send: {event: told, to: partner/p-1, data: {email: = context.email}}}], on: {leave: gone}}",
        )
    )
    (project / "partner.yaml").write_text(CUSTOMER.replace("kind: customer", "kind: partner").replace("join", "told"))
    (project / "interlock.toml").write_text(
        'charts = ["customer.yaml", "partner.yaml"]\nkeyring = "file:keyring.json"\n'
    )
    living(call, STORES[0])
    call("create", STORES[0], "partner/p-1")

    dry = json.loads(call("erase", STORES[0], ENTITY, "--dry-run", "--json").out)
    assert ["partner/p-1"] == dry["targets"]
    done = json.loads(call("erase", STORES[0], ENTITY, "--reason", "x", "--live", "--follow", "--json").out)
    assert ["partner/p-1"] == [each["entity"] for each in done["followed"]]
