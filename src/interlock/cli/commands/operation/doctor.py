"""`interlock doctor`: checks of this machine and of a store, with fixes.

Rule 1: it changes nothing. A check that fails does not stop the others.
Rule 2: `✓` is ok, `!` a warning, `✗` an error; warnings and errors have a fix.
Rule 3: the exit code is 1 if there is an error, otherwise 0.
"""

from __future__ import annotations

import platform
import shutil
import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from importlib.machinery import PathFinder
from itertools import groupby
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

import click
from msgspec import Struct, to_builtins

from interlock.assemble.charts import BoundChart
from interlock.cli import exit_codes
from interlock.cli.options import chart_option, common, example, json_option, pass_terminal, version_text, words
from interlock.cli.output.terminal import Line, Terminal
from interlock.cli.output.values import age_text, count_text, json_text, time_text
from interlock.cli.project import default_store, load_known_charts, split_words
from interlock.cli.session import empty_tenant, open_for_reading, run
from interlock.effects.unsupported_work import work_outstanding, work_used_by
from interlock.errors import InterlockError, UsageError
from interlock.model.limits import CLOCK_AHEAD_MS_MAX
from interlock.observe.stuck import dead_letters, missing_revisions, overdue_work, stuck_entities
from interlock.operate.dead_letters import key_of
from interlock.ports.clock import SystemClock
from interlock.ports.definitions import newest_edition, outdated_editions
from interlock.ports.store import PAGE_MAX, EntityQuery, Loaded
from interlock.runtime.erasure import Eraser
from interlock.runtime.message_setting import bus_of
from interlock.runtime.runtime import Runtime
from interlock.runtime.worker.clock_repair import find_future_stamped
from interlock.shm.memory.modes import select_mode
from interlock.stores.registry import Schema, audit_privileges, schema_of, without_password
from interlock.stores.sql.store import SqlStore
from interlock.stores.sqlite.connection import (
    LIBRARY_CHECKPOINTS_SAFELY,
    LIBRARY_MIN,
    NETWORK_FILE_SYSTEMS,
    file_system,
)
from interlock.stores.sqlite.store import SqliteStore, address

EXTRAS = {
    "postgres": ("asyncpg", ("postgres", "postgresql")),
    "web": ("starlette", ()),
    "personal": ("cryptography", ()),
    "png": ("resvg_py", ()),
    "nats": ("nats", ()),
    "kafka": ("confluent_kafka", ()),
    "rabbitmq": ("aio_pika", ()),
    "redis": ("redis", ()),
    "temporal": ("temporalio", ()),
}
"""The module of each extra, and the URL schemes of stores that need it."""

FREE_BYTES_MIN, FREE_BYTES_LOW = 64 << 20, 1 << 30
"""Below the first a store soon cannot write; below the second there is a warning."""

ENTITIES_CHECKED_MAX = 100
"""Entities of a kind that are checked for pending work if no chart is loaded."""

Status = Literal["ok", "warning", "error"]
_MARKS: dict[Status, tuple[str, str]] = {
    "ok": ("✓", "green"),
    "warning": ("!", "yellow"),
    "error": ("✗", "bold red"),
}


class Check(Struct, frozen=True):
    """One check. `fix` is set for a warning or an error."""

    name: str
    status: Status
    detail: str
    fix: str | None = None


@example("interlock doctor", "interlock doctor sqlite:///orders.db --chart order.interlock.yaml")
@click.command
@words("")
@chart_option
@json_option
@common
@pass_terminal
def doctor(terminal: Terminal, words: tuple[str, ...], *, charts: tuple[str, ...], as_json: bool) -> int:
    """Checks Python, extras, SQLite, shared memory and the clock. With a store it also checks its file system, disk
    space, schema, overdue work, dead letters, timestamps in the future, and stuck entities.

    Prints a fix with each problem, and changes nothing. Exit code 1 if there is an error.
    """
    url = _store_url(words)
    checks = [*machine_checks(url)]
    if url is not None:
        checks += run(store_checks(url, load_known_charts(charts)))
    errors = sum(each.status == "error" for each in checks)
    if as_json:
        terminal.data(json_text({"ok": not errors, "checks": [to_builtins(each) for each in checks]}))
    else:
        for line in _lines(checks):
            terminal.report(*line)
        if url is None:
            terminal.message(("no store given: only this machine was checked", "dim"))
    return exit_codes.FINDINGS if errors else exit_codes.OK


def _store_url(words: Sequence[str]) -> str | None:
    if not words:
        try:
            return default_store()
        except UsageError as error:
            if error.code == "store.missing":
                return None
            raise
    return split_words(words)[0]


def _lines(checks: Sequence[Check]) -> Iterator[Line]:
    width = max(len(each.name) for each in checks)
    for each in checks:
        yield (_MARKS[each.status], f" {each.name:<{width}}  {each.detail}")
        if each.fix is not None and each.status != "ok":
            yield (f"  {'':<{width}}  ", (f"fix: {each.fix}", "dim"))


# The machine


def machine_checks(url: str | None) -> Iterator[Check]:
    """Yield the checks without a store; the URL only shows which extra it needs."""
    yield Check("python", "ok", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    yield Check("interlock", "ok", version_text())
    yield from _extras("" if url is None else url.partition(":")[0])
    yield _sqlite()
    yield _shared_memory()


def _extras(scheme: str) -> Iterator[Check]:
    """The installed extras, and an error for a missing one that the store needs."""
    present = [name for name, (module, _) in EXTRAS.items() if _is_installed(module)]
    absent = [name for name in EXTRAS if name not in present]
    text = ", ".join(present) or "none"
    yield Check("extras", "ok", f"{text} (not installed: {', '.join(absent)})" if absent else text)
    for name in absent:
        if scheme in EXTRAS[name][1]:
            yield Check("extra", "error", f"{scheme}: needs `{name}`", f"pip install 'interlock[{name}]'")


def _is_installed(module: str) -> bool:
    """Whether it can be imported. It is not imported, because some are slow."""
    return PathFinder.find_spec(module) is not None


def _sqlite() -> Check:
    if sqlite3.sqlite_version_info < LIBRARY_MIN:
        wanted = ".".join(map(str, LIBRARY_MIN))
        return Check(
            "sqlite", "error", f"library {sqlite3.sqlite_version}", f"use a Python with SQLite {wanted} or newer"
        )
    return Check("sqlite", "ok", f"library {sqlite3.sqlite_version}")


def _shared_file() -> Check:
    """Whether other programs may checkpoint a file that they share with the store: ours take turns by themselves."""
    if sqlite3.sqlite_version_info >= LIBRARY_CHECKPOINTS_SAFELY:
        return Check("shared file", "ok", "the application's tables are in the file of the store")
    wanted = ".".join(map(str, LIBRARY_CHECKPOINTS_SAFELY))
    text = f"library {sqlite3.sqlite_version}: checkpoints of the application can damage the file that it shares"
    fix = f"use SQLite {wanted} or newer, or PRAGMA wal_autocheckpoint = 0 on each connection of the application"
    return Check("shared file", "warning", text, fix)


def _shared_memory() -> Check:
    try:
        mode = select_mode()
    except InterlockError as error:
        return Check("shared memory", "warning", error.message, error.hint)
    if mode == "native":
        return Check("shared memory", "ok", "C core")
    fix = "install a wheel, or a compiler for the C core"
    return Check("shared memory", "warning", f"slower fallback {mode}", fix)


# A store


async def store_checks(url: str, charts: Sequence[BoundChart]) -> list[Check]:
    """Return the checks of a store, as many as are possible."""
    found: list[Check] = []
    try:
        schema = await schema_of(url)
        found.append(_schema(url, schema))
        place = _place(url)
        if place is not None:
            found += _disk(place)
        if schema is not None and schema.current < schema.newest:  # opening it would create or upgrade it
            return found
        found += [each async for each in _privileges(url)]
        async with open_for_reading(url, charts) as runtime:
            wrong_tenant = await empty_tenant(url, runtime.store)
            if wrong_tenant is not None:
                found.append(Check("tenant", "warning", wrong_tenant.message, wrong_tenant.hint))
            found += [each async for each in _signals(runtime)]
            found += [each async for each in _outdated(runtime)]
            found += [each async for each in _personal(runtime)]
            found += [each async for each in _work(runtime, has_charts=bool(charts))]
    except InterlockError as error:
        found.append(Check("store", "error", error.message, error.hint))
    except OSError as error:
        found.append(Check("store", "error", f"{error.filename}: {error.strerror}"))
    return found


async def _privileges(url: str) -> AsyncIterator[Check]:
    """Whether the role of the address could change the audit."""
    found = await audit_privileges(url)
    if found:
        detail = f"the role of this address may {', '.join(found)} rows of the audit: it owns the tables"
        fix = "connect programs as a separate role: interlock db grants --role NAME prints its SQL"
        yield Check("audit", "warning", detail, fix)


async def _signals(runtime: Runtime) -> AsyncIterator[Check]:
    """Whether entries are published, and whether processes can wake each other."""
    store = runtime.store
    bus = await bus_of(store)
    if bus is not None:
        yield Check("messages", "ok", f"entries are published{f' to {bus}' if bus else ''}")
    if bus is not None and bus.startswith("nats:"):
        text = "JetStream confirms a message before it is flushed, unless the server has sync_interval: always"
        yield Check("nats", "warning", text, "set `sync_interval: always` in `jetstream` of the server, or replicate")
    if isinstance(store, SqliteStore) and store.database.prefix:
        yield _shared_file()
    if isinstance(store, SqlStore) and not await store.wakeups.arrive():
        text = "notifications do not arrive; workers find the work of other processes by polling, within a second"
        fix = "connect to the server directly, or through a pooler in session mode: LISTEN needs it"
        yield Check("wake-ups", "warning", text, fix)


async def _personal(runtime: Runtime) -> AsyncIterator[Check]:
    """The keys of personal data: whether the keyring has their epochs, and whether erased entities are readable."""
    keys = runtime.store.data_keys
    counts = {} if keys is None else await keys.count_keys()
    names = [each async for each in _named_by_address(runtime)]
    if names:
        text = f"ids that look like e-mail addresses, which no erasure reaches: {', '.join(names[:3])}"
        yield Check("personal ids", "warning", text, "use opaque ids, such as a customer number")
    if not counts:
        return
    if runtime.vault is None:
        text = f"{sum(counts.values()):,} data keys; not checked, because INTERLOCK_KEYRING is not set"
        yield Check("data keys", "warning", text, "set INTERLOCK_KEYRING, such as file:keyring.json")
        return
    lost = [str(each) for each in counts if each not in runtime.vault.keyring.epochs()]
    if lost:
        text = f"the keyring has no master key for epoch {', '.join(lost)}: data keys cannot be read"
        yield Check("data keys", "error", text, "use the keyring of this store")
        return
    yield Check("data keys", "ok", f"{sum(counts.values()):,}, in {count_text(len(counts), 'epoch', 'epochs')}")
    revived = [
        entity async for entity, _ in Eraser(runtime.entities, runtime.sender).revived(await runtime.store.kinds())
    ]
    if revived:
        text = f"{len(revived):,} erased entities are readable again, such as {revived[0]}: a copy was restored"
        yield Check("erasures", "error", text, "interlock db restored")
    else:
        yield Check("erasures", "ok", "no erased entity is readable")


async def _named_by_address(runtime: Runtime) -> AsyncIterator[str]:
    """Yield ids with an `@` among the first entities of each kind."""
    for kind in await runtime.store.kinds():
        page = await runtime.store.find(EntityQuery(kind=kind, limit=ENTITIES_CHECKED_MAX))
        for row in page.rows:
            if "@" in row.entity:
                yield row.entity


async def _outdated(runtime: Runtime) -> AsyncIterator[Check]:
    """Editions of charts that a process with an old text saved after a newer one."""
    definitions = runtime.store.definitions
    saved = () if definitions is None else await definitions.list_definitions()
    for kind, editions in groupby(saved, key=lambda each: each.kind):
        of_kind = tuple(editions)
        newest, outdated = newest_edition(of_kind), outdated_editions(of_kind)
        if newest is not None and outdated:
            last = outdated[-1]
            text = f"`{kind}` {last.label} was first saved after {newest.label}: a process serves an old chart"
            fix = f"deploy `{kind}` {newest.label} there; or, if {last.label} is the newer one, raise its label"
            yield Check("outdated charts", "warning", text, fix)


def _schema(url: str, schema: Schema | None) -> Check:
    where = without_password(url)
    if schema is None:
        return Check("store", "ok", f"{where}, without a schema")
    if schema.current == 0:
        return Check("store", "warning", f"{where} does not exist", "interlock create, or db upgrade, creates it")
    text = f"{where}, schema {schema.current}"
    if schema.current < schema.newest:
        return Check("store", "warning", f"{text} of {schema.newest}", "interlock db upgrade")
    if schema.current > schema.newest:
        fix = f"upgrade interlock: this release uses schema {schema.newest}"
        return Check("store", "error", f"{text} is of a newer release", fix)
    return Check("store", "ok", text)


def _place(url: str) -> Path | None:
    """The path of a store on this machine; None for a server."""
    match url.partition(":")[0]:
        case "sqlite":
            return address(url)[0].absolute()
        case "file":
            return Path(unquote(urlsplit(url).path)).absolute()
        case _:
            return None


def _disk(place: Path) -> Iterator[Check]:
    """The file system, its free space, and whether the clock is behind the last write."""
    folder = next(each for each in (place, *place.parents) if each.is_dir())
    kind = file_system(folder / "any")
    if kind in NETWORK_FILE_SYSTEMS:
        yield Check("file system", "error", f"{kind}: locks do not work across machines", "use a local disk")
    else:
        yield Check("file system", "ok", kind or "unknown")
    free = shutil.disk_usage(folder).free
    status: Status = "error" if free < FREE_BYTES_MIN else "warning" if free < FREE_BYTES_LOW else "ok"
    fix = None if status == "ok" else "free some space, or archive ended entities: interlock archive"
    yield Check("disk", status, f"{free / 2**30:,.1f} GiB free", fix)
    modified_ms = max((_modified_ms(each) for each in (place, place.with_name(f"{place.name}-wal"))), default=0)
    ahead_ms = modified_ms - SystemClock().now_ms()
    if ahead_ms > CLOCK_AHEAD_MS_MAX:
        text = f"the store was modified {age_text(ahead_ms)} in the future"
        yield Check("clock", "error", text, "set this machine's clock and keep it with NTP: timers depend on it")
    else:
        yield Check("clock", "ok", time_text(SystemClock().now_ms()))


def _modified_ms(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns // 1_000_000
    except OSError:
        return 0


async def _work(runtime: Runtime, *, has_charts: bool) -> AsyncIterator[Check]:
    """Work, times, revisions and stuck entities."""
    if runtime.store.work is not None:
        async for each in _work_checks(runtime):
            yield each
    elif runtime.store.engine is None:
        yield await _unsupported_work(runtime)
    yield await _times(runtime)
    if has_charts:
        missing = await missing_revisions(runtime)
        if missing:
            reasons = "; ".join(each.reason for each in missing)
            yield Check("revisions", "warning", f"entities wait: {reasons}", missing[0].hint)
        else:
            yield Check("revisions", "ok", "all revisions have a definition")
        stuck = len(await stuck_entities(runtime, None, PAGE_MAX))
        yield _count_check("entities", stuck, stuck < PAGE_MAX, "longer in a state than expected", "interlock stuck")


async def _work_checks(runtime: Runtime) -> AsyncIterator[Check]:
    overdue, is_complete = await overdue_work(runtime, None)
    expired = sum(row.owner is not None for row in overdue)
    yield _count_check("work", len(overdue) - expired, is_complete, "overdue", "start a worker that has its handlers")
    what = "leased by a worker that is no longer running"
    yield _count_check("leases", expired, is_complete, what, "start a worker; it claims them again")
    dead = len(await dead_letters(runtime, None))
    fix = "interlock effects ls --dead, then retry or drop"
    yield _count_check("dead letters", dead, dead < PAGE_MAX, "", fix)


async def _times(runtime: Runtime) -> Check:
    """Times in the future: a clock was ahead when they were written, or is behind now."""
    ahead = await find_future_stamped(runtime.store, now_ms=runtime.clock.now_ms())
    more = "+" if ahead.is_partial else ""
    counts = {
        "entities": len(ahead.entities),
        "leases": len(ahead.leases),
        "timers": len(ahead.timers),
        "pieces of work": len(ahead.work),
        "downtimes": ahead.downtimes,
    }
    found = [f"{count:,}{more} {name}" for name, count in counts.items() if count]
    if not found:
        return Check("times", "ok", "none in the future")
    rows = (*ahead.leases, *ahead.timers, *ahead.work)
    which = key_of(rows[0]) if rows else ahead.entities[0] if ahead.entities else ""
    text = f"in the future: {', '.join(found)}{f', such as {which}' if which else ''}: a clock was ahead"
    fix = "set the clock with NTP, then start a worker, which runs what the wrong clock delayed"
    if rows:
        fix = f"{fix}; or, for one: interlock effects retry {which} --force"
    return Check("times", "warning", text, fix)


async def _unsupported_work(runtime: Runtime) -> Check:
    """A store that does not run effects, and the effects that its charts or entities request."""
    charts = runtime.charts
    used = work_used_by(each.chart for kind in charts.kinds() for each in charts.revisions(kind).values())
    text = "; ".join(f"{', '.join(names)} of {kind}" for kind, names in used.items()) or await _requested_work(runtime)
    if not text:
        return Check("work", "ok", "this store does not run effects, and none are requested")
    fix = "use sqlite:, postgresql: or file:"
    return Check("work", "error", f"this store does not run effects: {text}", fix)


async def _requested_work(runtime: Runtime) -> str:
    """What the first entity with pending effects waits for; empty if none of those checked has any."""
    for kind in await runtime.store.kinds():
        for row in (await runtime.store.find(EntityQuery(kind=kind, limit=ENTITIES_CHECKED_MAX))).rows:
            found = await runtime.store.load(row.entity)
            names = work_outstanding(found) if isinstance(found, Loaded) else ()
            if names:
                return f"{', '.join(names)} of {row.entity}"
    return ""


def _count_check(name: str, count: int, is_complete: bool, what: str, fix: str) -> Check:  # noqa: FBT001 - local
    if not count:
        return Check(name, "ok", f"none {what}".rstrip())
    return Check(name, "warning", f"{count:,}{'' if is_complete else '+'} {what}".rstrip(), fix)
