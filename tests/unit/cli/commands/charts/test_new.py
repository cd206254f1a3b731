"""`interlock new`: a project whose test passes, and that never overwrites anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from interlock.cli.commands.charts import new
from tests.support.cli import Caller


def test_every_command_works_in_the_project_without_options(
    call: Caller, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call("new", "shop")
    monkeypatch.chdir(folder / "shop")
    made = call("create", "order/1", "--context", '{"amount": 4990}')
    sent = call("send", "order/1", "order.placed")

    assert (0, 0) == (made.code, sent.code), made.err + sent.err
    assert "order/1 order.placed applied: charge_pending" in sent.out
    assert "order " in call("top").out


def test_nothing_is_overwritten(call: Caller, folder: Path) -> None:
    (folder / "full").mkdir()
    (folder / "full" / "mine.txt").write_text("mine", encoding="utf-8")
    (folder / "link").symlink_to("nowhere")
    before = sorted(each.name for each in folder.iterdir())
    codes = [call("new", name).code for name in ("full", "lamp.yaml", "link")]

    assert [2, 2, 2] == codes
    assert before == sorted(each.name for each in folder.iterdir())
    assert "mine" == (folder / "full" / "mine.txt").read_text(encoding="utf-8")


def test_an_empty_folder_is_filled(call: Caller, folder: Path) -> None:
    (folder / "shop").mkdir()

    assert 0 == call("new", "shop").code
    assert (folder / "shop" / "order.interlock.yaml").is_file()


@pytest.mark.parametrize("name", ["1st", "a b", "_x", "ünder", "a" * 64, ".", "..", "a.b", "-x"])
def test_a_name_that_no_chart_can_have_is_refused(call: Caller, folder: Path, name: str) -> None:
    before = sorted(folder.iterdir())

    assert 2 == call("new", "--", name).code
    assert before == sorted(folder.iterdir())


def test_a_missing_store_is_not_found(call: Caller, folder: Path) -> None:
    ended = call("new", "none/shop")

    assert (6, False) == (ended.code, (folder / "none").exists())


def test_a_failure_in_the_middle_leaves_nothing(call: Caller, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sorted(folder.iterdir())

    def full(made: Path, template: str, name: str) -> list[str]:
        (made / "half").write_text("", encoding="utf-8")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(new, "_fill", full)

    assert 7 == call("new", "shop").code
    assert before == sorted(folder.iterdir())
