"""Every command that reads for a principal is compared in two worlds: in one of them the account is frozen.

The commands come from the parser: those with the option of a reader, and `can`.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import click
import pytest

import interlock
from interlock.cli.main import commands
from interlock.testing.clock import VirtualClock
from tests.support.accounts import ACCOUNT, ADA, EVE, account
from tests.support.cli import Caller

TEXT = ACCOUNT.replace('note: "= event.data.text"', 'iban: "= event.data.text"')
ARGUMENTS = {
    "show": (("account/1",), ("account/1", "--at", "1"), ("account/1", "--at", "3")),
    "can": (("account/1",),),
    "journal": (("account/1",), ("account/1", "--after", "1"), ("account/1", "--limit", "1")),
    "top": (("account", "--once"),),
    "ls": tuple(("account", *more) for more in ((), ("--state", "active"), ("--state", "frozen"), ("--older", "1m"))),
}
"""What each command is asked; a new command for readers needs a line."""

AGES = re.compile(r'\d+(\.\d+)?(ms|s|m|h|d)( ago)?|"now_ms": \d+')


def reading_commands() -> set[str]:
    """Return the commands that read for a principal."""
    found = {"can"}
    context = click.Context(commands)
    for name in commands.list_commands(context):
        command = commands.get_command(context, name)
        assert command is not None
        helps = [str(getattr(each, "help", "")) for each in command.params if each.name == "principal"]
        found |= {name} if any(each.startswith("Read as") for each in helps) else set()
    return found


async def world(folder: Path, *, is_frozen: bool, ends: bool) -> None:
    """Create an account, freeze it, and deposit into it once it is not frozen."""
    clock = VirtualClock(1_000_000)
    async with interlock.open(f"sqlite:///{folder}/a.db", charts=[account(TEXT)], clock=clock) as runtime:
        await runtime.create("account/1", principal=ADA)
        await runtime.send("account/1", "deposited", {"amount": 5}, key="d-1", principal=ADA)
        if is_frozen:
            clock.time_ms += 5_000
            for event, payload in (("frozen", None), ("noted", {"text": "x"}), ("unfrozen", None)):
                if event != "unfrozen" or ends:
                    (await runtime.send("account/1", event, payload, principal=EVE)).expect()
        clock.time_ms = 1_060_000
        if ends:
            await runtime.send("account/1", "deposited", {"amount": 5}, key="d-2", principal=ADA)


def outputs(call: Caller, *, principal: str) -> dict[str, tuple[int, str, str]]:
    """Return what the commands print for a principal, without ages."""
    found = {}
    for name in sorted(reading_commands()):
        for arguments in ARGUMENTS[name]:
            for more in ((), ("--json",), ("-v",)):
                ended = call(name, *arguments, "--principal", principal, *more)
                found[f"{name} {arguments} {more}"] = (ended.code, AGES.sub("-", ended.out), AGES.sub("-", ended.err))
    return found


@pytest.mark.parametrize("ends", [True, False])
def test_no_command_shows_a_reader_whether_the_account_is_or_was_frozen(
    tmp_path: Path, call: Caller, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    worlds, seeing = [], {}
    for is_frozen in (False, True):
        folder = tmp_path / str(is_frozen)
        folder.mkdir()
        (folder / "account.yaml").write_text(TEXT, encoding="utf-8")
        asyncio.run(world(folder, is_frozen=is_frozen, ends=ends))
        monkeypatch.chdir(folder)
        monkeypatch.setenv("INTERLOCK_STORE", "sqlite:///a.db")
        monkeypatch.setenv("INTERLOCK_CHARTS", "account.yaml")
        worlds.append(outputs(call, principal="ada:customer"))
        seeing = outputs(call, principal="eve:fraud")

    for name, text in worlds[0].items():
        assert text == worlds[1][name], name
    assert set(ARGUMENTS) == reading_commands()
    assert '"active"' in worlds[0]["show ('account/1',) ('--json',)"][1]
    assert worlds[1] != seeing
    assert "noted" in seeing["journal ('account/1',) ()"][1]
