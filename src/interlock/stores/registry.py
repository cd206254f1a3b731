"""Stores by the scheme of their address: how to open one, and what is at its address without opening it.

Rule 1: a module is imported when an address names it: the driver of a database that is not used need not be installed.
Rule 2: other packages add stores by an entry point in the group `interlock.stores`: a scheme, and a function that opens
an address. They are not described: their schema and tenants are unknown.
Rule 3: describing changes nothing. A store that does not exist is not created, an old one is not upgraded.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from functools import partial
from importlib import import_module
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qsl, quote

from msgspec import Struct

from interlock.errors import UsageError
from interlock.model.diagnostics import suggestion

if TYPE_CHECKING:
    from interlock.ports.store import Store

    Opener = Callable[[str], Store] | Callable[[str], Awaitable[Store]]

STORES = {
    "memory": "interlock.stores.memory",
    "file": "interlock.stores.files.store",
    "postgres": "interlock.stores.postgres.opening",
    "postgresql": "interlock.stores.postgres.opening",
    "sqlite": "interlock.stores.sqlite.store",
    "temporal": "interlock.engines.temporal.opening",
}
"""The stores that come with the package; each module has an `open_store(url)`."""

WITHOUT_SCHEMA = ("memory", "file")
"""Stores of the package that have one format and no migrations."""

DESCRIPTIONS = {
    "file": "interlock.stores.files.description",
    "postgres": "interlock.stores.postgres.description",
    "postgresql": "interlock.stores.postgres.description",
    "sqlite": "interlock.stores.sqlite.description",
}
"""Modules with `describe(url)`, `tenant_of(url)` and `list_tenants(url, limit)`, of the stores that keep data."""

STORE_GROUP = "interlock.stores"
"""The entry points of stores in other packages."""

OTHER_TENANTS_MAX = 1_000
"""Other tenants that are named: for an operator who mistyped a name, more are just many."""

TENANTS_MAX = 2**31 - 1
"""Tenants that are listed: all of them."""


class Schema(Struct, frozen=True):
    """The schema or format number that a store has (0: nothing yet), and the newest that this release knows."""

    store: str
    current: int
    newest: int
    layout: str | None = None


class Tenants(Struct, frozen=True):
    """The tenant of an address ("" without a name), and the other tenants that have entities there, sorted."""

    mine: str = ""
    others: tuple[str, ...] = ()


def store_opener(url: str) -> Opener:
    """Return the function that opens stores of this scheme. Raises UsageError (`store.unknown`)."""
    scheme, colon, _ = url.partition(":")
    module = STORES.get(scheme) if colon else None
    if module is not None:
        found: Opener = import_module(module).open_store
        return found
    plugins = store_plugins()
    if colon and scheme in plugins:
        opener: Opener = plugins[scheme]()
        return opener
    known = sorted({*STORES, *plugins})
    examples = f"addresses start with {', '.join(f'{each}:' for each in known)}, such as sqlite:///orders.db"
    hint = (colon and suggestion(scheme, known)) or examples
    raise UsageError(f"`{without_password(url)}` is not the address of a store", code="store.unknown", hint=hint)


def store_plugins() -> dict[str, Callable[[], Any]]:
    """Return the stores of other packages by scheme, each with a function that loads its opener."""
    found = import_module("importlib.metadata").entry_points(group=STORE_GROUP)
    return {each.name: each.load for each in found if each.name not in STORES}


async def open_store(url: str, opener: Opener | None = None) -> Store:
    """Open the store at an address. One that blocks is opened in a thread; one with a server is awaited.

    Raises UsageError for an invalid address, or a store of another package that lacks an attribute of `Store`;
    UnavailableError when the store cannot be reached.
    """
    from interlock.ports.store import check_capabilities
    from interlock.ports.threads import in_thread

    opener = opener or store_opener(url)
    if iscoroutinefunction(opener):
        store = await cast("Callable[[str], Awaitable[Store]]", opener)(url)
    else:
        store = await in_thread(partial(cast("Callable[[str], Store]", opener), url), name="interlock-open")
    try:
        check_capabilities(store)
    except UsageError:
        await store.close()
        raise
    return store


def without_migrations(url: str) -> str:
    """Return an address whose opening refuses an older schema instead of upgrading it (`migrate=0`).

    Raises UsageError for an address that says `migrate=1`, and for a store of another package: it has no such option.
    """
    scheme, _, rest = url.partition(":")
    if scheme in WITHOUT_SCHEMA:
        return url
    if scheme not in STORES:
        hint = "leave out `migrate=False`"
        raise UsageError(f"the store `{scheme}` has no option `migrate`", code="store.migrate", hint=hint)
    given = dict(parse_qsl(rest.partition("?")[2], keep_blank_values=True)).get("migrate")
    if given == "1":
        message = "`migrate=False` contradicts the `migrate=1` in the address"
        raise UsageError(message, code="store.migrate", hint="remove one of them")
    return url if given is not None else f"{url}{'&' if '?' in url else '?'}migrate=0"


def without_password(url: str) -> str:
    """Return an address that may be shown: without user and password."""
    return re.sub(r"//[^/?#]*@", "//", url)


async def schema_of(url: str) -> Schema | None:
    """Return the schema at an address and the newest that this release knows; None for a store that keeps none.

    Raises as opening the store would.
    """
    store_opener(url)  # raises for an unknown scheme
    description = _description(url)
    return None if description is None else cast("Schema", await description.describe(url))


def tenant_of(url: str) -> str:
    """Return the tenant of an address; "" where there are none. Raises UsageError for an invalid address."""
    description = _description(url)
    return "" if description is None else cast("str", description.tenant_of(url))


async def tenants_of(url: str) -> Tenants:
    """Return the tenant of an address, and up to `OTHER_TENANTS_MAX` others. Raises as opening the store would."""
    description = _description(url)
    if description is None:
        return Tenants()
    mine = tenant_of(url)
    found = await description.list_tenants(url, OTHER_TENANTS_MAX + 1)
    return Tenants(mine, tuple(each for each in found if each != mine)[:OTHER_TENANTS_MAX])


async def upgrade_script(url: str) -> str | None:
    """Return the statements that opening would run to upgrade a store; "" for none, None for a store without a schema.

    Raises as opening the store would.
    """
    description = _description(url)
    if description is None or not hasattr(description, "upgrade_script"):
        return None
    return cast("str", await description.upgrade_script(url))


def grant_script(url: str, role: str) -> str:
    """Return the statements by which the owner of a store's tables admits the role of an application.

    Raises UsageError (`grants.none`) for a store without roles.
    """
    description = _description(url)
    if description is None or not hasattr(description, "grant_script"):
        hint = "only PostgreSQL has roles; protect the files of another store by their permissions"
        raise UsageError("this store has no roles", code="grants.none", hint=hint)
    return cast("str", description.grant_script(url, role))


async def audit_privileges(url: str) -> tuple[str, ...]:
    """Return the privileges by which a program at this address could change the audit; none without roles."""
    description = _description(url)
    if description is None or not hasattr(description, "audit_privileges"):
        return ()
    return cast("tuple[str, ...]", await description.audit_privileges(url))


async def all_tenants(url: str) -> tuple[str, ...]:
    """Return all tenants that have entities at an address, sorted; of a folder, its only tenant.

    Raises UsageError (`tenants.none`) for a store without tenants.
    """
    description = _description(url)
    if description is None:
        raise UsageError("this store does not support tenants", code="tenants.none")
    return cast("tuple[str, ...]", await description.list_tenants(url, TENANTS_MAX))


async def audited_tenants(url: str) -> tuple[str, ...]:
    """Return all tenants that have entities or rows of the audit at an address, sorted. Raises as `all_tenants`."""
    found = set(await all_tenants(url))
    description = _description(url)
    if hasattr(description, "list_audited"):
        found |= set(await description.list_audited(url, TENANTS_MAX))
    return tuple(sorted(found))


def with_tenant(url: str, tenant: str) -> str:
    """Return the address of another tenant of the same store."""
    place, _, query = url.partition("?")
    words = [each for each in query.split("&") if each and not each.startswith("tenant=")]
    words += [f"tenant={quote(tenant, safe='')}"] if tenant else []
    return f"{place}?{'&'.join(words)}" if words else place


def _description(url: str) -> Any:
    module = DESCRIPTIONS.get(url.partition(":")[0])
    return None if module is None else import_module(module)
