"""Commands on stores with several tenants: each archives to its own folder and verifies only its own entities."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from urllib.parse import quote

import pytest

import interlock
from tests.support.cli import Caller
from tests.support.postgres_server import store_or_skip

JOB = """\
interlock: 1
kind: job
revision: 1.0.0
states:
  open: {on: {end: over}, expect: {within: forever}}
  over: {type: final}
"""
WITH_CHART = ("--chart", "job.yaml")
ODD = "Ä. & Co/2026-11?#%"
"""A tenant whose name needs encoding in an address, a folder and a shell."""
LONG = "ü" * 100
"""A tenant whose encoded name is too long for a folder."""


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, folder: Path) -> str:
    """An address without the tenant's name, of a store with jobs of two tenants, which have the same ids."""
    (folder / "job.yaml").write_text(JOB, encoding="utf-8")
    made = "sqlite:///jobs.db?tenant=" if request.param == "sqlite" else f"{store_or_skip()}&tenant="
    _fill(made, "acme")
    _fill(made, "umbrella", count=1)
    return made


def _fill(place: str, tenant: str, *, count: int = 2) -> None:
    with interlock.open(place + quote(tenant, safe=""), charts=[interlock.loads(JOB)], work=False).blocking() as jobs:
        for number in range(1, count + 1):
            jobs.create(f"job/{number}")
            jobs.send(f"job/{number}", "end")


def _archive(call: Caller, url: str, *more: str) -> int:
    words = ("--kind", "job", "--state", "over", "--older", "0ms", "--to", "file:shelf", *WITH_CHART, *more)
    return call("archive", url, *words).code


def _entries(call: Caller, url: str) -> tuple[int, int]:
    """Return the exit code of `verify`, and how many entries it verified."""
    ended = call("verify", url, *WITH_CHART)
    return ended.code, int(re.findall(r"(\d+) entr", ended.out)[0])


def test_each_tenant_has_an_archive_of_its_own(call: Caller, folder: Path, place: str) -> None:
    codes = [_archive(call, place + each) for each in ("acme", "umbrella")]
    (acme,) = (folder / "shelf" / "tenant-acme").iterdir()
    (umbrella,) = (folder / "shelf" / "tenant-umbrella").iterdir()

    assert [0, 0] == codes
    assert [(0, 4), (0, 2)] == [_entries(call, f"file:{each.relative_to(folder)}") for each in (acme, umbrella)]
    assert [6, 0] == [call("verify", f"file:{each}", "job/2", *WITH_CHART).code for each in (umbrella, acme)]


@pytest.mark.parametrize("tenant", [ODD, LONG], ids=["odd", "long"])
def test_the_archive_url_that_verify_prints_can_be_used(call: Caller, folder: Path, place: str, tenant: str) -> None:
    url = place + quote(tenant, safe="")
    _fill(place, tenant)
    first = call("journal", url, "job/1").out

    assert 0 == _archive(call, url)
    printed = call("journal", url, "job/1")
    assert 6 == printed.code
    pasted = shlex.split(printed.err.rpartition("interlock ")[2])
    assert (0, first) == ((again := call(*pasted)).code, again.out)
    looked = call("verify", url, *WITH_CHART)
    assert "0 corrupt, 2 archived\n  2 archived, not verified: interlock verify file:///" in looked.out
    pasted = shlex.split(looked.out.rpartition("interlock ")[2])
    assert (0, "2 entities, 4 entries, chains and replay: 0 corrupt\n") == (
        (proven := call(*pasted, *WITH_CHART)).code,
        proven.out,
    )


def test_a_proof_names_the_archive_for_programs(call: Caller, folder: Path, place: str) -> None:
    _archive(call, f"{place}umbrella")
    printed = json.loads(call("verify", f"{place}umbrella", "--json", *WITH_CHART).out)
    (month,) = (folder / "shelf" / "tenant-umbrella").iterdir()

    assert month.as_uri() == printed["archive"]


def test_a_dry_run_of_archive_creates_no_folder(call: Caller, folder: Path, place: str) -> None:
    assert 0 == _archive(call, f"{place}acme", "--dry-run")
    assert not (folder / "shelf").exists()


def test_a_folder_of_another_tenant_gets_no_journal(call: Caller, folder: Path, place: str) -> None:
    _archive(call, f"{place}acme")
    (month,) = (folder / "shelf" / "tenant-acme").iterdir()
    (folder / "shelf" / "tenant-umbrella").mkdir()
    month.rename(folder / "shelf" / "tenant-umbrella" / month.name)

    assert 2 == _archive(call, f"{place}umbrella")
    assert (0, 2) == _entries(call, f"{place}umbrella")


@pytest.mark.parametrize(
    ("tenant", "printed"),
    [
        ("", "the default tenant has no entities in this store; 2 others have: acme, umbrella"),
        ("acmee", "tenant `acmee` has no entities in this store; 2 others have: acme, umbrella"),
    ],
)
def test_an_empty_tenant_is_reported_if_others_have_entities(
    call: Caller, place: str, tenant: str, printed: str
) -> None:
    proven = call("verify", place + tenant, *WITH_CHART)
    listed = [call("ls", place + tenant, *more) for more in ((), ("--json",), ("-q",))]
    looked = json.loads(call("doctor", place + tenant, "--json", *WITH_CHART).out)
    tenants = [each for each in looked["checks"] if each["name"] == "tenant"]

    assert (6, "") == (proven.code, proven.out)
    assert printed in proven.err
    assert [0, 0, 0] == [each.code for each in listed]
    assert [True, True, True] == [printed in each.err for each in listed]
    assert [("warning", printed)] == [(each["status"], each["detail"]) for each in tenants]


def test_an_empty_tenant_suggests_a_similar_name_or_the_option(call: Caller, place: str) -> None:
    near, far = (call("verify", place + each, *WITH_CHART).err for each in ("acmee", ""))

    assert 'did you mean "acme"?' in near
    assert "name the tenant in the URL, ?tenant=acme" in far


def test_of_many_tenants_some_are_named(call: Caller, place: str) -> None:
    for each in ("", "b", "c", "d", "e"):
        _fill(place, each, count=1)
    printed = call("verify", f"{place}nobody", *WITH_CHART).err

    assert "; 7 others have: the default tenant, acme, b, c, d, …" in printed


def test_a_tenant_with_entities_gets_no_hint_about_others(call: Caller, place: str) -> None:
    listed = call("ls", f"{place}acme", "--state", "open")
    looked = json.loads(call("doctor", f"{place}acme", "--json", *WITH_CHART).out)

    assert (0, False) == (listed.code, "umbrella" in listed.err)
    assert [] == [each for each in looked["checks"] if each["name"] == "tenant"]
    assert (0, 4) == _entries(call, f"{place}acme")


def test_tenants_are_listed_as_encoded_in_a_url(call: Caller, place: str) -> None:
    for each in ("", ODD):
        _fill(place, each, count=1)
    lines = call("db", "tenants", f"{place}whoever").out.split("\n")[:-1]

    assert ["", "acme", "umbrella", ODD] == json.loads(call("db", "tenants", place, "--json").out)
    assert ["", "acme", "umbrella", quote(ODD, safe="")] == lines
    assert [(0, 2), (0, 4), (0, 2), (0, 2)] == [_entries(call, place + each) for each in lines]


def test_a_place_that_is_not_there_has_no_tenants(call: Caller, folder: Path) -> None:
    assert (6, 6) == (call("db", "tenants", "sqlite:///no.db").code, call("db", "tenants", "file:no").code)
    assert not (folder / "no.db").exists()


def test_a_store_without_tenants_is_refused(call: Caller, folder: Path) -> None:
    assert 2 == call("db", "tenants", "memory:").code


def test_the_folder_of_an_archive_names_a_month_below_it(call: Caller, folder: Path, place: str) -> None:
    _archive(call, f"{place}acme")
    (month,) = (folder / "shelf" / "tenant-acme").iterdir()
    ended = call("verify", "file:shelf", *WITH_CHART)

    assert (6, True) == (ended.code, f"such as {month.as_uri()}" in ended.err)


def test_a_folder_of_a_tenant_is_archived_as_that_tenant_s(call: Caller, folder: Path) -> None:
    (folder / "job.yaml").write_text(JOB, encoding="utf-8")
    _fill("file:jobs?tenant=", "acme")

    assert 0 == _archive(call, "file:jobs")
    (month,) = (folder / "shelf" / "tenant-acme").iterdir()
    assert (0, 4) == _entries(call, f"file:{month}")
