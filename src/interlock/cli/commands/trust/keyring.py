"""`interlock keyring`: create a keyring, end an epoch, and show the epochs of a store."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import TypeVar

import click

from interlock.assemble.vaults import open_vault
from interlock.cli import exit_codes
from interlock.cli.options import common, example, json_option, pass_terminal, words
from interlock.cli.output.terminal import Terminal
from interlock.cli.output.values import json_text
from interlock.cli.project import default_keyring, split_words
from interlock.cli.session import check_exists, run
from interlock.errors import UsageError
from interlock.ports.clock import SystemClock
from interlock.ports.threads import in_thread
from interlock.ports.trust.data_keys import DataKeys
from interlock.ports.trust.keyring import KEYRING_VARIABLE, Keyring
from interlock.runtime.key_rotation import rotate_epoch
from interlock.stores.registry import open_store as open_store_url
from interlock.trust.keyrings import FileKeyring

T = TypeVar("T")

_KEYRING = click.option(
    "--keyring",
    metavar="ADDRESS",
    help=f"file:PATH, env:NAME or command:LINE (default: {KEYRING_VARIABLE}, then `keyring` in interlock.toml).",
)


@example(
    "interlock keyring init keyring.json",
    "interlock keyring rotate sqlite:///shop.db",
)
@click.group(invoke_without_command=True)
@common
@click.pass_context
def keyring(context: click.Context) -> None:
    """A keyring contains master keys, one for each epoch. They encrypt (wrap) the data keys of the entities."""
    if context.invoked_subcommand is None:
        raise click.UsageError("missing command: init, rotate or status")


@example("interlock keyring init keyring.json")
@keyring.command
@click.argument("path")
@common
@pass_terminal
def init(terminal: Terminal, path: str) -> int:
    """Writes the first master key to a new file with mode 600.

    Keep the file apart from the store and its backups: both together are enough to read all personal data. If it is
    lost, the personal data is lost, too.
    """
    FileKeyring.create(path)
    terminal.report((path, "bold"), " created")
    terminal.message(f"use it: export {KEYRING_VARIABLE}=file:{os.path.abspath(path)}")  # noqa: PTH100 - a path to copy
    return exit_codes.OK


@example("interlock keyring rotate sqlite:///shop.db")
@keyring.command
@words("")
@_KEYRING
@json_option
@common
@pass_terminal
def rotate(terminal: Terminal, words: tuple[str, ...], *, keyring: str | None, as_json: bool) -> int:
    """Encrypts every data key with a new master key, and destroys the older ones. Run it once a month: it makes earlier
    erasures final, because copies of erased keys in logs and backups become useless.

    To restore an earlier backup of the store, you need a copy of the data keys that was made after the rotation. You
    can interrupt the command and repeat it.
    """
    url, _ = split_words(words)

    done = run(_with_keys(url, keyring, rotate_epoch))
    if as_json:
        content = {"epoch": done.epoch, "rewrapped": done.rewrapped, "destroyed": done.destroyed, "kept": done.kept}
        terminal.data(json_text(content))
        return exit_codes.OK
    ended = ", ".join(map(str, done.destroyed))
    terminal.report((f"epoch {done.epoch}", "bold"), f": {done.rewrapped:,} data keys wrapped again")
    if ended:
        terminal.report(f"destroyed the master key of epoch {ended}")
    if done.kept:
        names = ", ".join(map(str, done.kept))
        terminal.message(f"now remove epoch {names} where the keyring is managed: nothing is wrapped under it any more")
    return exit_codes.OK


@example("interlock keyring status sqlite:///shop.db")
@keyring.command
@words("")
@_KEYRING
@json_option
@common
@pass_terminal
def status(terminal: Terminal, words: tuple[str, ...], *, keyring: str | None, as_json: bool) -> int:
    """Exit code 1 if the keyring lacks the master key of a data key."""
    url, _ = split_words(words)

    async def read(keys: DataKeys, ring: Keyring) -> dict[int, tuple[int, bool]]:
        counts, known = await keys.count_keys(), await in_thread(ring.epochs)
        return {each: (counts.get(each, 0), each in known) for each in sorted({*counts, *known})}

    found = run(_with_keys(url, keyring, read))
    if as_json:
        rows = [{"epoch": each, "keys": count, "in_keyring": known} for each, (count, known) in found.items()]
        terminal.data(json_text(rows))
        return exit_codes.OK
    for epoch, (count, is_known) in found.items():
        lost = "" if is_known else "; the keyring has no master key for it: these cannot be read"
        terminal.report((f"epoch {epoch}", "bold"), f": {count:,} data keys{lost}")
    return exit_codes.OK if all(known for _, known in found.values()) else exit_codes.FINDINGS


async def _with_keys(url: str, address: str | None, call: Callable[[DataKeys, Keyring], Awaitable[T]]) -> T:
    """Call a function with the data keys of a store and its keyring."""
    await check_exists(url)
    store = await open_store_url(url)
    try:
        vault = await open_vault(store, (), address or default_keyring(), SystemClock(), is_lasting=True)
        if vault is None:
            hint = f"set {KEYRING_VARIABLE}, or write --keyring file:keyring.json"
            raise UsageError("no keyring is given", code="keyring.missing", hint=hint)
        return await call(vault.keys, vault.keyring)
    finally:
        await store.close()
