"""The virtual object that Restate calls: `hypercorn bench.durable.engines.restate_service:app`."""

from __future__ import annotations

from typing import Any

import restate
from restate import ObjectContext, VirtualObject

from bench.durable.order import step

order = VirtualObject("Order")


@order.handler()
async def create(ctx: ObjectContext, req: dict[str, Any]) -> str:
    """Create an order."""
    ctx.set("order", {"state": "created", "version": 1})
    return "created"


@order.handler()
async def send(ctx: ObjectContext, req: dict[str, Any]) -> str:
    """Read the state, step it, write it."""
    found: Any = await ctx.get("order")
    state, _ = step(found["state"], req["event"])
    ctx.set("order", {"state": state, "version": found["version"] + 1})
    return state


app = restate.app([order])
