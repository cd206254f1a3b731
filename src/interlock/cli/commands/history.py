"""`interlock journal`, `ls`, `replay`: what happened, and to whom."""

from __future__ import annotations

import click

from interlock.cli import exit_codes
from interlock.cli.options import common, example, json_option, pass_terminal
from interlock.cli.output import scene, values
from interlock.cli.output.progress import Progress
from interlock.cli.output.terminal import Terminal
from interlock.cli.session import chart_option, kind_note, loaded_charts, opened, run, split_words, words
from interlock.cli.tenants import empty_tenant
from interlock.errors import InterlockError, NotFoundError, UsageError
from interlock.model.codec import plain
from interlock.model.duration import parse_duration
from interlock.model.journal.entry import Entry
from interlock.model.snapshot import Snapshot
from interlock.model.step import Fault
from interlock.ports.store import PAGE_MAX, EntityPage, EntityQuery, EntityRow
from interlock.runtime.history.replay import pages, repeat_step
from interlock.runtime.history.verify import difference
from interlock.runtime.request_checks import check_entity
from interlock.runtime.runtime import Runtime

LEFT_OUT_SHOWN_MAX = 20
"""Entities that a list names because it could not read them; `--json` and `verify` name all."""


@example(
    "interlock journal order/A-1",
    "interlock journal order/A-1 -v --after 7",
    "interlock journal order/A-1 --follow --json",
)
@click.command(short_help="Print the journal of an entity.")
@words("KIND/ID")
@click.option("--after", type=click.IntRange(min=0), default=0, metavar="VERSION", help="Only later entries.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="At most so many entries.")
@click.option("--follow", is_flag=True, help="Go on with what is kept from now on, until interrupted.")
@json_option
@common
@pass_terminal
def journal(
    terminal: Terminal, words: tuple[str, ...], *, after: int, limit: int | None, follow: bool, as_json: bool
) -> int:
    """Print the journal of an entity, an entry to a line; with -v what each carried and caused. Needs no chart.

    Of a damaged one the entries before the damage; then it ends with 8. With --json one JSON object to a line.
    """
    url, (entity,) = split_words(words, "KIND/ID")
    assert entity is not None

    async def work() -> None:
        async with opened(url) as runtime:
            check_entity(entity)
            await _print(terminal, runtime, entity, after, limit, follow=follow, as_json=as_json)

    run(work())
    return exit_codes.OK


async def _print(
    terminal: Terminal,
    runtime: Runtime,
    entity: str,
    after: int,
    limit: int | None,
    *,
    follow: bool,
    as_json: bool,
) -> None:
    left, is_known = limit, False
    async for page in pages(runtime.store, entity, after=after):
        is_known = True
        for entry in page if left is None else page[:left]:
            _entry(terminal, entry, as_json=as_json)
        after = page[-1].version
        if left is not None:
            left -= len(page)
            if left <= 0:
                return
    if not is_known and await runtime.store.load(entity) is None:  # nothing more, or nothing at all
        raise NotFoundError(f"no entity `{entity}`", code="entity.unknown", hint="check its name: interlock ls")
    if follow:
        async for entry in runtime.watch(entity, after=after):
            _entry(terminal, entry, as_json=as_json)
            left = None if left is None else left - 1
            if left == 0:
                return


def _entry(terminal: Terminal, entry: Entry, *, as_json: bool) -> None:
    if as_json:
        terminal.data(values.json_line(plain(entry)))
        return
    terminal.report(*values.entry_line(entry))
    if terminal.verbose:
        for line in values.entry_details(entry):
            terminal.report(*line)


@example("interlock ls order --state refund_failed", "interlock ls --tag alert --older 1h")
@click.command(short_help="List entities by kind, state, age and tag.")
@words("[KIND]")
@click.option("--kind", metavar="KIND", help="Of this kind; otherwise of every kind.")
@click.option("--state", metavar="STATE", help="In this state, compound ones too; or :cancelled, :failed.")
@click.option("--tag", metavar="TAG", help="In a state with this tag.")
@click.option("--revision", metavar="REVISION", help="Last written by this revision.")
@click.option("--older", metavar="DURATION", help="There for longer than this, such as 5m or 2d.")
@click.option("--prefix", metavar="TEXT", help="Whose id begins so.")
@click.option("--limit", type=click.IntRange(1, PAGE_MAX), default=50, metavar="N", help="Rows at most (50).")
@click.option("--after", metavar="CURSOR", help="Go on after the last page; needs a kind.")
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
    limit: int,
    after: str | None,
    as_json: bool,
) -> int:
    """List entities, those longest in their state first. Needs no chart.

    Ends with 1 when some had to be left out because they could not be read; `interlock verify` tells why.
    """
    url, (named,) = split_words(words, "KIND", optional=1)
    if named is not None and kind not in (None, named):
        raise click.UsageError(f"of which kind: {named} or {kind}?")
    kind = kind or named
    if after is not None and kind is None:
        raise click.UsageError("--after goes on with one kind; name it")
    older_ms = None if older is None else duration_ms(older, "--older")

    async def work() -> tuple[EntityPage, list[str], int, str]:
        async with opened(url) as runtime:
            now_ms = runtime.clock.now_ms()
            rows: list[EntityRow] = []
            left_out: dict[str, None] = {}
            cursor: str | None = None
            left = [kind] if kind is not None else list(await runtime.store.kinds())
            while left and len(rows) < limit:
                each = left.pop(0)
                query = EntityQuery(
                    kind=each,
                    state=state,
                    entered_before_ms=None if older_ms is None else now_ms - older_ms,
                    tag=tag,
                    revision=revision,
                    prefix=prefix,
                    after=after,
                    limit=limit - len(rows),
                )
                page = await _found(runtime, query)
                rows += page.rows
                left_out |= dict.fromkeys(page.left_out)
                cursor = page.after
            nobody = None if rows else await empty_tenant(url, runtime.store)
            if nobody is not None:
                terminal.note(f"warning: {nobody}")
            why = "" if rows or nobody is not None else await kind_note(runtime, kind)
            return EntityPage(tuple(rows), cursor, tuple(left_out)), left, now_ms, why

    page, left, now_ms, why = run(work())
    code = exit_codes.FINDINGS if page.left_out else exit_codes.OK
    if as_json:
        terminal.data(values.json_text({**plain(page), "kinds_left": left}))
        return code
    for line in values.row_lines(page.rows, now_ms):
        terminal.report(*line)
    if page.after is not None and page.rows:
        shown = page.rows[-1].entity.partition("/")[0]
        terminal.message((f"more: --kind {shown} --after {page.after}", "dim"))
    if left:
        terminal.message((f"not reached: --kind {', '.join(left)}", "dim"))
    if not page.rows:
        terminal.message(f"no entities{why}")
    _tell_left_out(terminal, page.left_out)
    return code


def _tell_left_out(terminal: Terminal, entities: tuple[str, ...]) -> None:
    """What a list does not show, and what tells why."""
    shown = " ".join(entities[:LEFT_OUT_SHOWN_MAX])
    more = len(entities) - LEFT_OUT_SHOWN_MAX
    if entities:
        terminal.note(("left out", "yellow"), f": {shown}{f' and {more:,} more' if more > 0 else ''}")
        is_named = more <= 0 and all("/" in each for each in entities)  # a folder that tells no entity has no name
        terminal.note(("hint: ", "green"), f"interlock verify {shown if is_named else ''}".rstrip(), " tells why")


async def _found(runtime: Runtime, query: EntityQuery) -> EntityPage:
    """A page with something in it, if there is anything: a store may answer a narrow question in several parts."""
    page = await runtime.list(query)
    while not page.rows and page.after is not None:
        fields = {name: getattr(query, name) for name in query.__struct_fields__}
        page = await runtime.list(EntityQuery(**{**fields, "after": page.after}))
    return page


def duration_ms(text: str, option: str) -> int:
    """A duration given on the command line. Raises UsageError when it is none."""
    found = parse_duration(text)
    if found is None:
        raise UsageError(f"{option} is no duration: `{text}`", code="duration.malformed", hint="write 90s, 5m, 2h, 90d")
    return found


@example("interlock replay order/A-1")
@click.command(short_help="Do the steps of a journal again, and compare.")
@words("KIND/ID")
@click.option("--to", "last", type=click.IntRange(min=1), metavar="VERSION", help="Stop after this version.")
@chart_option
@json_option
@common
@pass_terminal
def replay(
    terminal: Terminal, words: tuple[str, ...], *, last: int | None, charts: tuple[str, ...], as_json: bool
) -> int:
    """Do the steps of a journal again, one by one: each entry, what it changed, and whether the chart still agrees.

    Nothing is written, and no effect is performed. Ends with 8 at the first entry that the chart does not give, with 7
    when that entry was written by a revision whose chart is not here.
    """
    url, (entity,) = split_words(words, "KIND/ID")
    assert entity is not None
    bound = loaded_charts(charts, imports=False)

    async def work() -> int:
        async with opened(url, bound) as runtime:
            check_entity(entity)
            snapshot: Snapshot | None = None
            with Progress(terminal, "entries", last) as progress:
                async for page in pages(runtime.store, entity):
                    for entry in page:
                        if last is not None and entry.version > last:
                            return exit_codes.OK
                        code, snapshot = progress.over(
                            _again, terminal, runtime, entity, snapshot, entry, as_json=as_json
                        )
                        if code != exit_codes.OK:
                            return code
                        progress.at(entry.version)
            if snapshot is None:
                raise NotFoundError(f"no entity `{entity}`", code="entity.unknown", hint="check its name: interlock ls")
            return exit_codes.OK

    return run(work())


def _again(
    terminal: Terminal, runtime: Runtime, entity: str, before: Snapshot | None, entry: Entry, *, as_json: bool
) -> tuple[int, Snapshot | None]:
    """Replay one entry and show it; gives the code, and the snapshot after it."""
    kernel = runtime.charts.for_revision(entity.partition("/")[0], entry.revision)
    after: Snapshot | None = None
    faults: tuple[Fault, ...] = ()
    try:
        step = repeat_step(kernel, entity, before, entry)
        after, faults = step.snapshot, step.faults
        problem = difference(entry, before, step)
    except InterlockError as error:
        problem = f"the step fails: {error.message}"
    if as_json:
        told = {"entry": plain(entry), "agrees": problem is None, "difference": problem, "faults": plain(faults)}
        terminal.data(values.json_line({**told, "snapshot": None if after is None else plain(after)}))
    else:
        mark = ("✓", "green") if problem is None else ("✗", "red")
        terminal.report(mark, *values.entry_line(entry))
        changes = scene.context_changes(
            {} if before is None else before.context, {} if after is None else after.context
        )
        for line in changes if after is not None else ():
            terminal.report("      ", *line)
        for line in scene.problem_lines((), faults):
            terminal.report("      ", *line)
    if problem is not None:
        terminal.failure(f"the journal of `{entity}` diverges at version {entry.version}: {problem}")
        if kernel.chart.revision == entry.revision:
            return exit_codes.CORRUPTION, after
        terminal.message(
            f"that entry was written by revision {entry.revision}, whose chart is not here: no damage is proven"
        )
        return exit_codes.UNAVAILABLE, after
    return exit_codes.OK, after
