"""What each command does to a store: whether it reads or changes it, whom it records, and that it keeps to its tenant.

The command line has no roles: a user who may open the store may do everything (`docs/guide/production.md`). So the
table says what a user of the files can do, and whether it leaves a trace. After an intended change run
`pytest tests/scenarios/rights --rewrite`, and review the diff of `commands.txt`. A new command needs a row in
`requests.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from interlock.cli.main import commands
from tests.scenarios.rights import world
from tests.scenarios.rights.requests import COMMANDS, STORE
from tests.support.cli import Caller

TABLE = Path(__file__).with_name("commands.txt")
BEFORE = {
    "audit checkpoint": ("audit key",),
    "keyring rotate": ("keyring init",),
    "keyring status": ("keyring init",),
    "keys list": ("keys create",),
    "keys revoke": ("keys create",),
    "keys rotate": ("keys create",),
    "bundle import": ("bundle export",),
    "migrate pause": ("migrate apply",),
    "migrate resume": ("migrate apply",),
    "migrate undo": ("migrate apply",),
    "rollout set": ("db definitions add",),
    "rollout advance": ("db definitions add", "rollout set"),
    "rollout abort": ("db definitions add", "rollout set"),
    "rollout status": ("db definitions add", "rollout set"),
}
"""Commands that another one must precede."""

ABOUT_ALL_TENANTS = {"db tenants"}
"""Commands that name the other tenants: an operator of the database asks for them."""


def leaves() -> Iterator[tuple[str, click.Command]]:
    """Every command, and every group that does something without a subcommand."""
    context = click.Context(commands)
    waiting: list[tuple[str, click.Command]] = [("", commands)]
    while waiting:
        name, command = waiting.pop()
        if not isinstance(command, click.Group):
            yield name, command
            continue
        if name and command.invoke_without_command:
            yield name, command
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            assert found is not None
            waiting.append((f"{name} {each}".strip(), found))


def options(command: click.Command) -> set[str]:
    """The options of a command."""
    return {text for each in command.params for text in each.opts}


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with a store of two tenants, and with an order chart."""
    monkeypatch.chdir(tmp_path)
    for name in ("NO_COLOR", "FORCE_COLOR", "INTERLOCK_STORE", "INTERLOCK_CHARTS"):
        monkeypatch.delenv(name, raising=False)
    world.build(tmp_path)
    return tmp_path


def run(call: Caller, name: str, folder: Path) -> tuple[int, str]:
    """Run a command on its own tenant. Return its code, and what it printed."""
    given = COMMANDS[name]
    assert not isinstance(given, str)
    ended = call(*name.split(), *(world.address(folder, "acme") if word == STORE else word for word in given))
    return ended.code, ended.out + ended.err


def test_every_command_has_a_row() -> None:
    """The row of a new command is missing: add it to `requests.py`, then run with --rewrite and review the diff."""
    assert sorted(name for name, _ in leaves()) == sorted(COMMANDS)


RUNNABLE = [name for name, given in COMMANDS.items() if not isinstance(given, str)]


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNNABLE)
def test_a_command_keeps_to_its_tenant_and_to_its_row(name: str, call: Caller, shared: Path, rewrite: bool) -> None:
    """It shows and changes nothing of the other tenant, and does to its own what the table says."""
    other = asyncio.run(world.contents(shared, world.SECRET))
    for each in BEFORE.get(name, ()):
        run(call, each, shared)
    before = world.rows(shared)
    code, printed = run(call, name, shared)
    row = line(name, code, changed=before != world.rows(shared), command=dict(leaves())[name])

    assert other == asyncio.run(world.contents(shared, world.SECRET))
    assert (name in ABOUT_ALL_TENANTS) == (world.SECRET in printed), printed
    assert code != 70, printed
    if rewrite:
        write(name, row)
    else:
        assert row in TABLE.read_text(encoding="utf-8").splitlines(), printed


def line(name: str, code: int, *, changed: bool, command: click.Command) -> str:
    """A line of the table."""
    given = COMMANDS[name]
    effect = "changes" if changed else "reads" if STORE in given else "no store"
    who = " ".join(sorted(options(command) & {"--principal", "--reason", "--why"})) or "-"
    return f"{name:24}{effect:10}{who:24}exit {code}"


def write(name: str, row: str) -> None:
    """Replace the line of a command."""
    lines = TABLE.read_text(encoding="utf-8").splitlines() if TABLE.exists() else []
    kept = [each for each in lines if each[:24].strip() != name]
    TABLE.write_text("\n".join(sorted([*kept, row])) + "\n", encoding="utf-8")


def test_the_table_has_a_line_for_each_command_that_can_be_run() -> None:
    names = [each[:24].strip() for each in TABLE.read_text(encoding="utf-8").splitlines()]

    assert sorted(RUNNABLE) == names


def test_commands_that_are_not_run_say_why() -> None:
    assert all(given for given in COMMANDS.values() if isinstance(given, str))
