"""`interlock doctor`: whether this machine and a store are well, and what to do where they are not.

Rule 1: it looks and changes nothing; what cannot be looked at is told, and the rest is looked at all the same.
Rule 2: `✓` is well, `!` works but a person should look, `✗` does not work; each of the latter two says the fix.
Rule 3: it ends with 1 when there is a `✗`, else with 0.
"""

from __future__ import annotations

import platform
import shutil
import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from importlib.machinery import PathFinder
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

import click
from msgspec import Struct, to_builtins

from interlock.assemble.charts import BoundChart
from interlock.cli import exit_codes
from interlock.cli.commands.stuck import dead_letters, waiting_work
from interlock.cli.options import common, example, json_option, pass_terminal
from interlock.cli.output import values
from interlock.cli.output.terminal import Part, Terminal
from interlock.cli.session import chart_option, default_store, known_charts, opened, run, split_words, words
from interlock.cli.tenants import empty_tenant
from interlock.effects.unsupported_work import work_outstanding, work_used_by
from interlock.errors import InterlockError, UsageError
from interlock.model.limits import CLOCK_AHEAD_MS_MAX
from interlock.observe.fleet import orphans, stuck_entities
from interlock.ports.clock import SystemClock
from interlock.ports.store import PAGE_MAX, EntityQuery, Loaded
from interlock.ports.work import WorkStore
from interlock.runtime.clock_repair import find_ahead
from interlock.runtime.runtime import Runtime
from interlock.runtime.worker.work_operations import key_of
from interlock.shm.memory.modes import chosen_mode
from interlock.stores.registry import schema_of, without_password
from interlock.stores.schema import Schema
from interlock.stores.sqlite.connection import LIBRARY_MIN, NETWORK_FILE_SYSTEMS, file_system
from interlock.stores.sqlite.store import address

EXTRAS = {
    "postgres": ("asyncpg", ("postgres", "postgresql")),
    "web": ("starlette", ()),
    "png": ("resvg_py", ()),
    "nats": ("nats", ()),
    "kafka": ("confluent_kafka", ()),
    "rabbitmq": ("aio_pika", ()),
    "redis": ("redis", ()),
}
"""What each extra brings, and the schemes of the stores that need it."""

FREE_BYTES_MIN, FREE_BYTES_LOW = 64 << 20, 1 << 30
"""Below the first a store soon cannot write its log; below the second somebody should look."""

LOOKED_MAX = 100
"""Entities of a kind that are looked at where no chart tells whether they ask for work."""

Mark = Literal["ok", "look", "bad"]
_SIGNS: dict[Mark, tuple[str, str]] = {"ok": ("✓", "green"), "look": ("!", "yellow"), "bad": ("✗", "bold red")}


class Check(Struct, frozen=True):
    """One thing that was looked at. `fix` says what to do where it is not well."""

    name: str
    mark: Mark
    told: str
    fix: str | None = None


@example("interlock doctor", "interlock doctor sqlite:///orders.db --chart order.interlock.yaml")
@click.command(short_help="Check this machine and a store, and tell what to fix.")
@words("")
@chart_option
@json_option
@common
@pass_terminal
def doctor(terminal: Terminal, words: tuple[str, ...], *, charts: tuple[str, ...], as_json: bool) -> int:
    """Check Python, extras, SQLite, shared memory and the clock; and of a store its file system, disk space, schema,
    work that nobody takes up, dead letters, times in the future, and entities that rest for too long.

    The store is the one named, or that of this place; without one only the machine is checked. Ends with 1 when
    something does not work.
    """
    url = _store(words)
    checks = [*machine_checks(url)]
    if url is not None:
        checks += run(store_checks(url, known_charts(charts)))
    bad = sum(each.mark == "bad" for each in checks)
    if as_json:
        terminal.data(values.json_text({"well": not bad, "checks": [to_builtins(each) for each in checks]}))
    else:
        for line in _lines(checks):
            terminal.report(*line)
        if url is None:
            terminal.message(("no store is named: only this machine was checked", "dim"))
    return exit_codes.FINDINGS if bad else exit_codes.OK


def _store(words: Sequence[str]) -> str | None:
    if not words:
        try:
            return default_store()
        except UsageError as error:
            if error.code == "store.missing":
                return None
            raise
    return split_words(words)[0]


def _lines(checks: Sequence[Check]) -> Iterator[tuple[Part, ...]]:
    width = max(len(each.name) for each in checks)
    for each in checks:
        yield (_SIGNS[each.mark], f" {each.name:<{width}}  {each.told}")
        if each.fix is not None and each.mark != "ok":
            yield (f"  {'':<{width}}  ", (f"fix: {each.fix}", "dim"))


# The machine


def machine_checks(url: str | None) -> Iterator[Check]:
    """What can be said without a store; its address only says which extra it needs."""
    yield Check("python", "ok", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    yield Check("interlock", "ok", _version())
    yield from _extras("" if url is None else url.partition(":")[0])
    yield _sqlite()
    yield _shared_memory()


def _version() -> str:
    try:
        return version("interlock")
    except PackageNotFoundError:
        return "not installed as a package"


def _extras(scheme: str) -> Iterator[Check]:
    """One line for what is there, and one for each that this store cannot do without."""
    present = [name for name, (module, _) in EXTRAS.items() if _is_installed(module)]
    absent = [name for name in EXTRAS if name not in present]
    told = ", ".join(present) or "none"
    yield Check("extras", "ok", f"{told} (not installed: {', '.join(absent)})" if absent else told)
    for name in absent:
        if scheme in EXTRAS[name][1]:
            yield Check("extra", "bad", f"{scheme}: needs `{name}`", f"pip install 'interlock[{name}]'")


def _is_installed(module: str) -> bool:
    """Whether it could be imported; it is not, because some of them are slow to."""
    return PathFinder.find_spec(module) is not None


def _sqlite() -> Check:
    if sqlite3.sqlite_version_info < LIBRARY_MIN:
        wanted = ".".join(map(str, LIBRARY_MIN))
        return Check(
            "sqlite", "bad", f"library {sqlite3.sqlite_version}", f"use a Python with SQLite {wanted} or newer"
        )
    return Check("sqlite", "ok", f"library {sqlite3.sqlite_version}")


def _shared_memory() -> Check:
    try:
        mode = chosen_mode()
    except InterlockError as error:
        return Check("shared memory", "look", error.message, error.hint)
    if mode == "native":
        return Check("shared memory", "ok", "C core")
    fix = "install a wheel, or a compiler, for the C core"
    return Check("shared memory", "look", f"fallback {mode}: correct, and slower", fix)


# A store


async def store_checks(url: str, charts: Sequence[BoundChart]) -> list[Check]:
    """What can be said of a store. Once it cannot be opened, no more."""
    found: list[Check] = []
    try:
        schema = await schema_of(url)
        found.append(_schema(url, schema))
        place = _place(url)
        if place is not None:
            found += _disk(place)
        if schema is not None and schema.current == 0:
            return found
        async with opened(url, charts) as runtime:
            nobody = await empty_tenant(url, runtime.store)
            if nobody is not None:
                found.append(Check("tenant", "look", nobody.message, nobody.hint))
            found += [each async for each in _work(runtime, judged=bool(charts))]
    except InterlockError as error:
        found.append(Check("store", "bad", error.message, error.hint))
    except OSError as error:
        found.append(Check("store", "bad", f"{error.filename}: {error.strerror}"))
    return found


def _schema(url: str, schema: Schema | None) -> Check:
    where = without_password(url)
    if schema is None:
        return Check("store", "ok", f"{where}, without a schema")
    if schema.current == 0:
        return Check("store", "look", f"{where} is not there yet", "interlock create, or db upgrade, makes it")
    told = f"{where}, schema {schema.current}"
    if schema.current < schema.newest:
        return Check("store", "look", f"{told} of {schema.newest}", "interlock db upgrade")
    if schema.current > schema.newest:
        fix = f"upgrade interlock: this release knows schema {schema.newest}"
        return Check("store", "bad", f"{told} is of a newer release", fix)
    return Check("store", "ok", told)


def _place(url: str) -> Path | None:
    """Where a store lies on this machine's disks; None when it lies elsewhere."""
    match url.partition(":")[0]:
        case "sqlite":
            return address(url)[0].absolute()
        case "file":
            return Path(unquote(urlsplit(url).path)).absolute()
        case _:
            return None


def _disk(place: Path) -> Iterator[Check]:
    """The file system, its space, and whether the clock went back since the store was written."""
    folder = next(each for each in (place, *place.parents) if each.is_dir())
    kind = file_system(folder / "any")
    if kind in NETWORK_FILE_SYSTEMS:
        yield Check("file system", "bad", f"{kind}: locks of other machines are not seen", "use a local disk")
    else:
        yield Check("file system", "ok", kind or "unknown")
    free = shutil.disk_usage(folder).free
    told = f"{free / 2**30:,.1f} GiB free"
    mark: Mark = "bad" if free < FREE_BYTES_MIN else "look" if free < FREE_BYTES_LOW else "ok"
    yield Check("disk", mark, told, None if mark == "ok" else "make room, or interlock archive what has ended")
    written_ms = max((_written_ms(each) for each in (place, place.with_name(f"{place.name}-wal"))), default=0)
    ahead_ms = written_ms - SystemClock().now_ms()
    if ahead_ms > CLOCK_AHEAD_MS_MAX:
        told = f"the store was written {values.age_text(ahead_ms)} from now"
        yield Check("clock", "bad", told, "set this machine's clock, and keep it by NTP: timers go by it")
    else:
        yield Check("clock", "ok", values.time_text(SystemClock().now_ms()))


def _written_ms(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns // 1_000_000
    except OSError:
        return 0


async def _work(runtime: Runtime, *, judged: bool) -> AsyncIterator[Check]:
    """What nobody takes up, what lapsed in somebody's hands, what nobody can do, and who cannot go on or rests."""
    if isinstance(runtime.store, WorkStore):
        async for each in _kept_work(runtime):
            yield each
    else:
        yield await _work_of_nobody(runtime)
    yield await _times(runtime)
    if judged:
        left = await orphans(runtime)
        if left:
            told = ", ".join(f"{each.kind} {each.revision}" for each in left)
            yield Check("revisions", "look", f"entities of {told} have no chart here", left[0].hint)
        elif left is not None:
            yield Check("revisions", "ok", "none without a chart that goes on with it")
        late = len(await stuck_entities(runtime, None, PAGE_MAX))
        many = "+" if late >= PAGE_MAX else ""
        yield _counted("entities", late, many, "longer in a state than expected", "interlock stuck")


async def _kept_work(runtime: Runtime) -> AsyncIterator[Check]:
    waiting, is_partial = await waiting_work(runtime, None)
    lapsed = [row for row in waiting if row.owner is not None]
    more = "+" if is_partial else ""
    yield _counted(
        "work", len(waiting) - len(lapsed), more, "due that nobody takes up", "run a process that has its handlers"
    )
    yield _counted("leases", len(lapsed), more, "in hand of a process that is gone", "run a process that takes them up")
    dead = len(await dead_letters(runtime, None))
    many = "+" if dead >= PAGE_MAX else ""
    yield _counted("dead letters", dead, many, "for a person", "interlock effects ls --dead, then retry or drop")


async def _times(runtime: Runtime) -> Check:
    """What is stamped in the future: a clock was ahead when it was written, or is behind now."""
    ahead = await find_ahead(runtime.store, now_ms=runtime.clock.now_ms())
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
    told = f"in the future: {', '.join(found)}{f', such as {which}' if which else ''}: a clock was ahead"
    fix = "set the clock by NTP, then start a worker, which takes up what the wrong clock put off"
    if rows:
        fix = f"{fix}; or, for one: interlock effects retry {which} --force"
    return Check("times", "look", told, fix)


async def _work_of_nobody(runtime: Runtime) -> Check:
    """A store that keeps no work, and what its charts or entities ask for all the same."""
    charts = runtime.charts
    asked = work_used_by(each.chart for kind in charts.kinds() for each in charts.revisions(kind).values())
    told = "; ".join(f"the {', '.join(deeds)} of {kind}" for kind, deeds in asked.items()) or await _asked_here(runtime)
    if not told:
        return Check("work", "ok", "this store keeps none, and none is asked for")
    fix = "keep these entities in sqlite:, postgresql: or files of layout A"
    return Check("work", "bad", f"this store keeps none: nobody performs {told}", fix)


async def _asked_here(runtime: Runtime) -> str:
    """What the first entity waits for that waits for anything; nothing where none of those looked at does."""
    for kind in await runtime.store.kinds():
        for row in (await runtime.store.find(EntityQuery(kind=kind, limit=LOOKED_MAX))).rows:
            found = await runtime.store.load(row.entity)
            deeds = work_outstanding(found) if isinstance(found, Loaded) else ()
            if deeds:
                return f"the {', '.join(deeds)} of {row.entity}"
    return ""


def _counted(name: str, count: int, more: str, what: str, fix: str) -> Check:
    return Check(name, "look", f"{count:,}{more} {what}", fix) if count else Check(name, "ok", f"none {what}")
