"""Open a runtime or a store for one command, and explain what is not found there.

Rule 1: a command that only reads creates nothing and changes nothing: it neither creates a store nor upgrades a schema.
Rule 2: names of other tenants may appear in hints: a user who can run a command on a store can read all of it.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, unquote, urlsplit

import click

from interlock.assemble.charts import BoundChart
from interlock.assemble.vaults import has_personal_data, open_vault
from interlock.cli.output.log_handler import LogForm, show_logs
from interlock.cli.output.terminal import Terminal
from interlock.cli.project import default_keyring, is_database_name
from interlock.errors import NotFoundError, UnavailableError, UsageError
from interlock.model.diagnostics import suggestion
from interlock.ports.clock import SystemClock
from interlock.ports.store import Store
from interlock.runtime.charts.registry import ChartRegistry, kind_hint
from interlock.runtime.runtime import Runtime
from interlock.stores.registry import OTHER_TENANTS_MAX, Schema, schema_of, tenants_of, without_password
from interlock.stores.registry import open_store as open_store_url

TENANTS_NAMED_MAX = 5
"""Other tenants named in a message: enough to see a typing error."""

DEFAULT_TENANT = "the default tenant"
"""The tenant of a URL without `?tenant=`."""

_FILE = "give its definition with --chart FILE, or save it in the store: interlock db definitions add FILE"
_CHART_HINTS = {
    "function.missing": "give the program that registers it: --chart module:name",
    "kind.unknown": _FILE,
    "revision.unknown": _FILE,
    "revision.ambiguous": "give the right definition with --chart FILE",
}
"""What a command without charts needs, by the code of the error."""

CHECK_NAME = "check the name: interlock ls"

T = TypeVar("T")


# Opening


def run(work: Coroutine[Any, Any, T], *, log: LogForm | None = None) -> T:
    """Run a command in an event loop and show log records; `log` is how `--log` writes them."""
    context = click.get_current_context(silent=True)
    terminal = None if context is None else context.find_object(Terminal)
    with show_logs(terminal or Terminal(), log):
        return asyncio.run(work)


@contextmanager
def frozen_heap() -> Iterator[None]:
    """For the block, leave what exists now out of garbage collections: modules and charts live as long as the process.

    A collection of everything takes ten milliseconds, and a busy worker causes one every few thousand effects.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def forbid_core_dumps(charts: Sequence[BoundChart]) -> None:
    """Let the system write no core dump of this process if a chart has personal data: it would contain plain values."""
    if any(has_personal_data(each.chart) for each in charts):
        import resource  # not on every system

        _, hard = resource.getrlimit(resource.RLIMIT_CORE)
        resource.setrlimit(resource.RLIMIT_CORE, (0, hard))


@asynccontextmanager
async def open_for_reading(url: str, charts: Sequence[BoundChart] = ()) -> AsyncIterator[Runtime]:
    """Open a runtime for a command that only reads. Raises NotFoundError; UsageError if the schema is too old."""
    await check_readable(url)
    async with _runtime(url, charts) as runtime:
        yield runtime


@asynccontextmanager
async def open_for_writing(url: str, charts: Sequence[BoundChart] = ()) -> AsyncIterator[Runtime]:
    """Open a runtime on an existing store; an old schema is upgraded. Raises NotFoundError."""
    await check_exists(url)
    async with _runtime(url, charts) as runtime:
        await runtime.declare_indexes()
        yield runtime


@asynccontextmanager
async def open_or_create(url: str, charts: Sequence[BoundChart]) -> AsyncIterator[Runtime]:
    """Open a runtime, and create the store if it does not exist."""
    async with _runtime(url, charts) as runtime:
        await runtime.declare_indexes()
        yield runtime


@asynccontextmanager
async def _runtime(url: str, charts: Sequence[BoundChart]) -> AsyncIterator[Runtime]:
    """Open a runtime. With a keyring personal data is opened; without one it is shown sealed."""
    kernels = [each.kernel for each in charts]
    store, clock = await open_store_url(url), SystemClock()
    try:
        vault = await open_vault(store, (), default_keyring(), clock, is_lasting=not url.startswith("memory:"))
    except BaseException:
        await store.close()
        raise
    runtime = Runtime(store, ChartRegistry(kernels), clock, vault=vault)
    try:
        yield runtime
    except NotFoundError as error:
        if error.code != "entity.unknown":
            raise
        raise NotFoundError(error.message, code=error.code, hint=CHECK_NAME) from error
    finally:
        await runtime.close()


async def check_exists(url: str) -> Schema | None:
    """Return the schema of the store at a URL. Raises NotFoundError if there is no store."""
    schema = await schema_of(url)
    if schema is not None and schema.current == 0:
        message = f"store not found: {without_password(url)}"
        below = _store_below(url)
        hint = "interlock create creates one" if below is None else f"there are stores below it, such as {below}"
        raise NotFoundError(message, code="store.not_found", hint=hint)
    return schema


async def check_readable(url: str) -> None:
    """Raise NotFoundError if there is no store, UsageError if opening it would upgrade its schema."""
    schema = await check_exists(url)
    if schema is not None and schema.current < schema.newest:
        message = f"the store has schema {schema.current}; this release reads schema {schema.newest}"
        raise UsageError(message, code="schema.old", hint="interlock db upgrade upgrades it")


def _store_below(url: str) -> str | None:
    """The last store below a folder: an archive has one for each month."""
    if not url.startswith("file:"):
        return None
    from interlock.stores.files.names import FORMAT_FILE

    folder = Path(unquote(urlsplit(url).path))
    found = [each.parent for depth in ("*", "*/*") for each in folder.glob(f"{depth}/{FORMAT_FILE}")]
    return max(found).absolute().as_uri() if found else None


# Hints


@contextmanager
def kind_suggestion(entity: str, charts: Sequence[BoundChart]) -> Iterator[None]:
    """Suggest a similar kind if the entity is unknown and no chart of its kind is loaded."""
    try:
        yield
    except NotFoundError as error:
        kind, kinds = entity.partition("/")[0], [each.chart.kind for each in charts]
        hint = None if kind in kinds else suggestion(kind, kinds)
        if error.code != "entity.unknown" or hint is None:
            raise
        raise NotFoundError(error.message, code=error.code, hint=hint) from error


@contextmanager
def chart_suggestion(charts: Sequence[BoundChart]) -> Iterator[None]:
    """Suggest the chart option if the command has no chart, and the definition in the store is not enough."""
    try:
        yield
    except UnavailableError as error:
        if charts or error.code not in _CHART_HINTS:
            raise
        raise UnavailableError(error.message, code=error.code, hint=_CHART_HINTS[error.code]) from error


async def kind_note(runtime: Runtime, kind: str | None) -> str:
    """Return what to add to "no entities" if the store has no entity of this kind; otherwise nothing."""
    known = () if kind is None else await runtime.store.kinds()
    if kind is None or kind in known:
        return ""
    if is_database_name(kind):
        return f"; `{kind}` was read as a kind: for a store write its URL, such as sqlite:///{kind}"
    return f" of kind `{kind}`; {kind_hint(kind, known)}"


async def empty_tenant(url: str, store: Store) -> NotFoundError | None:
    """Return an error if the tenant of a URL has no entities and other tenants have; otherwise None."""
    found = await tenants_of(url)
    if not found.others or await store.kinds():
        return None
    count = len(found.others)
    others = f"{count:,} or more others have" if count == OTHER_TENANTS_MAX else f"{count:,} others have"
    others = "one other has" if count == 1 else others
    names = ", ".join(each or DEFAULT_TENANT for each in found.others[:TENANTS_NAMED_MAX])
    more = ", …" if count > TENANTS_NAMED_MAX else ""
    mine = f"tenant `{found.mine}`" if found.mine else DEFAULT_TENANT
    message = f"{mine} has no entities in this store; {others}: {names}{more}"
    first = next((each for each in found.others if each), None)
    hint = suggestion(found.mine, found.others) or (
        "remove ?tenant=" if first is None else f"name the tenant in the URL, ?tenant={quote(first, safe='')}"
    )
    return NotFoundError(message, code="tenant.empty", hint=hint)
