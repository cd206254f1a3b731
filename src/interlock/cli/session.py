"""Which store and which charts a command works with: what it is told, else the environment, else the project's file.

    interlock show sqlite:///orders.db order/A-1 --chart order.interlock.yaml

Rule 1: the first that is there decides. Store: the address on the command line, INTERLOCK_STORE, `store` of the
project. Charts: `--chart`, INTERLOCK_CHARTS (as PATH is written), `charts` of the project.
Rule 2: the project is the nearest `interlock.toml`, or `pyproject.toml` with a `[tool.interlock]`, in this folder or
one above; its paths and its modules are meant from where it stands.
Rule 3: a command that looks makes nothing: a place that is not there is not found, and not created.
Rule 4: a command that looks imports no code because a file of the current folder names it (`imports=False`): whoever
looks into a folder of somebody else does not run what is in it. `--chart module:name` asks for it.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

import click

from interlock.assemble.charts import BoundChart, load
from interlock.cli.output.log_handler import shown_logs
from interlock.cli.output.terminal import Terminal
from interlock.errors import InterlockError, NotFoundError, UsageError
from interlock.model.diagnostics import suggestion
from interlock.ports.clock import SystemClock
from interlock.runtime.chart_registry import ChartRegistry
from interlock.runtime.runtime import Runtime
from interlock.stores.registry import open_store, schema_of, without_password

STORE_VARIABLE, CHARTS_VARIABLE = "INTERLOCK_STORE", "INTERLOCK_CHARTS"
PROJECT_FILE, SHARED_FILE = "interlock.toml", "pyproject.toml"

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_DATABASES = (".db", ".sqlite", ".sqlite3")
_CODE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")

CODE_LEFT_OUT = "charts.code"
"""The code of the error of a command that looks, where the project names its charts by code only."""

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """What the project's file says: the store, its charts as paths or as `module:name`, and what stands before the keys
    that handlers see; and where it stands.
    """

    store: str | None = None
    charts: tuple[str, ...] = ()
    key_prefix: str = ""
    folder: Path | None = None


def key_prefix_option(command: F) -> F:
    """Give a command that performs `--key-prefix`; without it, what the project says (`key_prefix_of`)."""
    told = "Stands before the keys that handlers see; the same in every process of a store, for ever."
    return click.option("--key-prefix", metavar="TEXT", help=told)(command)


def key_prefix_of(given: str | None) -> str:
    """What stands before the keys that handlers see: as given, else by the project, else nothing."""
    return project().key_prefix if given is None else given


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
        help="A chart of the entities: a definition, or module:name for charts with code. May be given several times.",
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
    if address is None and names[:1] != ("KIND",) and rest and _is_file(rest[0]):
        raise click.UsageError(f'"{rest[0]}" is no address of a store; write sqlite:///{rest[0]}')
    if len(rest) > len(names):
        _check_meant(rest[0] if address is None and not names else None)
        raise click.UsageError(f'"{rest[len(names)]}" is one word too many')
    try:
        url = address or default_store()
    except UsageError as error:
        _check_meant(rest[0] if rest and error.code == "store.missing" else None)
        raise
    return url, [*rest, *[None] * (len(names) - len(rest))]


def _check_meant(word: str | None) -> None:
    """Raises UsageError for a word that can only be meant for a store."""
    if word is None or ("/" in word and not _is_path(word)):
        return
    scheme = "file:" if Path(word, "format.json").is_file() else None
    if word.endswith(_DATABASES) or Path(word).is_file():
        scheme = "sqlite:///"
    if scheme is not None:
        raise UsageError(f"`{word}` is no address", code="store.unknown", hint=f"did you mean {scheme}{word}?")


def split_names(given: Sequence[str]) -> tuple[str, list[str]]:
    """The address, which may be left out, and all other words. Raises UsageError when no store is known."""
    addresses = [each for each in given if _ADDRESS.match(each)]
    url, _ = split_words(addresses)
    return url, [each for each in given if each not in addresses]


def default_store() -> str:
    """The store of this place. Raises UsageError when none is known."""
    found = os.environ.get(STORE_VARIABLE) or project().store
    if found is None:
        hint = f'name it first, such as sqlite:///orders.db, or write store = "..." into {PROJECT_FILE}'
        raise UsageError("no store is named", code="store.missing", hint=hint)
    return found


def known_charts(given: Sequence[str]) -> list[BoundChart]:
    """The charts of this place, for a command that looks, and does without as well."""
    if given or os.environ.get(CHARTS_VARIABLE) or project().charts:
        try:
            return loaded_charts(given, imports=False)
        except UsageError as error:
            if error.code != CODE_LEFT_OUT:
                raise
            _tell(f"{error.message}; {error.hint}")
    return []


def loaded_charts(given: Sequence[str], *, otherwise: str | None = None, imports: bool = True) -> list[BoundChart]:
    """The charts to work with. Without `imports`, code that only the project names is left out, which is told.

    Raises UsageError when none is known, or all are left out; DefinitionError when one is wrong.
    """
    variable = os.environ.get(CHARTS_VARIABLE, "")
    names = list(given) or [each for each in variable.split(os.pathsep) if each]
    if names:
        return [chart for each in names for chart in _charts(each, _home(each))]
    found = project()
    names = _project_charts(found, otherwise) if imports else _without_code(found, otherwise)
    return [chart for each in names for chart in _charts(each, found.folder)]


def _home(name: str) -> Path | None:
    """Where the module of a chart is looked for that was asked for by name: in the project, if that names it, too."""
    if not _is_code(name):
        return None
    try:
        found = project()
    except UsageError:  # it was not asked for
        return None
    return found.folder if name in found.charts else None


def _project_charts(found: Project, otherwise: str | None) -> list[str]:
    """The charts that a project names. Raises UsageError when there are none."""
    if not found.charts:
        hint = f"name it with --chart FILE, or write charts = [...] into {PROJECT_FILE}"
        hint = hint if otherwise is None else f"{hint}, or {otherwise}"
        raise UsageError("no chart is named", code="charts.missing", hint=hint)
    return list(found.charts)


def _without_code(found: Project, otherwise: str | None) -> list[str]:
    """The charts that a project names, without those that are code. Raises UsageError when none is left."""
    names = _project_charts(found, otherwise)
    left = [each for each in names if not _is_code(each)]
    code = [each for each in names if _is_code(each)]
    if code:
        message = f"the project names charts by code ({', '.join(code)}), which a command that looks does not import"
        hint = f"to import it, add {' '.join(f'--chart {each}' for each in code)}"
        if not left:
            hint = hint if otherwise is None else f"{hint}; or {otherwise}"
            raise UsageError(message, code=CODE_LEFT_OUT, hint=hint)
        _tell(f"{message}; {hint}")
    return left


def _tell(text: str) -> None:
    """Say something on stderr, from inside a command."""
    context = click.get_current_context(silent=True)
    terminal = None if context is None else context.find_object(Terminal)
    (terminal or Terminal()).message((text, "yellow"))


def _is_code(name: str) -> bool:
    return _CODE.fullmatch(name) is not None and not Path(name).exists()


def _charts(name: str, folder: Path | None) -> list[BoundChart]:
    return charts_of_code(name, folder=folder) if _is_code(name) else [load(name)]


def charts_of_code(name: str, *, folder: Path | None = None) -> list[BoundChart]:
    """The charts that `module:name` means: a chart, a list of them, or a function that gives either.

    The module is looked for in the folder, by default this one, as well. Raises UsageError for anything else, and when
    the module or the function cannot be run.
    """
    if not _CODE.fullmatch(name):
        module = name.removesuffix(".py").strip("./").replace("/", ".")
        hint = f"write module:name, as in {module if module.isidentifier() else 'orders'}:charts"
        raise UsageError(f"`{name}` names no charts", code="chart.module", hint=hint)
    home = folder or Path.cwd()
    found = _found(name, home)
    if callable(found) and not isinstance(found, BoundChart):
        _check_callable(name, found)
        try:
            found = found()
        except Exception as error:
            raise _raised(f"`{name}`", error, home) from error
    charts = [found] if isinstance(found, BoundChart) else list(found) if isinstance(found, Iterable) else []
    if not charts or not all(isinstance(each, BoundChart) for each in charts):
        hint = "name what interlock.load gave, a list of those, or a function that returns one"
        raise UsageError(f"`{name}` gives no charts", code="chart.module", hint=hint)
    return charts


def _check_callable(name: str, function: Callable[..., Any]) -> None:
    """Raises UsageError for a function that needs arguments, such as a handler: its own error would blame our line."""
    try:
        signature(function).bind()
    except TypeError as error:
        hint = "name a chart, a list of charts, or a function that needs nothing and returns them"
        raise UsageError(f"`{name}` needs arguments: {error}", code="chart.module", hint=hint) from error
    except ValueError:  # nobody can tell: it is tried
        return


def _found(name: str, folder: Path) -> Any:
    """What a module has under a name."""
    module, _, attribute = name.partition(":")
    if str(folder) not in sys.path and not ("" in sys.path and folder == Path.cwd()):
        sys.path.insert(0, str(folder))  # as `python -m` does; a command that was installed has not
    try:
        home = import_module(module)
    except ImportError as error:
        hint = f"is {module}.py in this folder, or installed?" if error.name == module else None
        raise UsageError(f"module `{module}` cannot be imported: {error}", code="chart.module", hint=hint) from error
    except InterlockError:
        raise
    except Exception as error:
        raise _raised(f"module `{module}`", error, folder) from error
    if not hasattr(home, attribute):
        charts = [each for each, value in vars(home).items() if isinstance(value, BoundChart)]
        hint = suggestion(attribute, vars(home)) or (f"its charts are {', '.join(charts)}" if charts else None)
        raise UsageError(f"module `{module}` has no `{attribute}`", code="chart.module", hint=hint)
    return getattr(home, attribute)


def _raised(what: str, error: Exception, folder: Path) -> UsageError:
    """Code of the user's raised: what, and the last line of theirs that led there."""
    frames = traceback.extract_tb(error.__traceback__)
    last = next((each for each in reversed(frames) if Path(each.filename).is_relative_to(folder)), frames[-1])
    file, line = (error.filename, error.lineno) if isinstance(error, SyntaxError) else (last.filename, last.lineno)
    message = f"{what} raised {type(error).__name__}: {getattr(error, 'msg', error)}"
    return UsageError(message, code="chart.module", hint=f"look at {os.path.relpath(file or '?')}, line {line}")


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
    store, charts, prefix = table.get("store"), table.get("charts", []), table.get("key_prefix", "")
    name = os.path.relpath(file)
    unknown = sorted(set(table) - {"store", "charts", "key_prefix"})
    if unknown:
        hint = "the keys are `store`, `charts` and `key_prefix`"
        raise UsageError(f"{name} has an unknown key `{unknown[0]}`", code="project.key", hint=hint)
    if not isinstance(charts, list) or not all(isinstance(each, str) for each in charts):
        raise UsageError(f"`charts` of {name} is no list of texts", code="project.charts")
    if store is not None and (not isinstance(store, str) or not _ADDRESS.match(store)):
        raise UsageError(f"`store` of {name} is no address", code="project.store", hint='write "sqlite:///orders.db"')
    if not isinstance(prefix, str):
        raise UsageError(f"`key_prefix` of {name} is no text", code="project.key_prefix", hint='write "eu/"')
    named = (each if _CODE.fullmatch(each) else os.path.relpath(file.parent / each) for each in charts)
    address = None if store is None else _from(file.parent, store)
    return Project(store=address, charts=tuple(named), key_prefix=prefix, folder=file.parent)


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
    runtime = Runtime(await open_store(url), ChartRegistry(kernels), SystemClock())
    try:
        yield runtime
    except NotFoundError as error:
        if error.code != "entity.unknown":
            raise
        raise NotFoundError(error.message, code=error.code, hint="check its name: interlock ls") from error
    finally:
        await runtime.close()


@contextmanager
def known_kind(entity: str, charts: Sequence[BoundChart]) -> Iterator[None]:
    """What asks for an entity stands inside: when there is none, and none of its kind can be, the near kind is told."""
    try:
        yield
    except NotFoundError as error:
        kind, kinds = entity.partition("/")[0], [each.chart.kind for each in charts]
        near = None if kind in kinds else suggestion(kind, kinds)
        if error.code != "entity.unknown" or near is None:
            raise
        raise NotFoundError(error.message, code=error.code, hint=near) from error


async def kind_note(runtime: Runtime, kind: str | None) -> str:
    """What to add where nothing of a kind is found: what it may be meant for, if the store has no such kind."""
    known = () if kind is None else await runtime.store.kinds()
    if kind is None or kind in known:
        return ""
    if _is_path(kind) or kind.endswith(_DATABASES):
        return f"; `{kind}` was taken for a kind: write the address of a store, such as sqlite:///{kind}"
    near = suggestion(kind, known) or (f"there are {', '.join(known)}" if known else "there are none")
    return f" of kind `{kind}`; {near}"


def _is_file(text: str) -> bool:
    """Whether a word in the place of an entity can only be meant for a file: `./orders.db`, or one that is there."""
    return text.startswith((".", "/")) or ("/" not in text and Path(text).is_file())


def _is_path(text: str) -> bool:
    return Path(text).exists()


async def check_store(url: str) -> None:
    """Raises NotFoundError when there is no store at an address."""
    schema = await schema_of(url)
    if schema is not None and schema.current == 0:
        message = f"there is no store at {without_password(url)}"
        below = _store_below(url)
        hint = "interlock create makes one" if below is None else f"there are some below it, such as {below}"
        raise NotFoundError(message, code="store.not_found", hint=hint)


def _store_below(url: str) -> str | None:
    """The last store below a folder, as in that of an archive, where each month is one."""
    if not url.startswith("file:"):
        return None
    from interlock.stores.files.root import FORMAT_FILE

    folder = Path(unquote(urlsplit(url).path))
    found = [each.parent for depth in ("*", "*/*") for each in folder.glob(f"{depth}/{FORMAT_FILE}")]
    return max(found).absolute().as_uri() if found else None


def run(work: Coroutine[Any, Any, T]) -> T:
    """Do what a command does, in an event loop of its own; what is logged meanwhile is shown."""
    context = click.get_current_context(silent=True)
    terminal = None if context is None else context.find_object(Terminal)
    with shown_logs(terminal or Terminal()):
        return asyncio.run(work)
