"""`interlock erase`: destroy the data key of an entity, so that its personal data cannot be read any more."""

from __future__ import annotations

from collections.abc import Iterator

import click
from msgspec import to_builtins

from interlock.cli import exit_codes
from interlock.cli.options import chart_option, common, example, json_option, pass_terminal, user_name, words
from interlock.cli.output.terminal import Line, Terminal
from interlock.cli.output.values import json_text, time_text
from interlock.cli.project import load_optional_charts, split_words
from interlock.cli.session import chart_suggestion, open_for_writing, run
from interlock.runtime.erasure import Eraser, Erasure, follow
from interlock.runtime.request_checks import check_entity, check_reason

LISTED_MAX = 20
"""Names that are printed of a list: --json has all of them."""

_FINAL = {
    "final": "final: the key is in no file of the store",
    "pending": "unreadable now; final when no process reads the key file: repeat the command later",
    "epoch": "unreadable now; final when the epoch of its master key ends: interlock keyring rotate",
}


@example(
    "interlock erase customer/c-7 --dry-run",
    'interlock erase sqlite:///shop.db customer/c-7 --reason "request 2026-118"',
    'interlock erase customer/c-7 --reason "request 2026-118" --live --follow',
)
@click.command
@words("KIND/ID")
@click.option("--reason", metavar="TEXT", help="The reason, for the journal of the entity. Required without --dry-run.")
@click.option("--dry-run", is_flag=True, help="Only show what would be erased, and what would remain.")
@click.option(
    "--live", is_flag=True, help="Erase even if the entity has not ended; effects that need the data then fail."
)
@click.option("--follow", "follows", is_flag=True, help="Also erase the entities that it sent personal values to.")
@click.option("--principal", metavar="ID", help="Your name in the journal (default: your user name).")
@chart_option
@json_option
@common
@pass_terminal
def erase(
    terminal: Terminal,
    words: tuple[str, ...],
    *,
    reason: str | None,
    dry_run: bool,
    live: bool,
    follows: bool,
    principal: str | None,
    charts: tuple[str, ...],
    as_json: bool,
) -> int:
    """Destroys the data keys of an entity and its children. The journal stays; personal values show as erased.
    Repeating it changes nothing.

    Needs the keyring of the store, such as INTERLOCK_KEYRING=file:keyring.json. Other processes can read the values for
    up to one more minute. Exit code 1 if the entity has not ended: --live erases it nevertheless.
    """
    url, (entity,) = split_words(words, "KIND/ID")
    assert entity is not None
    check_entity(entity)
    if dry_run == (reason is not None):
        raise click.UsageError("give --reason, or --dry-run without one")
    check_reason(reason)
    who = {"id": principal or user_name()}
    known = load_optional_charts(charts)

    async def work() -> tuple[Erasure, tuple[Erasure, ...], bool]:
        with chart_suggestion(known):
            async with open_for_writing(url, known) as runtime:
                eraser = Eraser(runtime.entities, runtime.sender)
                found = await eraser.preview(entity)
                if dry_run or not (live or found.is_ended or found.erased_ms is not None):
                    return found, (), False
                found = await eraser.erase(entity, reason=reason, principal=who, live=live)
                more = await follow(eraser, found, reason=reason, principal=who) if follows else ()
                return found, more, True

    found, more, is_done = run(work())
    if as_json:
        content = {"erased": is_done, **to_builtins(found), "followed": [to_builtins(each) for each in more]}
        terminal.data(json_text(content))
    else:
        for line in _lines(found, more, is_done=is_done):
            terminal.report(*line)
    if is_done or dry_run:
        return exit_codes.OK
    terminal.failure(
        f"`{entity}` has not ended", "let it end first, or add --live: effects that need the data then fail"
    )
    return exit_codes.FINDINGS


def _lines(found: Erasure, more: tuple[Erasure, ...], *, is_done: bool) -> Iterator[Line]:
    if is_done:
        when = "" if found.erased_ms is None else f" at {time_text(found.erased_ms)}"
        yield ((found.entity, "bold"), f" erased{when}, version {found.version}")
        yield (f"  {_FINAL[str(found.destroyed)]}",)
    elif found.erased_ms is not None:
        yield ((found.entity, "bold"), f" was erased at {time_text(found.erased_ms)}")
    else:
        yield ((found.entity, "bold"), f" would be erased: data key {found.kid}, version {found.version}")
    yield from _list("work that has not finished", found.pending)
    yield from _list("children, which have the same key", found.children)
    followed = {each.entity for each in more}
    yield from _list(
        "personal values were sent to, and sealed there with another key",
        (each for each in found.targets if each not in followed),
    )
    yield from _list(
        "messages with personal values, which cannot be recalled", (f"{topic} {key}" for topic, key in found.messages)
    )
    for each in more:
        yield ((each.entity, "bold"), f" erased, version {each.version}")


def _list(title: str, names: Iterator[str] | tuple[str, ...]) -> Iterator[Line]:
    found = tuple(names)
    if not found:
        return
    yield (f"  {title}:",)
    for name in found[:LISTED_MAX]:
        yield (f"    {name}",)
    if len(found) > LISTED_MAX:
        yield (f"    and {len(found) - LISTED_MAX:,} more; --json lists all",)
