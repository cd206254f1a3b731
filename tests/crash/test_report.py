"""The report says that all is well only when it is."""

import pytest

from tests.crash import report
from tests.crash.disks import failing_calls
from tests.crash.simulated import mutants, sweep
from tests.crash.table import Row, Table


def test_a_clean_table_ends_with_the_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing lost, nothing doubled, every faulty store found: the last line says so, and the exit code is 0."""
    table = Table()
    table.row("kills", lambda: Row(10))
    table.control("faulty stores", ["one", "two"], lambda name: True)

    assert 0 == table.foot()
    assert "torture: 0 lost, 0 duplicated" == capsys.readouterr().out.splitlines()[-1]


@pytest.mark.parametrize(
    ("finding", "verdict"),
    [
        ("lost: k1 at version 1", "torture: 1 lost, 0 duplicated"),
        ("write #3 EIO: doubled: k1", "torture: 0 lost, 1 duplicated"),
        ("phantom: k1", "torture: 0 lost, 0 duplicated, 1 other failures"),
    ],
)
def test_a_finding_fails_the_run(finding: str, verdict: str, capsys: pytest.CaptureFixture[str]) -> None:
    table = Table()
    table.row("kills", lambda: Row(10, [finding]))

    assert 1 == table.foot()
    assert [f"FAILED kills: {finding}", verdict] == capsys.readouterr().out.splitlines()[-2:]


def test_a_faulty_store_that_is_not_found_fails_the_run() -> None:
    table = Table()
    table.control("faulty stores", ["one", "two"], lambda name: name == "one")

    assert (1, ["faulty stores: `two` was not found"]) == (table.foot(), table.failures)


def test_a_fault_that_never_struck_fails_the_run() -> None:
    table = Table()
    table.row("kills", lambda: Row(0))

    assert 1 == table.foot()


def test_a_row_that_cannot_run_here_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table()
    table.row("power cuts", lambda: "mounting needs root")

    assert (0, ["power cuts"]) == (table.foot(), table.skipped)
    assert "mounting needs root" in capsys.readouterr().out


def test_every_registered_family_and_mutant_is_in_the_report() -> None:
    families = [value for name, value in vars(sweep).items() if name.startswith("FAMILIES")]
    faulty = [value for name, value in vars(mutants).items() if name.startswith("SWEPT")]

    assert families == [each for _, each, _ in report._subjects()]
    assert faulty == [each for _, _, each in report._subjects()]
    assert failing_calls.LIVES
