"""Which store and which charts a command works with: what it is told, else the environment, else the project's file.

    interlock show sqlite:///orders.db order/A-1 --chart order.interlock.yaml

Rule 1: the first that is there decides. Store: the address on the command line, INTERLOCK_STORE, `store` of the
project. Charts: `--chart`, INTERLOCK_CHARTS (as PATH is written), `charts` of the project.
Rule 2: the project is the nearest `interlock.toml`, or `pyproject.toml` with a `[tool.interlock]`, in this folder or
one above; its paths are meant from where it stands.
Rule 3: a command that looks makes nothing: a place that is not there is not found, and not created.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import click

from interlock.assemble import BoundChart, load
from interlock.errors import InterlockError, NotFoundError, UsageError
from interlock.opening import opened_store, schema_of, without_password
from interlock.ports.clock import SystemClock
from interlock.runtime.charts import Charts
from interlock.runtime.send import Runtime

STORE_VARIABLE, CHARTS_VARIABLE = "INTERLOCK_STORE", "INTERLOCK_CHARTS"
PROJECT_FILE, SHARED_FILE = "interlock.toml", "pyproject.toml"

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_CODE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """What the project's file says: the store, and its charts as paths or as `module:name`."""

    store: str | None = None
    charts: tuple[str, ...] = ()


def words(text: str) -> Callable[[F], F]:
    """Give a command its arguments: the address of a store, which may be left out, and what follows it."""
    return click.argument("words", nargs=-1, metavar=f"[URL] {text}".strip())


def chart_option(command: F) -> F:
    """Give a command `--chart`."""
    option = click.option(
        "--chart",
        "charts",
        multiple=True,
        metavar="FILE",
        help="A chart of the entities: a definition, or module:name for one with code. May be given several times.",
    )
    return option(command)


def split_words(given: Sequence[str], *names: str, optional: int = 0) -> tuple[str, list[str | None]]:
    """The address, and the words that these names stand for, the last `optional` of which may be missing.

    Raises UsageError when a word is missing or left over, or no store is known.
    """
    rest = list(given)
    address = rest.pop(0) if rest and _ADDRESS.match(rest[0]) else None
    if len(rest) < len(names) - optional:
        raise click.UsageError(f"missing argument '{names[len(rest)]}'")
    if len(rest) > len(names):
        raise click.UsageError(f'"{rest[len(names)]}" is one word too many')
    return address or default_store(), [*rest, *[None] * (len(names) - len(rest))]


def default_store() -> str:
    """The store of this place. Raises UsageError when none is known."""
    found = os.environ.get(STORE_VARIABLE) or project().store
    if found is None:
        hint = f'name it first, such as sqlite:///orders.db, or write store = "..." into {PROJECT_FILE}'
        raise UsageError("no store is named", code="store.missing", hint=hint)
    return found


def known_charts(given: Sequence[str]) -> list[BoundChart]:
    """The charts of this place, for a command that does without as well."""
    if given or os.environ.get(CHARTS_VARIABLE) or project().charts:
        return loaded_charts(given)
    return []


def loaded_charts(given: Sequence[str], *, otherwise: str | None = None) -> list[BoundChart]:
    """The charts to work with. Raises UsageError when none is known, DefinitionError when one is wrong."""
    variable = os.environ.get(CHARTS_VARIABLE, "")
    names = list(given) or [each for each in variable.split(os.pathsep) if each] or list(project().charts)
    if not names:
        hint = f"name it with --chart FILE, or write charts = [...] into {PROJECT_FILE}"
        hint = hint if otherwise is None else f"{hint}, or {otherwise}"
        raise UsageError("no chart is named", code="charts.missing", hint=hint)
    return [_chart(each) for each in names]


def _chart(name: str) -> BoundChart:
    if _CODE.fullmatch(name) and not Path(name).exists():
        return _chart_of_code(name)
    return load(name)


def _chart_of_code(name: str) -> BoundChart:
    found = _found(name)
    if not isinstance(found, BoundChart):
        raise UsageError(f"`{name}` is no chart", code="chart.module", hint="name what interlock.load gave")
    return found


def charts_of_code(name: str) -> list[BoundChart]:
    """The charts that `module:name` means: a chart, a list of them, or a function that gives either.

    Raises UsageError for anything else, and when the module or the function cannot be run.
    """
    if not _CODE.fullmatch(name):
        raise UsageError(
            f"`{name}` names no charts", code="chart.module", hint="write module:name, as in orders:charts"
        )
    found = _found(name)
    if callable(found) and not isinstance(found, BoundChart):
        try:
            found = found()
        except Exception as error:
            message = f"`{name}` raised {type(error).__name__}: {error}"
            raise UsageError(message, code="chart.module", hint="run it by hand to see where") from error
    charts = [found] if isinstance(found, BoundChart) else list(found) if isinstance(found, Iterable) else []
    if not charts or not all(isinstance(each, BoundChart) for each in charts):
        hint = "name what interlock.load gave, a list of those, or a function that returns one"
        raise UsageError(f"`{name}` gives no charts", code="chart.module", hint=hint)
    return charts


def _found(name: str) -> Any:
    """What a module has under a name."""
    module, _, attribute = name.partition(":")
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # as `python -m` does; a command that was installed has not
    try:
        home = import_module(module)
    except ImportError as error:
        raise UsageError(f"module `{module}` cannot be imported: {error}", code="chart.module") from error
    except InterlockError:
        raise
    except Exception as error:
        message = f"module `{module}` raised {type(error).__name__}: {error}"
        raise UsageError(message, code="chart.module", hint="import it by hand to see where") from error
    if not hasattr(home, attribute):
        raise UsageError(f"module `{module}` has no `{attribute}`", code="chart.module")
    return getattr(home, attribute)


def project(start: Path | None = None) -> Project:
    """What the nearest project file says; an empty answer when there is none. Raises UsageError when it is wrong."""
    here = (start or Path.cwd()).absolute()
    for folder in (here, *here.parents):
        for file, path in ((folder / PROJECT_FILE, ()), (folder / SHARED_FILE, ("tool", "interlock"))):
            if file.is_file():
                table = _table(file, path)
                if table is not None:
                    return _project(file, table)
    return Project()


def _table(file: Path, path: tuple[str, ...]) -> dict[str, Any] | None:
    import tomllib

    try:
        found: Any = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{os.path.relpath(file)} cannot be read: {error}", code="project.malformed") from None
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else None


def _project(file: Path, table: dict[str, Any]) -> Project:
    store, charts = table.get("store"), table.get("charts", [])
    name = os.path.relpath(file)
    unknown = sorted(set(table) - {"store", "charts"})
    if unknown:
        hint = "the keys are `store` and `charts`"
        raise UsageError(f"{name} has an unknown key `{unknown[0]}`", code="project.key", hint=hint)
    if not isinstance(charts, list) or not all(isinstance(each, str) for each in charts):
        raise UsageError(f"`charts` of {name} is no list of texts", code="project.charts")
    if store is not None and (not isinstance(store, str) or not _ADDRESS.match(store)):
        raise UsageError(f"`store` of {name} is no address", code="project.store", hint='write "sqlite:///orders.db"')
    named = (each if _CODE.fullmatch(each) else os.path.relpath(file.parent / each) for each in charts)
    return Project(store=None if store is None else _from(file.parent, store), charts=tuple(named))


def _from(folder: Path, address: str) -> str:
    """The address with a relative path meant from this folder."""
    for scheme in ("sqlite:///", "file:"):
        path = address.removeprefix(scheme)
        if path != address and not path.startswith("/"):
            return scheme + os.path.relpath(folder / path)
    return address


@asynccontextmanager
async def opened(url: str, charts: Sequence[BoundChart] = (), *, create: bool = False) -> AsyncIterator[Runtime]:
    """A runtime on the store at an address, closed in the end. Without `create`, the store must be there."""
    if not create:
        await check_store(url)
    kernels = [each.kernel for each in charts]
    runtime = Runtime(await opened_store(url), Charts(kernels), SystemClock())
    try:
        yield runtime
    finally:
        await runtime.close()


async def check_store(url: str) -> None:
    """Raises NotFoundError when there is no store at an address."""
    schema = await schema_of(url)
    if schema is not None and schema.current == 0:
        message = f"there is no store at {without_password(url)}"
        raise NotFoundError(message, code="store.not_found", hint="interlock create makes one")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Do what a command does, in an event loop of its own."""
    return asyncio.run(work)
