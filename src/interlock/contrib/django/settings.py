"""The setting `INTERLOCK`: which stores the project has, and how they are opened.

Rule 1: each store is in a database of `DATABASES`, with whose transactions its sends are joined. Its address is made of
the settings of that database when it is opened, so that tests use the test database.
Rule 2: an unknown option, chart or database raises UsageError (`django.settings`) when it is used, and is reported by
`manage.py check` before that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from django.conf import settings as django_settings
from django.db import connections
from django.utils.module_loading import import_string

from interlock.assemble.charts import BoundChart
from interlock.errors import UsageError
from interlock.model.diagnostics import suggestion
from interlock.stores.postgres.address import THEIRS
from interlock.stores.sqlite.prefix import SHARED_PREFIX

SETTING = "INTERLOCK"

DEFAULT = "default"
"""The name of the store, and of the database, that is used where none is named."""

SUPPORTED = ("sqlite", "postgresql")
"""The databases of Django that a store can be in, as its `vendor`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """One store of `INTERLOCK`. `prefix` is for SQLite, `schema` for PostgreSQL; the others are those of `open`."""

    name: str
    charts: tuple[str, ...]
    handlers: tuple[str, ...] = ()
    database: str = DEFAULT
    tenant: str = ""
    prefix: str = SHARED_PREFIX
    schema: str = "interlock"
    bus: str | None = None
    source: str | None = None
    upgrade: str = "pinned"

    def bound_charts(self) -> list[BoundChart[Any]]:
        """Return the charts, imported. Raises UsageError for a path that does not lead to a chart."""
        return [import_chart(each) for each in self.charts]

    def import_handlers(self) -> None:
        """Import the modules that register handlers. Raises UsageError for one that does not exist."""
        for each in self.handlers:
            try:
                import_module(each)
            except ModuleNotFoundError as error:
                if error.name is None or not f"{each}.".startswith(f"{error.name}."):
                    raise  # a module that this one imports
                raise settings_error(f"`handlers` of `{self.name}`: there is no module `{each}`") from error

    def url(self) -> str:
        """Return the address of the store in its database, as that is configured now. It contains the password."""
        if self.database not in connections:
            hint = suggestion(self.database, list(connections)) or f"`DATABASES` has {', '.join(connections)}"
            raise settings_error(f"`database` of `{self.name}`: there is no database `{self.database}`", hint)
        connection = connections[self.database]
        if connection.vendor == "sqlite":
            return _sqlite_url(self, connection.settings_dict)
        if connection.vendor == "postgresql":
            return _postgres_url(self, connection.settings_dict)
        hint = "use a database in SQLite or PostgreSQL"
        raise settings_error(f"the database `{self.database}` is in {connection.vendor}, which has no store", hint)

    def options(self) -> dict[str, Any]:
        """Return the further arguments of `connect`. Only `manage.py migrate` upgrades the tables."""
        return {"bus": self.bus, "source": self.source, "upgrade": self.upgrade, "migrate": False}


_LISTS = ("charts", "handlers")
_OPTIONS = tuple(each.name for each in fields(StoreSettings) if each.name != "name")


def all_stores() -> dict[str, StoreSettings]:
    """Return the stores of the project by name. Raises UsageError (`django.settings`) for an invalid setting."""
    given = getattr(django_settings, SETTING, None)
    if given is None:
        hint = f'write {SETTING} = {{"default": {{"charts": ["shop.charts.order"]}}}}'
        raise settings_error(f"the setting `{SETTING}` is missing", hint)
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise settings_error(f"`{SETTING}` must be a dictionary of stores by name, got {given!r:.80}")
    return {name: _store(name, options) for name, options in given.items()}


def store_settings(name: str = DEFAULT) -> StoreSettings:
    """Return the settings of a store. Raises UsageError (`django.settings`) for an unknown one."""
    stores = all_stores()
    if name not in stores:
        hint = suggestion(name, list(stores)) or f"it has {', '.join(stores) or 'none'}"
        raise settings_error(f"`{SETTING}` has no store `{name}`", hint)
    return stores[name]


def import_chart(path: str) -> BoundChart[Any]:
    """Return the chart at a dotted path. Raises UsageError when there is none."""
    try:
        found = import_string(path)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{path}.".startswith(f"{error.name}."):
            raise  # a module that the module of the chart imports
        raise settings_error(f"there is no module for the chart `{path}`") from error
    except ImportError as error:
        raise settings_error(f"there is no chart `{path}`: {error}") from error
    if not isinstance(found, BoundChart):
        hint = 'a module with `order = interlock.load("order.yaml")` has the chart `module.order`'
        raise settings_error(f"`{path}` is {found!r:.60}, not a chart", hint)
    return found


def settings_error(message: str, hint: str | None = None) -> UsageError:
    """Return the error for an invalid setting."""
    return UsageError(message, code="django.settings", hint=hint)


def _store(name: str, options: Any) -> StoreSettings:
    if not isinstance(options, Mapping):
        raise settings_error(f"the store `{name}` must be a dictionary of options, got {options!r:.80}")
    unknown = [each for each in options if each not in _OPTIONS]
    if unknown:
        hint = suggestion(str(unknown[0]), _OPTIONS) or f"the options are {', '.join(_OPTIONS)}"
        raise settings_error(f"unknown option `{unknown[0]}` of the store `{name}`", hint)
    values: dict[str, Any] = dict(options)
    for each in _LISTS:
        values[each] = _paths(name, each, values.get(each, ()))
    for each, value in values.items():
        if each not in _LISTS and not isinstance(value, str):
            raise settings_error(f"`{each}` of the store `{name}` must be a string, got {value!r:.80}")
    if not values["charts"]:
        raise settings_error(f"the store `{name}` has no charts", 'write "charts": ["shop.charts.order"]')
    return StoreSettings(name=name, **values)


def _paths(name: str, option: str, value: Any) -> tuple[str, ...]:
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    if not is_list or not all(isinstance(each, str) for each in value):
        hint = f'write "{option}": ["shop.{option}"]'
        raise settings_error(f"`{option}` of the store `{name}` must be a list of paths, got {value!r:.80}", hint)
    return tuple(value)


def _sqlite_url(store: StoreSettings, database: Mapping[str, Any]) -> str:
    name = str(database["NAME"])
    if name == ":memory:" or "mode=memory" in name:
        hint = 'tests of a store need a file: DATABASES["default"]["TEST"] = {"NAME": BASE_DIR / "test.sqlite3"}'
        message = f"the database `{store.database}` is in memory, where a store cannot be"
        raise UsageError(message, code="django.memory", hint=hint)
    if name.startswith("file:"):
        raise settings_error(f"the NAME of the database `{store.database}` is a URI", "write the path of the file")
    options = {"prefix": store.prefix} | ({"tenant": store.tenant} if store.tenant else {})
    return f"sqlite:///{quote(str(Path(name).absolute()))}?{urlencode(options)}"


def _postgres_url(store: StoreSettings, database: Mapping[str, Any]) -> str:
    options = {"schema": store.schema} | ({"tenant": store.tenant} if store.tenant else {})
    options |= {name: str(value) for name, value in database.get("OPTIONS", {}).items() if name in THEIRS}
    host, port = str(database["HOST"] or ""), str(database["PORT"] or "")
    if host.startswith("/"):  # the folder of a socket
        options["host"] = host
        options |= {"port": port} if port else {}
        host = port = ""
    user, password = (quote(str(database[each] or ""), safe="") for each in ("USER", "PASSWORD"))
    who = f"{user}:{password}@" if password else f"{user}@" if user else ""
    where = f"{host}:{port}" if port else host
    return f"postgresql://{who}{where}/{quote(str(database['NAME'] or ''), safe='')}?{urlencode(options)}"
