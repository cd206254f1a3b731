"""The examples run as scripts, and say what they promise."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.eventually import PATIENCE_SECONDS

ROOT = Path(__file__).parents[3]

EXPECTED = {
    "device_fleet/fleet.py": """\
2.0 is wanted; one device is offline
  device/1: update_pending > steady
  device/2: update_pending > unreachable > steady > update_pending > steady
  device/3: update_pending > steady
  device/4: update_pending > steady
device/3 is downgraded to 0.9 by hand
  device/3: update_pending > steady
all run 2.0 after 5 installations
""",
    "order/order.py": """\
order/1: no failure
  draft > charge_pending > fulfilment.reservation > fulfilment.parcel > shipped
order/2: the card is refused
  draft > charge_pending > charge_declined
order/3: charged, but the bank does not respond
  draft > charge_pending > charge_unknown > fulfilment.reservation > fulfilment.parcel > shipped
order/4: not charged, but the bank does not respond
  draft > charge_pending > charge_unknown > charge_declined
order/5: charged, but the response is lost
  draft > charge_pending > fulfilment.reservation > fulfilment.parcel > shipped
order/6: charged and reserved, but no carrier
  draft > charge_pending > fulfilment.reservation > fulfilment.parcel > fulfilment.reservation_compensation \
> refund_pending > refunded
cards charged: 3, parcels on their way: 3
""",
    "vm/vm.py": """\
vm/1: nothing is missing: live, holds address, power, volume
vm/2: no route to its address: setup_failed, holds nothing
vm/3: no room for its content: setup_failed, holds nothing
vm/4: it does not boot: setup_failed, holds nothing
vm/5: deleted while it is being created: gone, holds nothing
""",
    "subscription/subscription.py": """\
1, in order: applied applied applied
2, in reverse: applied applied applied
2, again: duplicate duplicate duplicate
3, 4: no account in time, a person checks
3, a person: applied
4, later: applied
all: active active active active
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_an_example_prints_what_it_promises(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", str(ROOT / "examples" / name)]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    ended = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS, env=environment, cwd=tmp_path
    )

    assert (EXPECTED[name], "", 0) == (ended.stdout, ended.stderr, ended.returncode)
    assert [] == list(tmp_path.iterdir())
