"""`interlock rollout`: start a part of the new entities of a kind on a new definition."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import click

from interlock.cli import exit_codes
from interlock.cli.options import common, example, json_option, pass_terminal, user_name, words
from interlock.cli.output.terminal import Terminal
from interlock.cli.output.values import count_text, json_text, time_text
from interlock.cli.project import split_words
from interlock.cli.session import open_for_reading, open_for_writing, run
from interlock.errors import NotFoundError
from interlock.model.encoding.codec import to_builtins
from interlock.operate.rollout import (
    RolloutStatus,
    abort_rollout,
    advance_rollout,
    percent_text,
    rollout_status,
    start_rollout,
)
from interlock.runtime.charts.rollouts import SHARE_MAX, Rollout
from interlock.runtime.runtime import Runtime

percent_type = click.FloatRange(0.01, 100)
why_option = click.option("--why", default="", metavar="TEXT", help="The reason, for the record.")


@example(
    "interlock rollout set sqlite:///orders.db order --to 2.0.0 --percent 5",
    "interlock rollout status sqlite:///orders.db order",
)
@click.group
@common
def rollout() -> None:
    """A hash of its id decides whether a new entity is in the share."""


@example(
    "interlock rollout set sqlite:///orders.db order --to 2.0.0 --percent 5",
    'interlock rollout set order --to 1.0.0 --why "back: 2.0.0 loses coupons"',
)
@rollout.command("set")
@words("KIND")
@click.option("--to", required=True, metavar="REVISION", help="A revision of the store, by name or label.")
@click.option(
    "--percent",
    type=percent_type,
    default=100.0,
    metavar="P",
    help="Its share of the new entities, in percent (default 100).",
)
@click.option("--base", metavar="REVISION", help="The revision of all other new entities (default: the one before).")
@why_option
@json_option
@common
@pass_terminal
def set_rollout(
    terminal: Terminal,
    words: tuple[str, ...],
    *,
    to: str,
    percent: float,
    base: str | None,
    why: str,
    as_json: bool,
) -> int:
    """All other new entities start on the base, by default the revision before. Living entities stay on the revision
    that they have.

    You may also choose an older revision: it then counts as the newest.
    """

    def change(runtime: Runtime, kind: str) -> Awaitable[Rollout]:
        return start_rollout(runtime, kind, to=to, share=_share(percent), base=base, by=user_name(), why=why)

    return _change(terminal, words, change, as_json=as_json)


@example("interlock rollout advance sqlite:///orders.db order --percent 25")
@rollout.command
@words("KIND")
@click.option(
    "--percent", type=percent_type, required=True, metavar="P", help="The new share of the new entities, in percent."
)
@why_option
@json_option
@common
@pass_terminal
def advance(terminal: Terminal, words: tuple[str, ...], *, percent: float, why: str, as_json: bool) -> int:
    """Entities that started on the new revision stay on it. 100 completes the rollout."""

    def change(runtime: Runtime, kind: str) -> Awaitable[Rollout]:
        return advance_rollout(runtime, kind, share=_share(percent), by=user_name(), why=why)

    return _change(terminal, words, change, as_json=as_json)


@example('interlock rollout abort sqlite:///orders.db order --why "refunds fail"')
@rollout.command
@words("KIND")
@why_option
@json_option
@common
@pass_terminal
def abort(terminal: Terminal, words: tuple[str, ...], *, why: str, as_json: bool) -> int:
    """No entity is upgraded to the aborted revision any more. Entities that started on it continue on it."""

    def change(runtime: Runtime, kind: str) -> Awaitable[Rollout]:
        return abort_rollout(runtime, kind, by=user_name(), why=why)

    return _change(terminal, words, change, as_json=as_json)


@example("interlock rollout status sqlite:///orders.db order")
@rollout.command
@words("KIND")
@json_option
@common
@pass_terminal
def status(terminal: Terminal, words: tuple[str, ...], *, as_json: bool) -> int:
    """Prints the rollout of a kind, its history, and how many entities are on each revision."""
    url, (kind,) = split_words(words, "KIND")
    assert kind is not None

    async def work() -> RolloutStatus:
        async with open_for_reading(url) as runtime:
            found = await rollout_status(runtime, kind)
            if found is None:
                hint = "interlock rollout set starts one"
                raise NotFoundError(f"`{kind}` has no rollout", code="rollout.unknown", hint=hint)
            return found

    found = run(work())
    if as_json:
        terminal.data(json_text(to_builtins(found)))
        return exit_codes.OK
    terminal.report((kind, "bold"), f": {_text(found.rollout)}")
    for name in dict.fromkeys((found.rollout.revision, found.rollout.base, *sorted(found.entities))):
        label = found.labels.get(name, "-")
        entities = count_text(found.entities.get(name, 0), "entity", "entities")
        terminal.report(f"  {name}  {label}  {entities}")
    for each in reversed(found.rollout.history):
        why = f": {each.why}" if each.why else ""
        terminal.report((f"  {time_text(each.changed_ms)}  {percent_text(each.share)}  {each.by}{why}", "dim"))
    return exit_codes.OK


def _share(percent: float) -> int:
    """The share in hundredths of a percent."""
    return round(percent * SHARE_MAX / 100)


def _change(
    terminal: Terminal,
    words: tuple[str, ...],
    change: Callable[[Runtime, str], Awaitable[Rollout]],
    *,
    as_json: bool,
) -> int:
    url, (kind,) = split_words(words, "KIND")
    assert kind is not None

    async def work() -> Rollout:
        async with open_for_writing(url) as runtime:
            return await change(runtime, kind)

    found: Any = run(work())
    if as_json:
        terminal.data(json_text(to_builtins(found)))
    else:
        terminal.report((kind, "bold"), f": {_text(found)}")
    return exit_codes.OK


def _text(found: Rollout) -> str:
    if found.state == "aborted":
        return f"aborted; new entities start on {found.base}"
    if found.state == "complete":
        return f"complete; new entities start on {found.revision}"
    return f"{percent_text(found.share)} of new entities start on {found.revision}, all others on {found.base}"
