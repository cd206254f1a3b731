"""`interlock serve`: the console of a store."""

from __future__ import annotations

import json
from getpass import getuser
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from interlock.assemble.charts import BoundChart
from interlock.assemble.runtimes import open as open_runtime
from interlock.cli import exit_codes
from interlock.cli.options import common, example, pass_terminal
from interlock.cli.output.terminal import Terminal
from interlock.cli.session import (
    chart_option,
    check_store,
    key_prefix_of,
    key_prefix_option,
    loaded_charts,
    run,
    split_words,
    words,
)
from interlock.errors import MissingExtraError, UsageError
from interlock.ports.clock import SystemClock

PORT = 8470


@example(
    "interlock serve",
    "interlock serve sqlite:///orders.db --chart orders:charts --work",
    "interlock serve --host 0.0.0.0 --key-file keys.toml --read-only",
)
@click.command(short_help="Show the entities of a store in a browser.")
@words("")
@click.option("--host", default="127.0.0.1", metavar="HOST", help="Where to listen; other machines need --key-file.")
@click.option("--port", default=PORT, type=click.IntRange(0, 65535), metavar="PORT", help="0 takes any that is free.")
@click.option("--read-only", is_flag=True, help="Only show: nothing is sent, retried or dropped.")
@click.option("--work", is_flag=True, help="Also perform effects and fire timers, as `interlock run` does.")
@click.option("--key-file", type=click.Path(path_type=Path), metavar="FILE", help="Who may log in, by API key.")
@click.option("--new-key", metavar="ID", help="Print a new key and what the key file keeps of it, and end.")
@click.option("--principal", metavar="ID[:ROLE,...]", help="Who sends, without a key file. Default: you, every role.")
@click.option("--origin", "origins", multiple=True, metavar="URL", help="How browsers reach it behind a proxy.")
@key_prefix_option
@chart_option
@common
@pass_terminal
def serve(
    terminal: Terminal,
    words: tuple[str, ...],
    *,
    host: str,
    port: int,
    read_only: bool,
    work: bool,
    key_file: Path | None,
    new_key: str | None,
    principal: str | None,
    origins: tuple[str, ...],
    key_prefix: str | None,
    charts: tuple[str, ...],
) -> int:
    """Show the entities of a store in a browser, and answer programs by the same interface.

    Prints the address with a link that logs one browser in. Ctrl-C ends it, once requests in hand are answered.
    """
    access = web_module("interlock.web.auth")
    if new_key is not None:
        return _print_key(terminal, access, new_key)
    url, _ = split_words(words)
    bound = loaded_charts(charts)
    prefix = key_prefix_of(key_prefix)
    server = web_module("interlock.web.server")
    clock = SystemClock()
    if key_file is None:
        doors = access.Authentication(clock, local=everybody(access, principal, bound, read_only=read_only))
    else:
        doors = access.Authentication(clock, keys=access.read_keys(key_file))

    def ready(address: str) -> None:
        link = "" if doors.link is None else f"/#login={doors.link}"
        terminal.data(f"{address}{link}\n")
        terminal.message("Ctrl-C ends it" if link == "" else "the link works once; Ctrl-C ends it")

    async def serving() -> None:
        await check_store(url)
        async with open_runtime(url, charts=bound, clock=clock, work=work, key_prefix=prefix) as runtime:
            await server.serve(runtime, doors, host=host, port=port, origins=origins, read_only=read_only, ready=ready)

    run(serving())
    terminal.message("ended")
    return exit_codes.OK


def web_module(module: str) -> Any:
    """A module of the console. Raises MissingExtraError when what it needs is not installed."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name in ("httptools", "starlette", "uvicorn"):
            message = "the console needs the extra `web`"
            raise MissingExtraError(message, code="extra.web", hint="pip install 'interlock[web]'") from error
        raise


def everybody(access: Any, principal: str | None, charts: list[BoundChart], *, read_only: bool) -> Any:
    """Whoever started the server: they could open the store's files as well, so they may do everything."""
    if principal is None:
        said = [each.roles for bound in charts for each in (bound.chart.events or ())]
        said += [each.roles for bound in charts for each in bound.chart.transitions]
        name, roles = _user(), sorted({role for some in said for role in some or ()})
    else:
        name, _, held = principal.partition(":")
        roles = [each for each in held.split(",") if each]
    if not name:
        raise UsageError("--principal has no id", code="principal.malformed", hint="write --principal ada:support")
    rights = ("read", "read:audit", "read:sensitive") if read_only else access.RIGHTS
    who = {"id": name, "kind": "user", "roles": roles}
    return access.User(principal=who, rights=frozenset(rights), idles=False)


def _user() -> str:
    try:
        return getuser()
    except (KeyError, OSError):  # a user id without a name, as in some containers
        return "local"


def _print_key(terminal: Terminal, access: Any, name: str) -> int:
    if not name.strip():
        raise UsageError("--new-key has no id", code="principal.malformed", hint="write --new-key ada")
    key = f"ilk_{SystemClock().token()}{SystemClock().token()}"
    quoted = json.dumps(name, ensure_ascii=False)  # which is how TOML writes a text, too
    terminal.data(f'{key}\n\n[[key]]\nid = {quoted}\nsha256 = "{access.key_digest(key)}"\n')
    terminal.data('roles = []\nrights = ["read"]\n')
    terminal.message("the first line is the key: it is shown this once; the table goes into the key file")
    return exit_codes.OK
