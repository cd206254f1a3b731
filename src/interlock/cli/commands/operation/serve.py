"""`interlock serve`: the web console and HTTP API of a store."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from interlock.assemble.runtimes import open as open_runtime
from interlock.cli import exit_codes
from interlock.cli.options import (
    chart_option,
    common,
    example,
    key_prefix_option,
    log_option,
    parse_principal,
    pass_terminal,
    user_name,
    words,
)
from interlock.cli.output.log_handler import LogForm
from interlock.cli.output.terminal import Terminal
from interlock.cli.probing import probe_option, probing
from interlock.cli.project import (
    default_keyring,
    key_prefix_of,
    load_charts,
    load_optional_charts,
    project,
    split_words,
)
from interlock.cli.session import check_exists, forbid_core_dumps, frozen_heap, open_for_writing, run
from interlock.errors import MissingExtraError, UnavailableError, UsageError
from interlock.kernel.step import Kernel
from interlock.observe.acceptance import every_role
from interlock.ports.clock import SystemClock
from interlock.runtime.charts.registry import BUILTIN_KINDS
from interlock.runtime.runtime import Runtime
from interlock.trust.users import RIGHTS, User

PORT = 8470


@example(
    "interlock serve",
    "interlock serve sqlite:///orders.db --chart orders:charts --work",
    "interlock serve --host 0.0.0.0 --key-file keys.toml --read-only",
)
@click.command
@words("")
@click.option(
    "--host",
    default="127.0.0.1",
    metavar="HOST",
    help="The address to listen on (default 127.0.0.1); a public one needs --key-file.",
)
@click.option(
    "--port", default=PORT, type=click.IntRange(0, 65535), metavar="PORT", help="The port; 0 selects a free one."
)
@click.option("--read-only", is_flag=True, help="Disable everything that changes something.")
@click.option("--work", is_flag=True, help="Also run effects and timers.")
@click.option(
    "--key-file", type=click.Path(path_type=Path), metavar="FILE", help="The key file, which `interlock keys` writes."
)
@click.option(
    "--principal", metavar="ID[:ROLE,...]", help="The user when there is no key file (default: your user name)."
)
@click.option(
    "--origin", "origins", multiple=True, metavar="URL", help="The public URL behind a proxy. May be repeated."
)
@probe_option
@key_prefix_option
@log_option
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
    principal: str | None,
    origins: tuple[str, ...],
    probe: str | None,
    key_prefix: str | None,
    log: str | None,
    charts: tuple[str, ...],
) -> int:
    """Prints a one-time sign-in link. Ctrl-C stops it after the current requests.

    Without charts, it shows and steps entities by the definitions in the store. It then cannot create entities, nor
    step those whose definition names Python functions.
    """
    auth = web_module("interlock.web.auth")
    url, _ = split_words(words)
    bound = load_charts(charts) if work else load_optional_charts(charts)
    prefix, given = key_prefix_of(key_prefix), parse_principal(principal)
    server = web_module("interlock.web.server")
    clock = SystemClock()
    watcher = None if key_file is None else key_file_watcher(key_file, clock)

    def ready(authentication: Any, address: str) -> None:
        link = "" if authentication.link is None else f"/#login={authentication.link}"
        terminal.data(f"{address}{link}\n")
        stop = "press Ctrl-C to stop"
        terminal.message(stop if link == "" else f"one-time sign-in link; {stop}")

    def opening() -> AbstractAsyncContextManager[Runtime]:
        if not bound:
            return open_for_writing(url)
        defaults = project().handler_defaults if work else None
        forbid_core_dumps(bound)
        return open_runtime(
            url,
            charts=bound,
            clock=clock,
            work=work,
            key_prefix=prefix,
            handler_defaults=defaults,
            keyring=default_keyring(),
        )

    async def work_until_stopped() -> None:
        await check_exists(url)
        async with probing(terminal, probe, url) as probes, opening() as runtime, probes.watching(runtime) as exporter:
            if watcher is None:
                user = local_user(given, await known_roles(runtime), read_only=read_only)
                authentication = auth.Authentication(clock, local=user)
            else:
                authentication = auth.Authentication(clock, key_file=watcher)
            with frozen_heap():
                await server.serve(
                    runtime,
                    authentication,
                    host=host,
                    port=port,
                    origins=origins,
                    read_only=read_only,
                    ready=partial(ready, authentication),
                    exporter=exporter,
                )

    run(work_until_stopped(), log=None if log is None else LogForm(log))
    terminal.message("stopped")
    return exit_codes.OK


def key_file_watcher(path: Path, clock: SystemClock) -> Any:
    """Return the watcher of a key file. Raises UsageError if no user of the file can sign in."""
    found = web_module("interlock.web.key_file_watcher").KeyFileWatcher(path, clock)
    if not (found.content.keys or found.content.issuers or found.content.senders):
        hint = "`interlock keys create ID` creates a key"
        raise UsageError(f"{path} contains no keys, issuers or senders", code="keys.none", hint=hint)
    return found


def web_module(module: str) -> Any:
    """Import a module of the console. Raises MissingExtraError if its dependencies are not installed."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name in ("httptools", "starlette", "uvicorn"):
            message = "the console needs the extra `web`"
            raise MissingExtraError(message, code="extra.web", hint="pip install 'interlock[web]'") from error
        raise


async def known_roles(runtime: Runtime) -> list[str]:
    """Return the roles that the charts of this process and the definitions in the store name, sorted."""
    roles = {role for kind in runtime.charts.every_kind() for role in _roles(runtime.charts.revisions(kind).values())}
    if runtime.store.definitions is not None:
        for each in await runtime.store.definitions.list_definitions():
            if each.kind not in BUILTIN_KINDS:  # their role is that of the console itself
                with suppress(UnavailableError):  # a damaged one, or one of a newer release
                    roles.update(_roles([await runtime.revisions.for_reading(each.kind, each.revision)]))
    return sorted(roles)


def _roles(kernels: Iterable[Kernel]) -> set[str]:
    return {role for each in kernels for role in every_role(each.chart)}


def local_user(given: dict[str, Any] | None, roles: list[str], *, read_only: bool) -> User:
    """Return the user who started the server. They could open the store without it, so they have all rights.

    `given` is the principal of the command line, `roles` are those of a user who is not named there.
    """
    principal = {"id": user_name(), "roles": roles} if given is None else given
    rights = ("read", "read:audit", "read:sensitive") if read_only else RIGHTS
    user = {"id": principal["id"], "kind": "user", "roles": principal.get("roles", [])}
    return User(principal=user, rights=frozenset(rights), idles=False)
