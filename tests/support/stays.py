"""Random lives of accounts in two worlds: the same public events, and in one of them stays in the hidden state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from hypothesis import strategies as st

from interlock.runtime.runtime import Runtime
from interlock.testing.clock import VirtualClock
from tests.support.accounts import ADA, EVE

ACCOUNTS = ("1", "2", "3")


class Action(NamedTuple):
    """Something that happens to an account."""

    account: str
    what: str


@st.composite
def actions(draw: st.DrawFn, *, least: int = 0, most: int = 14) -> list[Action]:
    """Draw actions. While an account is frozen there is no public event for it: it would show no effect."""
    found: list[Action] = []
    frozen: set[str] = set()
    closed: set[str] = set()
    for _ in range(draw(st.integers(least, most))):
        account = draw(st.sampled_from(ACCOUNTS))
        if account in closed:
            continue
        possible = ("noted", "unfrozen") if account in frozen else ("deposited", "deposited", "frozen", "closed")
        what = draw(st.sampled_from(possible))
        found.append(Action(account, what))
        if what == "closed":
            closed.add(account)
        if what in ("frozen", "unfrozen"):
            frozen ^= {account}
    return found


async def live(runtime: Runtime, clock: VirtualClock, script: Sequence[Action], *, is_frozen: bool) -> None:
    """Do what a script says, one action per second; without the stays unless `is_frozen`."""
    for account, what in script:
        clock.time_ms += 1_000
        is_public = what in ("deposited", "closed")
        if not is_public and not is_frozen:
            continue
        payload: Any = {"deposited": {"amount": 1}, "noted": {"text": "suspect"}}.get(what)
        principal = ADA if is_public else EVE
        receipt = await runtime.send(f"account/{account}", what, payload, key=f"a-{clock.time_ms}", principal=principal)
        assert "applied" == receipt.outcome, what
