"""What readers see who may not see hidden states, on PostgreSQL: the same in two worlds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.accounts import ACCOUNT, ADA
from tests.support.postgres_server import store_or_skip
from tests.unit.runtime.reading.test_readers import NAME, deposit, everything, freeze, opened


@pytest.mark.parametrize("ends", [False, True])
async def test_a_stay_in_a_hidden_state_leaves_no_trace_for_others(tmp_path: Path, ends: bool) -> None:
    text = ACCOUNT.replace('note: "= event.data.text"', 'iban: "= event.data.text"')
    worlds: list[list[Any]] = []
    for is_frozen in (False, True):
        async with opened(store_or_skip(), tmp_path, text=text) as (runtime, clock):
            await runtime.create(NAME, principal=ADA)
            seen: list[Any] = [await deposit(runtime, clock, 1)]
            if is_frozen:
                await freeze(runtime, clock, ends=ends)
            clock.time_ms = 1_010_000
            seen.append(await everything(runtime))
            if ends:
                seen += [await deposit(runtime, clock, 11), await everything(runtime)]
            assert (await runtime.verify(NAME)).problem is None
            worlds.append(seen)

    assert worlds[0] == worlds[1]
