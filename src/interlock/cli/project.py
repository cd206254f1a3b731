"""The project of a command: which store and charts it uses, from the command line, the environment or a project file.

    interlock show sqlite:///orders.db order/A-1 --chart order.interlock.yaml

Rule 1: the first source that has a value is used. Store: the URL on the command line, INTERLOCK_STORE, `store` of the
project file. Charts: `--chart`, INTERLOCK_CHARTS (a list like PATH), `charts` of the project file.
Rule 2: the project file is the nearest `interlock.toml`, or `pyproject.toml` with `[tool.interlock]`, in this folder or
a folder above. Its paths and modules are relative to its folder.
Rule 3: a command that only reads imports no code that the project file names (`imports=False`), so that reading in a
folder of another person does not run their code. `--chart module:name` imports it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from interlock.assemble.charts import BoundChart, load
from interlock.assemble.text_files import read_text_file
from interlock.cli.output.terminal import Terminal
from interlock.cli.user_code import is_code_name, load_code
from interlock.effects.retry import HandlerDefaults
from interlock.errors import UsageError
from interlock.ports.trust.keyring import KEYRING_VARIABLE

STORE_VARIABLE, CHARTS_VARIABLE = "INTERLOCK_STORE", "INTERLOCK_CHARTS"
PROJECT_FILE, SHARED_FILE = "interlock.toml", "pyproject.toml"

CODE_SKIPPED = "charts.code"
"""The error code of a command that only reads, if the project names its charts by code only."""

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_DATABASE_SUFFIXES = (".db", ".sqlite", ".sqlite3")


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """The values of a project file: the store URL, charts as paths or `module:name`, the key prefix, the defaults of
    handlers, the address of the keyring, and its folder.
    """

    store: str | None = None
    charts: tuple[str, ...] = ()
    key_prefix: str = ""
    handler_defaults: HandlerDefaults | None = None
    keyring: str | None = None
    folder: Path | None = None


# Arguments


def split_words(given: Sequence[str], *names: str, optional: int = 0) -> tuple[str, list[str | None]]:
    """Return the store URL and the arguments called `names`, of which the last `optional` may be missing.

    Raises UsageError if an argument is missing or unexpected, or no store is known.
    """
    rest = list(given)
    url = rest.pop(0) if rest and _URL.match(rest[0]) else None
    if len(rest) < len(names) - optional:
        raise click.UsageError(f"missing argument '{names[len(rest)]}'")
    if url is None and names[:1] != ("KIND",) and rest and _is_file(rest[0]):
        raise click.UsageError(f'"{rest[0]}" is not a store URL; write sqlite:///{rest[0]}')
    if len(rest) > len(names):
        _check_meant_as_url(rest[0] if url is None and not names else None)
        raise click.UsageError(f'unexpected argument "{rest[len(names)]}"')
    try:
        url = url or default_store()
    except UsageError as error:
        _check_meant_as_url(rest[0] if rest and error.code == "store.missing" else None)
        raise
    return url, [*rest, *[None] * (len(names) - len(rest))]


def is_store_url(word: str) -> bool:
    """Return whether an argument is the URL of a store."""
    return _URL.match(word) is not None


def split_names(given: Sequence[str]) -> tuple[str, list[str]]:
    """Return the store URL and all other arguments. Raises UsageError if no store is known."""
    urls = [each for each in given if _URL.match(each)]
    url, _ = split_words(urls)
    return url, [each for each in given if each not in urls]


def _check_meant_as_url(word: str | None) -> None:
    """Raise UsageError for an argument that names a database or a folder of a file store."""
    if word is None or ("/" in word and not Path(word).exists()):
        return
    scheme = "file:" if Path(word, "format.json").is_file() else None
    if word.endswith(_DATABASE_SUFFIXES) or Path(word).is_file():
        scheme = "sqlite:///"
    if scheme is not None:
        raise UsageError(f"`{word}` is not a store URL", code="store.unknown", hint=f"did you mean {scheme}{word}?")


def is_database_name(word: str) -> bool:
    """Return whether a word is the name of an existing file, or looks like that of a SQLite file."""
    return word.endswith(_DATABASE_SUFFIXES) or Path(word).exists()


def _is_file(text: str) -> bool:
    """Whether an argument in the place of an entity is a file: `./orders.db`, or the name of an existing file."""
    return text.startswith((".", "/")) or ("/" not in text and Path(text).is_file())


# Store and charts


def default_store() -> str:
    """Return the store URL of the environment or the project. Raises UsageError if there is none."""
    found = os.environ.get(STORE_VARIABLE) or project().store
    if found is None:
        hint = f'give its URL first, such as sqlite:///orders.db, or write store = "..." in {PROJECT_FILE}'
        raise UsageError("no store given", code="store.missing", hint=hint)
    return found


def default_keyring() -> str | None:
    """Return the address of the keyring of the environment or the project; None if there is none."""
    given = os.environ.get(KEYRING_VARIABLE)
    if given:
        return given
    try:
        return project().keyring
    except UsageError as error:  # a wrong project file matters only if it is used
        if error.code == "project.keyring":
            raise
        return None


def key_prefix_of(given: str | None) -> str:
    """Return the prefix of keys passed to handlers: as given, otherwise that of the project."""
    return project().key_prefix if given is None else given


def load_charts(given: Sequence[str], *, alternative: str | None = None, imports: bool = True) -> list[BoundChart]:
    """Return the charts of a command. Without `imports`, code that only the project names is skipped with a message.

    `alternative` is added to the hint if there are no charts. Raises UsageError if there are none, or all are skipped;
    DefinitionError if one is wrong.
    """
    variable = os.environ.get(CHARTS_VARIABLE, "")
    names = list(given) or [each for each in variable.split(os.pathsep) if each]
    if names:
        return [chart for each in names for chart in _load(each, _module_folder(each))]
    found = project()
    names = _project_charts(found, alternative) if imports else _charts_without_code(found, alternative)
    return [chart for each in names for chart in _load(each, found.folder)]


def load_optional_charts(given: Sequence[str]) -> list[BoundChart]:
    """Return the charts of a command that also steps entities by the definitions in the store: none, if none is named.

    Unlike `load_known_charts` it imports the code of the project: steps may need it.
    """
    return load_charts(given) if given or os.environ.get(CHARTS_VARIABLE) or project().charts else []


def load_one_chart(name: str, *, code: str) -> BoundChart:
    """Return the chart of `--chart`. Raises UsageError with this code if the module has several."""
    found = load_charts([name])
    if len(found) != 1:
        kinds = ", ".join(each.chart.kind for each in found)
        raise UsageError(f"--chart {name} has several charts: {kinds}", code=code, hint="name one of them")
    return found[0]


def load_known_charts(given: Sequence[str]) -> list[BoundChart]:
    """Return the charts of a command that also works without charts. It imports no code of the project."""
    if not (given or os.environ.get(CHARTS_VARIABLE) or project().charts):
        return []
    try:
        return load_charts(given, imports=False)
    except UsageError as error:
        if error.code != CODE_SKIPPED:
            raise
        _warn(f"{error.message}; {error.hint}")
        return []


def _load(name: str, folder: Path | None) -> list[BoundChart]:
    return load_code(name, folder=folder) if is_code_name(name) else [load(name)]


def _module_folder(name: str) -> Path | None:
    """The folder of the project, if `module:name` is one of its charts: its module is imported from there."""
    if not is_code_name(name):
        return None
    try:
        found = project()
    except UsageError:  # a wrong project file matters only if it is used
        return None
    return found.folder if name in found.charts else None


def _project_charts(found: Project, alternative: str | None) -> list[str]:
    if not found.charts:
        hint = f"give one with --chart FILE, or write charts = [...] in {PROJECT_FILE}"
        hint = hint if alternative is None else f"{hint}, or {alternative}"
        raise UsageError("no chart given", code="charts.missing", hint=hint)
    return list(found.charts)


def _charts_without_code(found: Project, alternative: str | None) -> list[str]:
    """The charts of a project that are definitions. Raises UsageError if all are code."""
    names = _project_charts(found, alternative)
    definitions = [each for each in names if not is_code_name(each)]
    code = [each for each in names if is_code_name(each)]
    if code:
        message = f"the project's charts with code are not imported by a command that only reads: {', '.join(code)}"
        hint = f"to import them, add {' '.join(f'--chart {each}' for each in code)}"
        if not definitions:
            hint = hint if alternative is None else f"{hint}; or {alternative}"
            raise UsageError(message, code=CODE_SKIPPED, hint=hint)
        _warn(f"{message}; {hint}")
    return definitions


def _warn(text: str) -> None:
    context = click.get_current_context(silent=True)
    terminal = None if context is None else context.find_object(Terminal)
    (terminal or Terminal()).message(("warning", "yellow"), f": {text}")


# The project file


def project() -> Project:
    """Return the values of the nearest project file, or an empty Project. Raises UsageError if the file is invalid."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        for file, path in ((folder / PROJECT_FILE, ()), (folder / SHARED_FILE, ("tool", "interlock"))):
            if file.is_file():
                table = _read_table(file, path)
                if table is not None:
                    return _parse_project(file, table)
    return Project()


def _read_table(file: Path, path: tuple[str, ...]) -> dict[str, Any] | None:
    import tomllib

    try:
        found: Any = tomllib.loads(read_text_file(file))
    except (OSError, UsageError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{os.path.relpath(file)} cannot be read: {error}", code="project.malformed") from None
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else None


def _parse_project(file: Path, table: dict[str, Any]) -> Project:
    store, charts, prefix = table.get("store"), table.get("charts", []), table.get("key_prefix", "")
    name = os.path.relpath(file)
    keyring = table.get("keyring")
    unknown = sorted(set(table) - {"store", "charts", "key_prefix", "handlers", "keyring"})
    if unknown:
        hint = "the keys are `store`, `charts`, `key_prefix`, `handlers` and `keyring`"
        raise UsageError(f"unknown key `{unknown[0]}` in {name}", code="project.key", hint=hint)
    if not isinstance(charts, list) or not all(isinstance(each, str) for each in charts):
        raise UsageError(f"`charts` in {name} must be a list of strings", code="project.charts")
    if store is not None and (not isinstance(store, str) or not _URL.match(store)):
        hint = 'write "sqlite:///orders.db"'
        raise UsageError(f"`store` in {name} is not a store URL", code="project.store", hint=hint)
    if not isinstance(prefix, str):
        raise UsageError(f"`key_prefix` in {name} must be a string", code="project.key_prefix", hint='write "eu/"')
    if keyring is not None and not (isinstance(keyring, str) and keyring.startswith(("file:", "env:"))):
        # A command in the file of an untrusted folder would be run by commands that only read.
        hint = f'write "file:keyring.json"; a command can be given in {KEYRING_VARIABLE}'
        raise UsageError(f"`keyring` in {name} is not file:PATH or env:NAME", code="project.keyring", hint=hint)
    defaults = None if "handlers" not in table else _parse_handlers(name, table["handlers"])
    paths = (each if is_code_name(each, check_file=False) else os.path.relpath(file.parent / each) for each in charts)
    url = None if store is None else _relative_to(file.parent, store)
    return Project(
        store=url,
        charts=tuple(paths),
        key_prefix=prefix,
        handler_defaults=defaults,
        keyring=None if keyring is None else _relative_to(file.parent, keyring),
        folder=file.parent,
    )


def _parse_handlers(name: str, table: object) -> HandlerDefaults:
    """Return the defaults of handlers: the table `[handlers]` with `retry` and `timeout`."""
    hint = 'write [handlers] with retry = {max = 3, backoff = "1s..30s"} and timeout = "30s"'
    if not isinstance(table, dict) or set(table) - {"retry", "timeout"}:
        message = f"`handlers` in {name} must be a table with the keys `retry` and `timeout`"
        raise UsageError(message, code="project.handlers", hint=hint)
    try:
        return HandlerDefaults(**table)
    except UsageError as error:
        raise UsageError(f"{error.message}, in {name}", code="project.handlers", hint=hint) from None


def _relative_to(folder: Path, url: str) -> str:
    """The URL with a relative path resolved from the folder of the project."""
    for scheme in ("sqlite:///", "file:"):
        path = url.removeprefix(scheme)
        if path != url and not path.startswith("/"):
            return scheme + os.path.relpath(folder / path)
    return url
