"""`interlock verify`, `archive`, `db`: verify a store, archive journals, manage its schema and its definitions."""

from __future__ import annotations

from collections import Counter
from contextlib import AsyncExitStack
from urllib.parse import quote

import click

from interlock.assemble.archives import Archives, archive_folder, create_folder
from interlock.cli import exit_codes
from interlock.cli.commands.changes.definitions import definitions
from interlock.cli.commands.operation.index import index
from interlock.cli.options import (
    chart_option,
    common,
    duration_ms,
    example,
    json_option,
    pass_terminal,
    user_name,
    words,
)
from interlock.cli.output.progress import Progress
from interlock.cli.output.terminal import Terminal
from interlock.cli.output.values import count_text, json_line, json_text
from interlock.cli.project import load_charts, load_known_charts, split_names, split_words
from interlock.cli.session import CHECK_NAME, check_exists, empty_tenant, open_for_reading, open_for_writing, run
from interlock.errors import ConflictError, InterlockError, NotFoundError, UsageError
from interlock.model.encoding.codec import to_builtins
from interlock.observe.population import overview
from interlock.ports.store import Store
from interlock.runtime.charts.revisions import Revisions
from interlock.runtime.epoch import leased_work, raise_epoch
from interlock.runtime.erasure import Eraser
from interlock.runtime.history.archive import ArchivedEntity, RetentionRule
from interlock.runtime.history.archive import archive as archive_entities
from interlock.runtime.history.verify import (
    UNKNOWN,
    UNREAD,
    Verification,
    VerificationProblem,
    verify_entity,
    verify_store,
)
from interlock.runtime.message_setting import bus_of, turn_off
from interlock.runtime.request_checks import check_entity
from interlock.runtime.runtime import Runtime
from interlock.stores.registry import all_tenants, grant_script, schema_of, tenant_of, upgrade_script
from interlock.stores.registry import open_store as open_store_url

_CHAIN_NOTE = (
    "each entry has the hash of the entry before it, without a secret key. This detects accidents and partial edits, "
    "but not a journal that was rewritten completely"
)

_COUNTERS = {UNREAD: "unread", UNKNOWN: "missing"}
"""The counters of problems that are neither corruption nor a missing chart."""

ARCHIVES_SHOWN_MAX = 12
"""Archives that `verify` names: one year."""


@example("interlock verify", "interlock verify order/A-1 order/A-2", "interlock verify --chains-only --json")
@click.command
@click.argument("words", nargs=-1, metavar="[URL] [KIND/ID...]")
@click.option("--chains-only", is_flag=True, help="Only hash chains; needs no chart.")
@chart_option
@json_option
@common
@pass_terminal
def verify(
    terminal: Terminal, words: tuple[str, ...], *, chains_only: bool, charts: tuple[str, ...], as_json: bool
) -> int:
    """For the given entities, or for all, it verifies the hash chain of the journal, every step, and the stored
    snapshot. Prints the first problem of each entity.

    Exit code 8 if an entity is corrupt; 7 if one could not be read, or its chart is missing; 6 if a given entity does
    not exist, or if the tenant of the URL has no entities and other tenants have. --json prints one JSON object per
    line.
    """
    url, named = split_names(words)
    for each in named:
        check_entity(each)
    bound = [] if chains_only else load_known_charts(charts)
    counts: Counter[str] = Counter()
    archives: Counter[str] = Counter()

    def report(result: Verification) -> None:
        if result.archive is not None:
            archives[result.archive] += 1
        _report(terminal, result, counts, as_json=as_json)

    async def work() -> None:
        async with open_for_reading(url, bound) as runtime:
            known = None if chains_only else runtime.revisions
            if named:
                for entity in named:
                    report(await _verify_one(runtime.store, known, entity, alone=len(named) == 1))
                return
            with Progress(terminal, "entities", await _entity_count(runtime)) as progress:
                async for result in verify_store(runtime.store, known, now_ms=runtime.clock.now_ms()):
                    progress.over(report, result)
                    progress.at(counts["entities"], f"{counts['corrupt']} corrupt")
            wrong_tenant = None if counts["entities"] else await empty_tenant(url, runtime.store)
            if wrong_tenant is not None:  # nothing was verified, and the user may think that it was
                raise wrong_tenant

    run(work())
    if not as_json:
        terminal.report((_summary(counts, chains_only=chains_only), "bold red" if counts["corrupt"] else "bold"))
        _print_archives(terminal, archives)
        if terminal.verbose:
            terminal.message((_CHAIN_NOTE, "dim"))
        if counts["corrupt"]:
            terminal.message(("hint:", "green"), f" {exit_codes.CORRUPTION_HINT}")
    if counts["corrupt"]:
        return exit_codes.CORRUPTION
    if counts["unreplayed"] or counts["unread"]:
        return exit_codes.UNAVAILABLE
    return exit_codes.NOT_FOUND if counts["missing"] else exit_codes.OK


async def _verify_one(store: Store, revisions: Revisions | None, entity: str, *, alone: bool) -> Verification:
    """Verify a given entity. One of several that does not exist becomes a problem, so that the others are verified."""
    try:
        return await verify_entity(store, revisions, entity)
    except NotFoundError as error:
        if alone or error.code != UNKNOWN:
            raise
        return Verification(entity, problem=VerificationProblem(error.code, f"{error.message}; {CHECK_NAME}"))


def _report(terminal: Terminal, result: Verification, counts: Counter[str], *, as_json: bool) -> None:
    problem = result.problem
    counts["entities"] += problem is None or problem.code != UNKNOWN
    counts["entries"] += result.entries
    if result.archive is not None:
        counts["archived"] += 1
    elif problem is not None:
        counts["corrupt" if problem.is_corruption else _COUNTERS.get(problem.code, "unreplayed")] += 1
    if as_json:
        terminal.data(json_line(to_builtins(result)))
    elif problem is not None:
        mark = ("✗ ", "red") if problem.is_corruption else ("? ", "yellow")
        terminal.report(mark, (result.entity, "bold"), f"  {problem.code}: {problem.message}")
    elif terminal.verbose:
        text = result.archive or f"{result.entries} entries, last hash {result.head}"
        terminal.report(("✓ ", "green"), (result.entity, "bold"), f"  {text}")


def _summary(counts: Counter[str], *, chains_only: bool) -> str:
    what = "chains only" if chains_only else "chains and replay"
    entities = count_text(counts["entities"], "entity", "entities")
    entries = count_text(counts["entries"], "entry", "entries")
    text = f"{entities}, {entries}, {what}: {counts['corrupt']} corrupt"
    if counts["unreplayed"]:
        text += f", {counts['unreplayed']} not replayed (chart missing)"
    if counts["unread"]:
        text += f", {counts['unread']} could not be read"
    if counts["missing"]:
        text += f", {counts['missing']} unknown"
    if counts["archived"]:
        text += f", {counts['archived']} archived"
    return text


def _print_archives(terminal: Terminal, archives: Counter[str]) -> None:
    """How to verify archived journals: a stored URL is never opened automatically."""
    shown = sorted(archives)[-ARCHIVES_SHOWN_MAX:]  # the last months
    for address in shown:
        terminal.report(f"  {archives[address]:,} archived, not verified: interlock verify {address}")
    if len(archives) > len(shown):
        terminal.report(f"  and {len(archives) - len(shown):,} earlier archives; --json lists each")


async def _entity_count(runtime: Runtime) -> int | None:
    """The number of entities, if counters and charts show it. Corrupt counters must not stop the verification."""
    if runtime.store.statistics is None:
        return None
    try:
        found = await overview(runtime)
    except InterlockError:
        return None
    counts = [each.entities if each.is_complete else None for each in found.kinds]
    known = [each for each in counts if each is not None]
    return sum(known) if len(known) == len(counts) else None


@example("interlock archive --kind order --state shipped --older 90d --to file:///var/archive/orders")
@click.command
@words("")
@click.option("--kind", required=True, metavar="KIND", help="Archive entities of this kind.")
@click.option("--state", required=True, metavar="STATE", help="Only entities that ended in this state.")
@click.option("--older", required=True, metavar="DURATION", help="Only if they ended longer ago, such as 90d.")
@click.option("--to", "target", required=True, metavar="file:///FOLDER", help="The folder of the archive.")
@click.option("--dry-run", is_flag=True, help="Only print what would be archived.")
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
    """An archive is a folder with one file store per month; each tenant has its own folder in it.

    Each journal is verified, copied, read back, and then removed from the store. The entity keeps its snapshot and its
    keys. After an interruption run the same command again. --json prints one JSON object per line.
    """
    url, _ = split_words(words)
    home = archive_folder(target)
    if not dry_run:
        create_folder(home)
    bound = load_charts(charts)
    older_ms = duration_ms(older, "--older")
    counts: Counter[str] = Counter()

    async def work() -> None:
        async with open_for_writing(url, bound) as runtime, AsyncExitStack() as stack:
            archives = Archives(tenant_of(url))
            stack.push_async_callback(archives.close)

            async def open_month(month: str) -> tuple[Store, str]:
                return await archives.open(target, month)

            rule = RetentionRule(kind=kind, state=state, entered_before_ms=runtime.clock.now_ms() - older_ms)
            _check_state(runtime, rule)
            with Progress(terminal, "entities") as progress:
                async for each in archive_entities(runtime.store, runtime.revisions, rule, open_month, dry_run=dry_run):
                    counts[each.archived] += 1
                    progress.over(_print_archived, terminal, each, as_json=as_json)
                    progress.at(counts.total(), f"{counts['no']} skipped")

    run(work())
    if not as_json:
        terminal.report((_archive_summary(counts, dry_run=dry_run), "bold"))
    return exit_codes.FINDINGS if counts["no"] else exit_codes.OK


def _check_state(runtime: Runtime, rule: RetentionRule) -> None:
    """Raise NotFoundError for a state that the chart does not have: a typing error must not look like success."""
    chart = runtime.charts.for_new_entity(rule.kind).chart
    if rule.state not in {each.id for each in chart.states}:
        message = f"chart `{rule.kind}` has no state `{rule.state}`"
        raise NotFoundError(message, code="state.unknown", hint="interlock draw shows them")


def _print_archived(terminal: Terminal, each: ArchivedEntity, *, as_json: bool) -> None:
    if as_json:
        terminal.data(json_line(to_builtins(each)))
        return
    entries = count_text(each.entries, "entry", "entries")
    if each.archived == "no":
        terminal.report(("✗ ", "red"), (each.entity, "bold"), f"  skipped: {each.reason}")
    elif each.archived == "before":
        if terminal.verbose:
            terminal.report("· ", (each.entity, "bold"), "  already archived")
    else:
        verb = "would be archived" if each.archived == "would" else "archived"
        terminal.report(("✓ ", "green"), (each.entity, "bold"), f"  {verb} to {each.month}: {entries}")


def _archive_summary(counts: Counter[str], *, dry_run: bool) -> str:
    text = f"{counts['would']} would be archived" if dry_run else f"{counts['yes']} archived"
    if counts["before"]:
        text += f", {counts['before']} already archived"
    return f"{text}, {counts['no']} skipped" if counts["no"] else text


@example(
    "interlock db status sqlite:///orders.db",
    "interlock db upgrade sqlite:///orders.db",
)
@click.group(invoke_without_command=True)
@common
@click.pass_context
def db(context: click.Context) -> None:
    """The schema is the format of the tables or files of a store."""
    if context.invoked_subcommand is None:
        raise click.UsageError("missing command: status, upgrade, tenants, index or definitions")


db.add_command(index)


@example("interlock db status")
@db.command
@words("")
@json_option
@common
@pass_terminal
def status(terminal: Terminal, words: tuple[str, ...], *, as_json: bool) -> int:
    """Prints the version of the store and of this release. Exit code 1 if they differ."""
    url, _ = split_words(words)
    found = run(schema_of(url))
    if found is None:
        raise _no_schema()
    if found.current == 0:
        raise NotFoundError("the store does not exist", code="store.not_found", hint="interlock db upgrade creates it")
    if as_json:
        terminal.data(json_text(to_builtins(found)))
    else:
        layout = "" if found.layout is None else f", layout {found.layout}"
        terminal.report(f"{found.store}: schema {found.current}{layout}; this release uses {found.newest}")
    return exit_codes.OK if found.current == found.newest else exit_codes.FINDINGS


def _no_schema() -> UsageError:
    return UsageError("this store has no schema", code="schema.none")


@example("interlock db upgrade postgresql://host/orders", "interlock db upgrade postgresql://host/orders --dry-run")
@db.command
@words("")
@click.option("--dry-run", is_flag=True, help="Only print the SQL statements; nothing is changed.")
@json_option
@common
@pass_terminal
def upgrade(terminal: Terminal, words: tuple[str, ...], *, dry_run: bool, as_json: bool) -> int:
    """Creates the store if it does not exist.

    Workers also upgrade a store when they open it; this command is for a separate step of a deployment. The statements
    that --dry-run prints are one transaction. It prints nothing when the store is up to date.
    """
    url, _ = split_words(words)
    if dry_run:
        script = run(upgrade_script(url))
        if script is None:
            raise _no_schema()
        terminal.data(json_text({"statements": script}) if as_json else script)
        return exit_codes.OK

    async def work() -> tuple[int, int]:
        before = await schema_of(url)
        if before is None:
            raise _no_schema()
        await (await open_store_url(url)).close()
        after = await schema_of(url)
        assert after is not None
        return before.current, after.current

    old, new = run(work())
    if as_json:
        terminal.data(json_text({"before": old, "after": new}))
    else:
        terminal.report(f"schema {old} → {new}" if old != new else f"schema {new}: up to date")
    return exit_codes.OK


@example("interlock db grants postgresql://owner@host/orders --role orders_app | psql postgresql://owner@host/orders")
@db.command
@words("")
@click.option("--role", required=True, metavar="ROLE", help="The role that programs connect as.")
@common
@pass_terminal
def grants(terminal: Terminal, words: tuple[str, ...], *, role: str) -> int:
    """Run the SQL once, as the owner of the tables. Programs then connect as ROLE with `?migrate=0`, and only the owner
    runs `interlock db upgrade`.
    """
    url, _ = split_words(words)
    terminal.data(grant_script(url, role))
    return exit_codes.OK


@example("interlock db restored sqlite:///orders.db")
@db.command
@words("")
@click.option("--force", is_flag=True, help="Continue even if a worker has leased work.")
@json_option
@common
@pass_terminal
def restored(terminal: Terminal, words: tuple[str, ...], *, force: bool, as_json: bool) -> int:
    """Run it once after restoring an older copy of the store, before any worker starts.

    Keys of new effects contain the restore epoch. Without a new epoch they repeat keys that were used after the copy
    was made, and other systems take new effects for duplicates. With a keyring (INTERLOCK_KEYRING) the command also
    repeats erasures that the copy lacks. Exit code 3 if a worker has leased work.
    """
    url, _ = split_words(words)

    async def work() -> tuple[int, tuple[str, ...] | None]:
        async with open_for_writing(url) as runtime:
            leased = await leased_work(runtime.store, now_ms=runtime.clock.now_ms())
            if leased is not None and not force:
                message = f"a worker has leased `{leased.work.key(leased.entity)}`"
                hint = "stop all workers and wait until their leases expire; or, if none is running, add --force"
                raise ConflictError(message, code="epoch.worker", hint=hint)
            epoch = await raise_epoch(runtime.store, by=user_name(), now_ms=runtime.clock.now_ms())
            if runtime.vault is None:
                return epoch, None
            eraser = Eraser(runtime.entities, runtime.sender)
            return epoch, await eraser.reapply(await runtime.store.kinds(), reason="erased before the restore")

    epoch, erased = run(work())
    if as_json:
        terminal.data(json_text({"epoch": epoch, "erased": erased}))
    else:
        if erased is None:
            terminal.message("without INTERLOCK_KEYRING no erasure was applied again")
        elif erased:
            terminal.report(
                f"erased again: {', '.join(erased[:10])}{f' and {len(erased) - 10:,} more' * (len(erased) > 10)}"
            )
        terminal.report((f"restore epoch {epoch}", "bold"), ": effects from now on have keys that were never used")
        terminal.message("check what was done after the copy was made: it is in no journal of this store")
    return exit_codes.OK


@example("interlock db messages sqlite:///orders.db", "interlock db messages sqlite:///orders.db --off")
@db.command
@words("")
@click.option("--off", is_flag=True, help="Stop publishing; pending messages are kept.")
@json_option
@common
@pass_terminal
def messages(terminal: Terminal, words: tuple[str, ...], *, off: bool, as_json: bool) -> int:
    """Prints whether entries are published, and to which bus. A runtime that is opened with a bus turns publishing on.

    The setting applies to every process that writes to the store; running ones follow it within seconds.
    """
    url, _ = split_words(words)

    async def work() -> str | None:
        async with open_for_writing(url) if off else open_for_reading(url) as runtime:
            if runtime.store.facts is None:
                raise UsageError("this store has no settings", code="store.facts")
            if off:
                await turn_off(runtime.store, by=user_name(), now_ms=runtime.clock.now_ms())
            return await bus_of(runtime.store)

    bus = run(work())
    if as_json:
        terminal.data(json_text({"published": bus is not None, "bus": bus or None}))
    elif bus is None:
        terminal.report("entries are not published")
    else:
        terminal.report(f"entries are published{f' to {bus}' if bus else ''}")
    return exit_codes.OK


@example("interlock db tenants sqlite:///shared.db")
@db.command
@words("")
@json_option
@common
@pass_terminal
def tenants(terminal: Terminal, words: tuple[str, ...], *, as_json: bool) -> int:
    """Prints all tenants that have entities in the store, whichever tenant the URL names.

    One per line, encoded as in `?tenant=`; the default tenant is an empty line. --json prints a list of names.
    """
    url, _ = split_words(words)

    async def work() -> tuple[str, ...]:
        await check_exists(url)
        return await all_tenants(url)

    found = run(work())
    if as_json:
        terminal.data(json_text(list(found)))
    else:
        terminal.data("".join(f"{quote(each, safe='')}\n" for each in found))
    return exit_codes.OK


db.add_command(definitions)
