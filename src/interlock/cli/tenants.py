"""What a command says that found nothing because its address names the wrong tenant, or none.

Rule: names of other tenants are told: whoever runs a command on a store can read all of it.
"""

from __future__ import annotations

from urllib.parse import quote

from interlock.errors import NotFoundError
from interlock.model.diagnostics import suggestion
from interlock.ports.store import Store
from interlock.stores.registry import OTHER_TENANTS_MAX, tenants_of

NAMED_MAX = 5
"""Other tenants that are told by name: enough to see a typing error."""

WITHOUT_NAME = "the tenant without a name"
"""How the one is called that an address without `?tenant=` means."""


async def empty_tenant(url: str, store: Store) -> NotFoundError | None:
    """The error of a tenant that has no entities where others have some; None when it has, or nobody has any."""
    found = await tenants_of(url)
    if not found.others or await store.kinds():
        return None
    count = len(found.others)
    many = f"{count:,} or more others have" if count == OTHER_TENANTS_MAX else f"{count:,} others have"
    many = "one other has" if count == 1 else many
    named = ", ".join(each or WITHOUT_NAME for each in found.others[:NAMED_MAX])
    more = ", …" if count > NAMED_MAX else ""
    mine = f"tenant `{found.mine}`" if found.mine else WITHOUT_NAME
    message = f"{mine} has no entities at this address; {many}: {named}{more}"
    first = next((each for each in found.others if each), None)
    hint = suggestion(found.mine, found.others) or (
        "leave ?tenant= out" if first is None else f"name the tenant in the address, ?tenant={quote(first, safe='')}"
    )
    return NotFoundError(message, code="tenant.empty", hint=hint)
