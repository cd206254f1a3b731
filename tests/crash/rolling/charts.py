"""The two revisions of the rolling deployment, and how a process loads one.

The newer one renames a state, changes a delay, adds a field, a state and an event, and a guard in Python. The older
process has the guard's code already: code is deployed before the chart that names it.
"""

from __future__ import annotations

import asyncio
from typing import Literal

import interlock
from interlock import BoundChart
from interlock.effects.handlers import Attempt

OLDER = """
interlock: 1
kind: parcel
revision: 1.0.0
upgrade: safe
events: {noted: {}, taken: {}}
context: {notes: {type: integer, default: 0}}
initial: shelf
on: {noted: {actions: [{assign: {notes: "= context.notes + 1"}}]}}
states:
  shelf: {after: {300ms: late}, on: {taken: van}}
  late: {after: {1h: shelf}, on: {taken: van}}
  van: {invoke: {id: drive, src: parcel.drive, onDone: shelf, onError: shelf}}
"""

NEWER = """
interlock: 1
kind: parcel
revision: 1.1.0
upgrade: safe
renamed: {late: overdue}
events: {noted: {}, taken: {}, weighed: {}}
context: {notes: {type: integer, default: 0}, weight: {type: integer, default: 1}}
initial: shelf
on: {noted: {actions: [{assign: {notes: "= context.notes + 1"}}]}}
states:
  shelf: {after: {600ms: overdue}, on: {taken: {target: van, guard: may_leave}, weighed: scale}}
  overdue: {after: {1h: shelf}, on: {taken: {target: van, guard: may_leave}, weighed: scale}}
  van: {invoke: {id: drive, src: parcel.drive, onDone: shelf, onError: shelf}}
  scale: {on: {taken: {target: van, guard: may_leave}}}
"""

Policy = Literal["pinned", "safe"]
Edition = Literal["older", "newer"]


def text_of(edition: Edition, policy: Policy) -> str:
    """Return the definition of an edition, with a policy."""
    text = OLDER if edition == "older" else NEWER
    return text.replace("upgrade: safe", f"upgrade: {policy}")


def parcels(edition: Edition, policy: Policy, *, has_code: bool = True) -> BoundChart:
    """Return the chart of a process. Without `has_code`, its program does not have the guard of the newer one."""
    chart = interlock.loads(text_of(edition, policy))
    if has_code:
        chart.guard("may_leave", other_revisions=True)(lambda context, event: context["weight"] > 0)

    @chart.handler("parcel.drive")
    async def drive(effect: Attempt) -> None:
        await asyncio.sleep(0)  # the result comes back as a separate event

    return chart
