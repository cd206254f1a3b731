"""`interlock verify`, `archive`, `db`: whether a store is sound, what leaves it, and how old it is."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from urllib.parse import quote, unquote, urlencode, urlsplit

import click

from interlock.cli import exit_codes
from interlock.cli.commands.history import duration_ms
from interlock.cli.options import common, example, json_option, pass_terminal
from interlock.cli.output import values
from interlock.cli.output.progress import Progress
from interlock.cli.output.terminal import Terminal
from interlock.cli.session import chart_option, check_store, loaded_charts, opened, run, split_names, split_words, words
from interlock.cli.tenants import empty_tenant
from interlock.errors import InterlockError, NotFoundError, UsageError
from interlock.model.codec import plain
from interlock.observe.fleet import fleet
from interlock.ports.statistics import Statistics
from interlock.ports.store import Store
from interlock.runtime.chart_registry import ChartRegistry
from interlock.runtime.history.archive import ArchivedEntity, RetentionRule
from interlock.runtime.history.archive import archive as archived
from interlock.runtime.history.verify import (
    UNKNOWN,
    UNREAD,
    Verification,
    VerificationProblem,
    verify_entity,
    verify_store,
)
from interlock.runtime.request_checks import check_entity
from interlock.runtime.runtime import Runtime
from interlock.stores.files.names import tenant_folder
from interlock.stores.registry import all_tenants, open_store, schema_of, tenant_of

_PROOF = (
    "proof: each entry is chained to the one before by a hash without a key. That shows accidents and clumsy edits; "
    "whoever can write the whole journal anew can write its hashes too"
)


_NOT_JUDGED = {UNREAD: "unread", UNKNOWN: "missing"}
"""How problems are counted that are neither damage nor the want of a chart."""
ARCHIVES_SHOWN_MAX = 12
"""Archives that `verify` names: those of a year."""


@example("interlock verify", "interlock verify order/A-1 order/A-2", "interlock verify --chains-only --json")
@click.command(short_help="Check the chains of journals, and replay every entity.")
@click.argument("words", nargs=-1, metavar="[URL] [KIND/ID...]")
@click.option("--chains-only", is_flag=True, help="Only the links of the journals; needs no chart.")
@chart_option
@json_option
@common
@pass_terminal
def verify(
    terminal: Terminal, words: tuple[str, ...], *, chains_only: bool, charts: tuple[str, ...], as_json: bool
) -> int:
    """Check the chains of journals, do every step again, and compare with the snapshots kept: of the entities named,
    or of all.

    Tells the first bad link or divergence of each entity, and goes on to the others. Ends with 8 when one is damaged,
    with 7 when one could not be read, or not be judged for want of its chart, with 6 when one that was named is not
    there, or nobody is of the address's tenant and others are. With --json one JSON object to a line.
    """
    url, named = split_names(words)
    for each in named:
        check_entity(each)
    otherwise = "check the links alone with --chains-only"
    bound = [] if chains_only else loaded_charts(charts, otherwise=otherwise, imports=False)
    counts: Counter[str] = Counter()
    archives: Counter[str] = Counter()

    def judged(proof: Verification) -> None:
        if proof.archive is not None:
            archives[proof.archive] += 1
        _judged(terminal, proof, counts, as_json=as_json)

    async def work() -> None:
        async with opened(url, bound) as runtime:
            known = None if chains_only else runtime.charts
            if named:
                for entity in named:
                    judged(await _verified(runtime.store, known, entity, alone=len(named) == 1))
                return
            with Progress(terminal, "entities", await _how_many(runtime)) as progress:
                async for proof in verify_store(runtime.store, known, now_ms=runtime.clock.now_ms()):
                    progress.over(judged, proof)
                    progress.at(counts["entities"], f"{counts['damaged']} damaged")
            nobody = None if counts["entities"] else await empty_tenant(url, runtime.store)
            if nobody is not None:  # nothing was proven, and somebody thinks that it was
                raise nobody

    run(work())
    if not as_json:
        terminal.report((_sum(counts, chains_only=chains_only), "bold red" if counts["damaged"] else "bold"))
        _tell_archives(terminal, archives)
        if terminal.verbose:
            terminal.message((_PROOF, "dim"))
        if counts["damaged"]:
            terminal.message(("hint: ", "green"), exit_codes.DAMAGED_HINT)
    if counts["damaged"]:
        return exit_codes.CORRUPTION
    if counts["unproven"] or counts["unread"]:
        return exit_codes.UNAVAILABLE
    return exit_codes.NOT_FOUND if counts["missing"] else exit_codes.OK


async def _verified(store: Store, charts: ChartRegistry | None, entity: str, *, alone: bool) -> Verification:
    """The proof of an entity that was named; one that is not there does not keep the others from being looked at."""
    try:
        return await verify_entity(store, charts, entity)
    except NotFoundError as error:
        if alone or error.code != UNKNOWN:
            raise
        return Verification(
            entity, problem=VerificationProblem(error.code, f"{error.message}; check its name: interlock ls")
        )


def _judged(terminal: Terminal, proof: Verification, counts: Counter[str], *, as_json: bool) -> None:
    problem = proof.problem
    counts["entities"] += problem is None or problem.code != UNKNOWN
    counts["entries"] += proof.entries
    if proof.archive is not None:
        counts["archived"] += 1
    elif problem is not None:
        counts["damaged" if problem.is_corruption else _NOT_JUDGED.get(problem.code, "unproven")] += 1
    if as_json:
        terminal.data(values.json_line(plain(proof)))
    elif problem is not None:
        mark = ("✗ ", "red") if problem.is_corruption else ("? ", "yellow")
        terminal.report(mark, (proof.entity, "bold"), f"  {problem.code}: {problem.message}")
    elif terminal.verbose:
        told = proof.archive or f"{proof.entries} entries, head {proof.head}"
        terminal.report(("✓ ", "green"), (proof.entity, "bold"), f"  {told}")


def _sum(counts: Counter[str], *, chains_only: bool) -> str:
    what = "chains only" if chains_only else "chains and replay"
    entities = values.counted(counts["entities"], "entity", "entities")
    entries = values.counted(counts["entries"], "entry", "entries")
    told = f"{entities}, {entries}, {what}: {counts['damaged']} damaged"
    if counts["unproven"]:
        told += f", {counts['unproven']} not replayed for want of a chart"
    if counts["unread"]:
        told += f", {counts['unread']} could not be read"
    if counts["missing"]:
        told += f", {counts['missing']} not there"
    if counts["archived"]:
        told += f", {counts['archived']} in an archive"
    return told


def _tell_archives(terminal: Terminal, archives: Counter[str]) -> None:
    """How to prove what is elsewhere: nothing here follows an address by itself."""
    shown = sorted(archives)[-ARCHIVES_SHOWN_MAX:]  # the last months
    for address in shown:
        terminal.report(f"  {archives[address]:,} not looked at: interlock verify {address}")
    if len(archives) > len(shown):
        terminal.report(f"  and {len(archives) - len(shown):,} earlier archives; --json names each")


async def _how_many(runtime: Runtime) -> int | None:
    """How many entities there are, where counters and charts tell; nothing that is damaged may hold up the proof."""
    if not isinstance(runtime.store, Statistics):
        return None
    try:
        found = await fleet(runtime, None)
    except InterlockError:
        return None
    counts = [None if each.more else each.entities for each in found.kinds]
    known = [each for each in counts if each is not None]
    return sum(known) if len(known) == len(counts) else None


@example("interlock archive --kind order --state shipped --older 90d --to file:///var/archive/orders")
@click.command(short_help="Move the journals of ended entities to an archive.")
@words("")
@click.option("--kind", required=True, metavar="KIND", help="Entities of this kind ...")
@click.option("--state", required=True, metavar="STATE", help="... that ended in this state ...")
@click.option("--older", required=True, metavar="DURATION", help="... longer ago than this, such as 90d.")
@click.option("--to", "target", required=True, metavar="file:///FOLDER", help="The folder of the archive.")
@click.option("--dry-run", is_flag=True, help="Only say what would be archived.")
@chart_option
@json_option
@common
@pass_terminal
def archive(
    terminal: Terminal,
    words: tuple[str, ...],
    *,
    kind: str,
    state: str,
    older: str,
    target: str,
    dry_run: bool,
    charts: tuple[str, ...],
    as_json: bool,
) -> int:
    """Move the journals of ended entities to an archive: a file store for each month below the folder; those of a
    tenant below a folder of its own.

    Each journal is proven, copied, read back, and only then released; the entity itself stays, with its snapshot and
    its keys. Interrupted, the same command goes on. With --json one JSON object to a line.
    """
    url, _ = split_words(words)
    folder = _folder(target)
    bound = loaded_charts(charts)
    older_ms = duration_ms(older, "--older")
    counts: Counter[str] = Counter()

    async def work() -> None:
        async with opened(url, bound) as runtime, AsyncExitStack() as stack:
            tenant = tenant_of(url)
            home = folder / tenant_folder(tenant) if tenant else folder
            if not dry_run:
                _make(folder)
                _make(home)
            months: dict[str, Store] = {}

            async def opened_month(month: str) -> tuple[Store, str]:
                address = (home / month).absolute().as_uri()
                if month not in months:
                    months[month] = await open_store(f"{address}?{urlencode({'tenant': tenant})}")
                    stack.push_async_callback(months[month].close)
                return months[month], address

            rule = RetentionRule(kind=kind, state=state, entered_before_ms=runtime.clock.now_ms() - older_ms)
            _check_state(runtime, rule)
            with Progress(terminal, "entities") as progress:
                async for each in archived(runtime.store, runtime.charts, rule, opened_month, dry_run=dry_run):
                    counts[each.archived] += 1
                    progress.over(_moved, terminal, each, as_json=as_json)
                    progress.at(counts.total(), f"{counts['no']} kept here")

    run(work())
    if not as_json:
        terminal.report((_moved_sum(counts, dry_run=dry_run), "bold"))
    return exit_codes.FINDINGS if counts["no"] else exit_codes.OK


def _check_state(runtime: Runtime, rule: RetentionRule) -> None:
    """Raises NotFoundError for a state that no chart of the kind has: a typing error must not look like no work."""
    chart = runtime.charts.for_new_entity(rule.kind).chart
    if rule.state not in {each.id for each in chart.states}:
        message = f"chart `{rule.kind}` has no state `{rule.state}`"
        raise NotFoundError(message, code="state.unknown", hint="interlock draw shows them")


def _folder(target: str) -> Path:
    parts = urlsplit(target)
    if parts.scheme != "file" or parts.netloc not in {"", "localhost"} or not parts.path or parts.query:
        hint = "write --to file:///var/archive/orders"
        raise UsageError(f"`{target}` names no folder for an archive", code="archive.target", hint=hint)
    return Path(unquote(parts.path))


def _make(folder: Path) -> None:
    """The archive's folder, there for good: its name is flushed before anything is released on its account."""
    if not folder.parent.is_dir():
        raise NotFoundError(f"there is no folder {folder.parent}", code="archive.folder", hint="make it first")
    folder.mkdir(mode=0o700, exist_ok=True)
    descriptor = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _moved(terminal: Terminal, each: ArchivedEntity, *, as_json: bool) -> None:
    if as_json:
        terminal.data(values.json_line(plain(each)))
        return
    entries = values.counted(each.entries, "entry", "entries")
    if each.archived == "no":
        terminal.report(("✗ ", "red"), (each.entity, "bold"), f"  kept here: {each.reason}")
    elif each.archived == "before":
        if terminal.verbose:
            terminal.report("· ", (each.entity, "bold"), "  archived before")
    else:
        verb = "would go" if each.archived == "would" else "went"
        terminal.report(("✓ ", "green"), (each.entity, "bold"), f"  {verb} to {each.month}: {entries}")


def _moved_sum(counts: Counter[str], *, dry_run: bool) -> str:
    told = f"{counts['would']} would be archived" if dry_run else f"{counts['yes']} archived"
    if counts["before"]:
        told += f", {counts['before']} before"
    return f"{told}, {counts['no']} kept here" if counts["no"] else told


@click.group(short_help="Tell the schema of a store or upgrade it; list its tenants.", invoke_without_command=True)
@common
@click.pass_context
def db(context: click.Context) -> None:
    """Tell or bring up to date the schema of a store, or list its tenants."""
    if context.invoked_subcommand is None:
        raise click.UsageError("say what to do: status, upgrade or tenants")


@example("interlock db status")
@db.command(short_help="Tell which schema a store has.")
@words("")
@json_option
@common
@pass_terminal
def status(terminal: Terminal, words: tuple[str, ...], *, as_json: bool) -> int:
    """Tell which schema or format a store has and which one this release knows; nothing is changed.

    Ends with 1 when the store is older or newer than this release.
    """
    url, _ = split_words(words)
    found = run(schema_of(url))
    if found is None:
        raise UsageError("this store keeps no schema", code="schema.none")
    if found.current == 0:
        raise NotFoundError("there is no store yet", code="store.not_found", hint="interlock db upgrade makes one")
    if as_json:
        terminal.data(values.json_text(plain(found)))
    else:
        layout = "" if found.layout is None else f", layout {found.layout}"
        terminal.report(f"{found.store}: schema {found.current}{layout}; this release knows {found.newest}")
    return exit_codes.OK if found.current == found.newest else exit_codes.FINDINGS


@example("interlock db upgrade postgresql://host/orders")
@db.command(short_help="Bring the schema of a store up to date.")
@words("")
@json_option
@common
@pass_terminal
def upgrade(terminal: Terminal, words: tuple[str, ...], *, as_json: bool) -> int:
    """Bring the schema of a store up to date, or make the store.

    Opening a store does the same; this does nothing else, so that it can be a step of its own before a deployment.
    """
    url, _ = split_words(words)

    async def work() -> tuple[int, int]:
        before = await schema_of(url)
        if before is None:
            raise UsageError("this store keeps no schema", code="schema.none")
        await (await open_store(url)).close()
        after = await schema_of(url)
        assert after is not None
        return before.current, after.current

    old, new = run(work())
    if as_json:
        terminal.data(values.json_text({"before": old, "after": new}))
    else:
        terminal.report(f"schema {old} → {new}" if old != new else f"schema {new}: up to date")
    return exit_codes.OK


@example("interlock db tenants sqlite:///shared.db")
@db.command(short_help="List the tenants that have entities in a store.")
@words("")
@json_option
@common
@pass_terminal
def tenants(terminal: Terminal, words: tuple[str, ...], *, as_json: bool) -> int:
    """List the tenants that have entities at the place of a store, whichever its address names; nothing is changed.

    One to a line, as it is written behind `?tenant=`; the one without a name is an empty line. With --json a list of
    the names themselves.
    """
    url, _ = split_words(words)

    async def work() -> tuple[str, ...]:
        await check_store(url)
        return await all_tenants(url)

    found = run(work())
    if as_json:
        terminal.data(values.json_text(list(found)))
    else:
        terminal.data("".join(f"{quote(each, safe='')}\n" for each in found))
    return exit_codes.OK
