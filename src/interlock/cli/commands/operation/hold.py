"""`interlock hold`, `resume` and `holds`: stop entities for a while, and let them continue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import click
from msgspec import to_builtins

from interlock.cli import exit_codes
from interlock.cli.options import chart_option, common, example, json_option, pass_terminal, user_name, words
from interlock.cli.output.terminal import Terminal
from interlock.cli.output.values import count_text, json_text, time_text
from interlock.cli.project import load_optional_charts, split_words
from interlock.cli.session import chart_suggestion, open_for_reading, open_for_writing, run
from interlock.model.conditions import read_conditions
from interlock.ports.store import EntityQuery
from interlock.runtime.holds.operator import Hold, ResumedTimers
from interlock.runtime.request_checks import check_entity
from interlock.runtime.runtime import Runtime

_Command = Callable[..., Any]


def _filters(command: _Command) -> _Command:
    """Add the options that select entities of a kind."""
    for option in (
        click.option(
            "--where",
            multiple=True,
            metavar="CONDITION",
            help="Only entities with this indexed context field, such as customer=c-7. May be repeated.",
        ),
        click.option("--prefix", metavar="TEXT", help="Only entities whose id starts with this text."),
        click.option("--revision", metavar="REVISION", help="Only entities of this revision."),
        click.option("--tag", metavar="TAG", help="Only entities in a state with this tag."),
        click.option("--state", metavar="STATE", help="Only entities in this state (may be compound)."),
    ):
        command = option(command)
    return command


class _Filter(NamedTuple):
    """The options that select entities of a kind."""

    state: str | None
    tag: str | None
    revision: str | None
    prefix: str | None
    where: tuple[str, ...]

    @property
    def is_given(self) -> bool:
        """Whether there is any; without one, the kind is meant."""
        return any(self)

    def check(self, name: str) -> None:
        """Raise an error for options with an entity, and for an invalid entity."""
        if "/" in name:
            check_entity(name)
            if self.is_given:
                raise click.UsageError("options that select entities need a kind, not an entity")

    async def query(self, runtime: Runtime, kind: str) -> EntityQuery | None:
        """Return the query; None without any option."""
        if not self.is_given:
            return None
        return EntityQuery(
            kind=kind,
            state=self.state,
            tag=self.tag,
            revision=self.revision,
            prefix=self.prefix,
            where=read_conditions(self.where, await runtime.index_forms(kind)) if self.where else None,
        )


@example(
    'interlock hold sqlite:///orders.db order/o-1 --reason "fraud check, case 118"',
    'interlock hold order --state charging --reason "the bank answers late"',
    'interlock hold order --reason "the payment service loses charges"',
)
@click.command
@words("KIND/ID|KIND")
@click.option("--reason", required=True, metavar="TEXT", help="Why, for the journal or the audit.")
@_filters
@click.option("--principal", metavar="ID", help="Your name there (default: your user name).")
@chart_option
@json_option
@common
@pass_terminal
def hold(
    terminal: Terminal,
    words: tuple[str, ...],
    *,
    reason: str,
    principal: str | None,
    charts: tuple[str, ...],
    as_json: bool,
    state: str | None,
    tag: str | None,
    revision: str | None,
    prefix: str | None,
    where: tuple[str, ...],
) -> int:
    """Stops one entity, the entities of a kind that match options, or a kind with all its new entities.

    No timer fires and no effect starts until interlock resume. Running attempts end, and their results are kept.
    Events to what is held fail with exit code 7 or HTTP 503: senders try again later, and nothing is lost.
    """
    url, (name,) = split_words(words, "KIND/ID|KIND")
    assert name is not None
    filter_ = _Filter(state, tag, revision, prefix, where)
    filter_.check(name)
    who, known = {"id": principal or user_name()}, load_optional_charts(charts)

    async def work() -> tuple[Hold | None, int]:
        with chart_suggestion(known):
            async with open_for_writing(url, known) as runtime:
                if "/" in name:
                    return await runtime.hold(name, reason=reason, principal=who), 1
                query = await filter_.query(runtime, name)
                if query is None:
                    return await runtime.hold_kind(name, reason=reason, principal=who), 1
                return None, await runtime.hold_matching(query, reason=reason, principal=who)

    found, count = run(work())
    if as_json:
        terminal.data(json_text({"held": count, "hold": None if found is None else to_builtins(found)}))
    elif found is None:
        terminal.report(f"{count_text(count, 'entity', 'entities')} held")
    else:
        _print(terminal, found)
    return exit_codes.OK


@example(
    "interlock resume sqlite:///orders.db order/o-1",
    "interlock resume order --state charging --timers shift",
    'interlock resume order --reason "fixed in 3.1"',
)
@click.command
@words("KIND/ID|KIND")
@click.option("--reason", metavar="TEXT", help="Why, for the journal or the audit.")
@click.option(
    "--timers",
    type=click.Choice(["deadline", "shift"]),
    default="deadline",
    help="Overdue timers fire now (deadline, the default), or all are later by the time of the hold (shift).",
)
@_filters
@click.option("--principal", metavar="ID", help="Your name there (default: your user name).")
@chart_option
@json_option
@common
@pass_terminal
def resume(
    terminal: Terminal,
    words: tuple[str, ...],
    *,
    reason: str | None,
    timers: ResumedTimers,
    principal: str | None,
    charts: tuple[str, ...],
    as_json: bool,
    state: str | None,
    tag: str | None,
    revision: str | None,
    prefix: str | None,
    where: tuple[str, ...],
) -> int:
    """Ends a hold. Entities of a kind that were held one by one stay held; options select those.

    Exit code 1 if nothing was held.
    """
    url, (name,) = split_words(words, "KIND/ID|KIND")
    assert name is not None
    filter_ = _Filter(state, tag, revision, prefix, where)
    filter_.check(name)
    who, known = {"id": principal or user_name()}, load_optional_charts(charts)

    async def work() -> int:
        with chart_suggestion(known):
            async with open_for_writing(url, known) as runtime:
                if "/" in name:
                    return int(await runtime.resume(name, reason=reason, principal=who, timers=timers))
                query = await filter_.query(runtime, name)
                if query is None:
                    return int(await runtime.resume_kind(name, reason=reason, principal=who, timers=timers))
                return await runtime.resume_matching(query, reason=reason, principal=who, timers=timers)

    count = run(work())
    if as_json:
        terminal.data(json_text({"resumed": count}))
    elif count == 0:
        terminal.failure("nothing was held", "interlock holds lists what is")
    elif filter_.is_given:
        terminal.report(f"{count_text(count, 'entity', 'entities')} resumed")
    else:
        terminal.report((name, "bold"), " resumed")
    return exit_codes.OK if count else exit_codes.FINDINGS


@example("interlock holds", "interlock holds sqlite:///orders.db order --json")
@click.command
@words("[KIND]")
@json_option
@common
@pass_terminal
def holds(terminal: Terminal, words: tuple[str, ...], *, as_json: bool) -> int:
    """Prints what is held, since when, by whom and why: first kinds, then at most a thousand entities of each kind."""
    url, (kind,) = split_words(words, "KIND", optional=1)

    async def work() -> tuple[Hold, ...]:
        async with open_for_reading(url) as runtime:
            return await runtime.holds(kind)

    found = run(work())
    if as_json:
        terminal.data(json_text([{**to_builtins(each), "kind": each.is_kind} for each in found]))
        return exit_codes.OK
    for each in found:
        _print(terminal, each)
    if not found:
        terminal.message("nothing is held")
    return exit_codes.OK


def _print(terminal: Terminal, hold: Hold) -> None:
    whole = " (all entities)" if hold.is_kind else ""
    by = "" if hold.by is None else f" by {hold.by}"
    why = "" if hold.reason is None else f": {hold.reason}"
    terminal.report((f"{hold.name}{whole}", "bold"), f" held since {time_text(hold.at_ms)}{by}{why}")
