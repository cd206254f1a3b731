"""`interlock journal`, `ls`, `tail`, `replay`: entries and lists of entities."""

from __future__ import annotations

from functools import partial

import click

from interlock.cli import exit_codes
from interlock.cli.options import (
    chart_option,
    common,
    duration_ms,
    example,
    json_option,
    page_options,
    parse_principal,
    pass_terminal,
    reader_option,
    since_time_ms,
    words,
)
from interlock.cli.output import entity as output
from interlock.cli.output.progress import Progress
from interlock.cli.output.terminal import Terminal
from interlock.cli.output.values import json_line, json_text
from interlock.cli.project import load_known_charts, split_words
from interlock.cli.readers import entries_for, is_masked
from interlock.cli.session import CHECK_NAME, empty_tenant, kind_note, open_for_reading, run
from interlock.errors import DeniedError, InterlockError, NotFoundError
from interlock.kernel.step import Kernel
from interlock.model.conditions import read_conditions
from interlock.model.encoding.codec import to_builtins
from interlock.model.entity_id import kind_of
from interlock.model.journal.entry import Entry
from interlock.model.snapshot import Snapshot
from interlock.model.step import Fault
from interlock.observe.feed import feed
from interlock.ports.reading.journal_feed import FeedEntry
from interlock.ports.reading.paging import first_page
from interlock.ports.store import EntityPage, EntityQuery, EntityRow
from interlock.runtime.charts.revisions import missing_functions
from interlock.runtime.entities.permissions import Reader
from interlock.runtime.history.removed import missing_entity
from interlock.runtime.history.replay import as_recorded, digest_problem, kernel_of_entry, pages, repeat_step
from interlock.runtime.history.verify import UNKNOWN, difference
from interlock.runtime.request_checks import check_entity
from interlock.runtime.runtime import Runtime

UNREADABLE_SHOWN_MAX = 20
"""Unreadable entities that `ls` names; `--json` and `verify` name all."""

_FOLLOW = "Follow new entries."


@example(
    "interlock journal order/A-1",
    "interlock journal order/A-1 -v --after 7",
    "interlock journal order/A-1 --follow --json",
)
@click.command
@words("KIND/ID")
@click.option("--after", type=click.IntRange(min=0), default=0, metavar="VERSION", help="Only later entries.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Maximum entries.")
@click.option("--follow", is_flag=True, help=_FOLLOW)
@reader_option
@json_option
@common
@pass_terminal
def journal(
    terminal: Terminal,
    words: tuple[str, ...],
    *,
    after: int,
    limit: int | None,
    follow: bool,
    principal: str | None,
    as_json: bool,
) -> int:
    """Prints one entry per line; with -v also payloads, keys, attempts and effects. Needs no chart.

    If the journal is corrupt, it prints the entries before the damage, with exit code 8. --json prints one JSON object
    per line.
    """
    url, (entity,) = split_words(words, "KIND/ID")
    assert entity is not None

    async def work() -> None:
        async with open_for_reading(url) as runtime:
            check_entity(entity)
            reader = parse_principal(principal)
            await runtime.permissions.check_reader(entity, reader)
            await _print_journal(terminal, runtime, entity, after, limit, reader, follow=follow, as_json=as_json)

    run(work())
    return exit_codes.OK


async def _print_journal(
    terminal: Terminal,
    runtime: Runtime,
    entity: str,
    after: int,
    limit: int | None,
    reader: Reader | None,
    *,
    follow: bool,
    as_json: bool,
) -> None:
    if reader is not None and await is_masked(runtime, entity, reader):
        async for entry in entries_for(runtime, entity, reader, after=after, limit=limit, follow=follow):
            _print_entry(terminal, entry, as_json=as_json)
        return
    left, is_known = limit, False
    if after == 0:
        after = await _beginning(terminal, runtime, entity)
    async for page in pages(runtime.store, entity, after=after):
        is_known = True
        for entry in page if left is None else page[:left]:
            _print_entry(terminal, entry, as_json=as_json)
        after = page[-1].version
        if left is not None:
            left -= len(page)
            if left <= 0:
                return
    if not is_known and await runtime.store.load(entity) is None:  # no more entries, or no such entity
        found = await missing_entity(runtime.store, entity)
        raise _unknown(entity) if found.code == UNKNOWN else found
    if follow:
        async for entry in runtime.watch(entity, after=after):
            await runtime.permissions.check_reader(entity, reader)
            _print_entry(terminal, entry, as_json=as_json)
            left = None if left is None else left - 1
            if left == 0:
                return


async def _beginning(terminal: Terminal, runtime: Runtime, entity: str) -> int:
    """Return the version after which a journal starts, and report that a journal was compacted."""
    base = None if runtime.store.retention is None else await runtime.store.retention.journal_base(entity)
    if base is None:
        return 0
    terminal.note(
        ("note", "cyan"), f": the entries up to version {base.version} were removed: the journal was compacted"
    )
    return base.version


def _print_entry(terminal: Terminal, entry: Entry, *, as_json: bool) -> None:
    if as_json:
        terminal.data(json_line(to_builtins(entry)))
        return
    terminal.report(*output.entry_line(entry))
    _print_details(terminal, entry)


def _print_details(terminal: Terminal, entry: Entry) -> None:
    if terminal.verbose:
        for line in output.entry_details(entry):
            terminal.report(*line)


def _unknown(entity: str) -> NotFoundError:
    return NotFoundError(f"unknown entity `{entity}`", code="entity.unknown", hint=CHECK_NAME)


@example("interlock ls order --state refund_failed", "interlock ls --tag alert --older 1h")
@click.command
@words("[KIND]")
@click.option("--kind", metavar="KIND", help="Only entities of this kind (default: all kinds).")
@click.option("--state", metavar="STATE", help="Only in this state (may be compound), :cancelled or :failed.")
@click.option("--tag", metavar="TAG", help="Only entities in a state with this tag.")
@click.option("--revision", metavar="REVISION", help="Only entities of this revision: its name or its label.")
@click.option("--older", metavar="DURATION", help="Only entities in their state for longer, such as 5m or 2d.")
@click.option("--prefix", metavar="TEXT", help="Only entities whose id starts with this text.")
@click.option(
    "--where",
    multiple=True,
    metavar="CONDITION",
    help="Only with this indexed context field, such as customer=c-7 or 'amount>=10'. May be repeated.",
)
@click.option("--context", "has_context", is_flag=True, help="Print the context of each entity.")
@page_options
@reader_option
@chart_option
@json_option
@common
@pass_terminal
def ls(
    terminal: Terminal,
    words: tuple[str, ...],
    *,
    kind: str | None,
    state: str | None,
    tag: str | None,
    revision: str | None,
    older: str | None,
    prefix: str | None,
    where: tuple[str, ...],
    has_context: bool,
    limit: int,
    after: str | None,
    principal: str | None,
    charts: tuple[str, ...],
    as_json: bool,
) -> int:
    """Entities that have been in their state longest come first. --after and --where need a kind. Needs no chart.

    Exit code 1 if some entities could not be read; `interlock verify` prints the reasons.
    """
    url, (argument,) = split_words(words, "KIND", optional=1)
    if argument is not None and kind not in (None, argument):
        raise click.UsageError(f"two kinds given: {argument} and {kind}")
    kind = kind or argument
    if after is not None and kind is None:
        raise click.UsageError("--after needs a kind")
    if where and kind is None:
        raise click.UsageError("--where needs a kind")
    bound = load_known_charts(charts) if where or has_context else []
    older_ms = None if older is None else duration_ms(older, "--older")
    reader = parse_principal(principal)

    async def work() -> tuple[EntityPage, list[str], tuple[str, str | None] | None, int, str]:
        async with open_for_reading(url, bound) as runtime:
            now_ms = runtime.clock.now_ms()
            forms = await runtime.index_forms(kind) if where and kind is not None else {}
            rows: list[EntityRow] = []
            unreadable: dict[str, None] = {}
            cursor: str | None = None
            kinds = [kind] if kind is not None else list(await runtime.store.kinds())
            lists = [(each, name) for each in kinds for name in await _revision_names(runtime, each, revision)]
            listed: tuple[str, str | None] | None = None
            while lists and len(rows) < limit:
                listed = lists.pop(0)
                query = EntityQuery(
                    kind=listed[0],
                    state=state,
                    entered_before_ms=None if older_ms is None else now_ms - older_ms,
                    tag=tag,
                    revision=listed[1],
                    prefix=prefix,
                    after=after,
                    limit=limit - len(rows),
                    where=read_conditions(where, forms) if where else None,
                    context=has_context,
                )
                try:
                    page = await first_page(partial(runtime.list, reader=reader), query)
                except DeniedError:
                    if kind is not None:
                        raise
                    continue  # only kinds that the reader may read are listed
                rows += page.rows
                unreadable |= dict.fromkeys(page.unreadable)
                cursor = page.after
            wrong_tenant = None if rows else await empty_tenant(url, runtime.store)
            if wrong_tenant is not None:
                terminal.note(("warning", "yellow"), f": {wrong_tenant}")
            note = "" if rows or wrong_tenant is not None else await kind_note(runtime, kind)
            more = lists if listed is None or cursor is None else [each for each in lists if each[0] != listed[0]]
            more_kinds = list(dict.fromkeys(each for each, _ in more))
            return EntityPage(tuple(rows), cursor, tuple(unreadable)), more_kinds, listed, now_ms, note

    page, more_kinds, listed, now_ms, note = run(work())
    code = exit_codes.FINDINGS if page.unreadable else exit_codes.OK
    if as_json:
        data = to_builtins(page)
        for row in data["rows"] if not has_context else ():
            del row["context"]
        terminal.data(json_text({**data, "more_kinds": more_kinds}))
        return code
    for line in output.row_lines(page.rows, now_ms):
        terminal.report(*line)
    if page.after is not None and page.rows:
        last_kind = page.rows[-1].entity.partition("/")[0]
        name = f" --revision {listed[1]}" if listed is not None and listed[1] is not None else ""
        terminal.message((f"more: --kind {last_kind}{name} --after {page.after}", "dim"))
    if more_kinds:
        terminal.message((f"more: --kind {', '.join(more_kinds)}", "dim"))
    if not page.rows:
        terminal.message(f"no entities{note}")
    _print_unreadable(terminal, page.unreadable)
    return code


async def _revision_names(runtime: Runtime, kind: str, given: str | None) -> list[str | None]:
    """Return the names under which entities of a revision are listed; the revision is given by a name or a label."""
    if given is None:
        return [None]
    editions = await runtime.revisions.editions(kind)
    meant = [each for each in editions if given in (each.label, each.revision, each.written_name, *each.names)]
    names = dict.fromkeys(name for each in meant for name in (each.written_name, each.revision, *each.names))
    if runtime.store.statistics is not None:  # a list by a name without entities would be read to its end
        counts = await runtime.store.statistics.count_states(kind)
        used = {each.revision for each in counts if each.entities}
        # Entities of an old store are listed by label, too.
        labelled = [each for each in sorted(used) if each.partition("+")[0] == given]
        return [each for each in dict.fromkeys([*names, *labelled, given]) if each in used] or [given]
    return list(dict.fromkeys([*names, given]))


def _print_unreadable(terminal: Terminal, entities: tuple[str, ...]) -> None:
    """Name entities that are not listed, and the command that explains why."""
    shown = " ".join(entities[:UNREADABLE_SHOWN_MAX])
    more = len(entities) - UNREADABLE_SHOWN_MAX
    if entities:
        terminal.note(("unreadable", "yellow"), f": {shown}{f' and {more:,} more' if more > 0 else ''}")
        has_names = more <= 0 and all("/" in each for each in entities)  # a damaged folder may have no entity name
        command = f"interlock verify {shown if has_names else ''}".rstrip()
        terminal.note(("hint:", "green"), f" {command} for details")


@example("interlock tail -f", "interlock tail order --since 10m -v")
@click.command
@words("[KIND]")
@click.option("--follow", "-f", is_flag=True, help=_FOLLOW)
@click.option(
    "--since",
    default="1h",
    metavar="WHEN",
    help="An age such as 10m, a time such as 2026-11-15T12:00Z, `start` or `now` (default 1h).",
)
@json_option
@common
@pass_terminal
def tail(terminal: Terminal, words: tuple[str, ...], *, follow: bool, since: str, as_json: bool) -> int:
    """Prints the entries of all entities, or of one kind, in the order in which they were written; with -v also
    payloads, keys and effects.

    It reads journals, so it needs no chart and no bus. --json prints one JSON object per line.
    """
    url, (kind,) = split_words(words, "KIND", optional=1)
    since_time_ms(since, now_ms=0)  # an error before the store is opened

    async def work() -> None:
        async with open_for_reading(url) as runtime:
            note = await kind_note(runtime, kind)
            if note:
                terminal.message(f"no entries{note}")
            since_ms = since_time_ms(since, now_ms=runtime.clock.now_ms())
            async for each in feed(runtime.store, runtime.clock, kind=kind, since_ms=since_ms, follow=follow):
                _print_feed_entry(terminal, each, as_json=as_json)

    run(work())
    return exit_codes.OK


def _print_feed_entry(terminal: Terminal, each: FeedEntry, *, as_json: bool) -> None:
    if as_json:
        terminal.data(json_line({"entity": each.entity, "entry": to_builtins(each.entry)}))
        return
    version, time, *rest = output.entry_line(each.entry)
    terminal.report(time, "  ", (each.entity, "bold"), f" v{str(version).strip()}", *rest)
    _print_details(terminal, each.entry)


@example("interlock replay order/A-1")
@click.command
@words("KIND/ID")
@click.option("--to", "last", type=click.IntRange(min=1), metavar="VERSION", help="Stop after this version.")
@chart_option
@json_option
@common
@pass_terminal
def replay(
    terminal: Terminal, words: tuple[str, ...], *, last: int | None, charts: tuple[str, ...], as_json: bool
) -> int:
    """Prints each entry, what it changed, and whether the chart still produces the same step.

    Nothing is written and no effect runs. Exit code 8 at the first entry that the chart does not reproduce, 7 if the
    chart of that entry's revision is missing.
    """
    url, (entity,) = split_words(words, "KIND/ID")
    assert entity is not None
    bound = load_known_charts(charts)

    async def work() -> int:
        async with open_for_reading(url, bound) as runtime:
            check_entity(entity)
            snapshot: Snapshot | None = None
            with Progress(terminal, "entries", last) as progress:
                async for page in pages(runtime.store, entity):
                    for entry in page:
                        if last is not None and entry.version > last:
                            return exit_codes.OK
                        kernel = await kernel_of_entry(runtime.revisions, kind_of(entity), entry)
                        code, snapshot = progress.over(
                            _replay_entry, terminal, runtime, kernel, entity, snapshot, entry, as_json=as_json
                        )
                        if code != exit_codes.OK:
                            return code
                        progress.at(entry.version)
            if snapshot is None:
                raise _unknown(entity)
            return exit_codes.OK

    return run(work())


def _replay_entry(
    terminal: Terminal,
    runtime: Runtime,
    kernel: Kernel | None,
    entity: str,
    before: Snapshot | None,
    entry: Entry,
    *,
    as_json: bool,
) -> tuple[int, Snapshot | None]:
    """Replay and print one entry; return the exit code and the snapshot after it."""
    after: Snapshot | None = None
    faults: tuple[Fault, ...] = ()
    try:
        step = repeat_step(kernel, entity, before, entry)
        after, faults = step.snapshot, step.faults
        problem = difference(entry, before, step) or digest_problem(entry, as_recorded(step.snapshot, entry))
    except InterlockError as error:
        problem = f"the step fails: {error.message}"
    missing = None if kernel is None else runtime.revisions.missing_call(kernel)
    if kernel is not None and missing is not None:
        raise missing_functions(kernel.chart, (missing,))
    if as_json:
        line = {
            "entry": to_builtins(entry),
            "agrees": problem is None,
            "difference": problem,
            "faults": to_builtins(faults),
        }
        terminal.data(json_line({**line, "snapshot": None if after is None else to_builtins(after)}))
    else:
        mark = ("✓", "green") if problem is None else ("✗", "red")
        terminal.report(mark, *output.entry_line(entry))
        if after is not None:
            hidden = frozenset[str]() if kernel is None else kernel.chart.hidden_fields
            contexts = [{} if each is None else each.context for each in (before, after)]
            old, new = ({key: value for key, value in each.items() if key not in hidden} for each in contexts)
            for change in output.context_changes(old, new):
                terminal.report("      ", *change)
        for fault in output.problem_lines((), faults):
            terminal.report("      ", *fault)
    if problem is None:
        return exit_codes.OK, after
    message = f"the journal of `{entity}` differs at version {entry.version}: {problem}"
    if kernel is None or kernel.chart.is_revision(entry.revision):
        terminal.failure(message)
        return exit_codes.CORRUPTION, after
    hint = f"revision {entry.revision} wrote that entry and its chart is not loaded; the journal may be intact"
    terminal.failure(message, hint)
    return exit_codes.UNAVAILABLE, after
