"""Charts whose step would fill the memory: a small definition, one event, and values that share parts until encoded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.hostile.definitions import HEAD

MEMORY_BYTES_MAX = 300 * 2**20
SECONDS_MAX = 60

SENDER = f"""
import resource
resource.setrlimit(resource.RLIMIT_DATA, ({MEMORY_BYTES_MAX}, {MEMORY_BYTES_MAX}))
resource.setrlimit(resource.RLIMIT_CPU, ({SECONDS_MAX}, {SECONDS_MAX}))
import interlock
chart = interlock.load("bomb.yaml")
with interlock.open("memory:", charts=[chart], work=False) as runtime:
    runtime.create("hostile/1")
    try:
        receipt = runtime.send("hostile/1", "go")
        print(receipt.outcome, receipt.reason, *(each.code for each in receipt.faults))
    except interlock.RejectedError as error:
        print("refused", error.code)
    print(runtime.send("hostile/1", "live").outcome)
"""
"""Sends one event within bounds of memory and time, and then another one: the process and the entity live on."""

FIELDS = ", ".join(f"f{number}: {{type: any, nullable: true}}" for number in range(40))
DOUBLED = (
    "{foreach: {in: [0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15], item: i, do: [{assign: {s: '= context.s + context.s'}}]}}"
)
TEN = "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]"
THOUSAND = "ACTION"
for _ in range(3):
    THOUSAND = f"{{foreach: {{in: {TEN}, item: i, do: [{THOUSAND}]}}}}"


def bomb(*actions: str) -> str:
    """A chart that doubles a string up to 2.6 MB, and does this with it."""
    context = f"context: {{s: {{type: string, default: '{chr(0x1D54F) * 10}'}}, i: {{type: any}}, {FIELDS}}}\n"
    states = "states: {a: {on: {go: {actions: [ACTIONS]}, live: {actions: [x]}}, expect: {within: forever}}}\n"
    return HEAD + context + states.replace("ACTIONS", ", ".join([DOUBLED, *actions]))


NINETY = f"= [{', '.join(['context.s'] * 90)}]"
BOMBS = {
    "a list in many fields": (
        bomb(
            f"{{assign: {{f0: '{NINETY}'}}}}",
            *(f"{{assign: {{f{number}: '= context.f0'}}}}" for number in range(1, 40)),
        ),
        "refused snapshot.size",
    ),
    "many fields": (
        bomb(*(f"{{assign: {{f{number}: '= context.s'}}}}" for number in range(40))),
        "rejected failed step.bytes_max",
    ),
    "a thousand messages": (
        bomb(THOUSAND.replace("ACTION", "{emit: {type: x, data: '= context.s'}}")),
        "rejected failed step.bytes_max",
    ),
    "a thousand events": (
        bomb(THOUSAND.replace("ACTION", "{raise: {event: x, data: '= context.s'}}")),
        "rejected failed step.bytes_max",
    ),
    "one large entry": (
        bomb("{emit: {type: x, data: '= context.s'}}", "{assign: {s: ''}}"),
        "refused entry.size",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BOMBS)
def test_a_step_that_would_fill_memory_is_refused(name: str, tmp_path: Path) -> None:
    """Clearly, below 300 MB; without the count it took gigabytes, or ended the process in the encoder."""
    text, expected = BOMBS[name]
    (tmp_path / "bomb.yaml").write_text(text, encoding="utf-8")

    ended = subprocess.run(
        [sys.executable, "-c", SENDER], cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False
    )

    assert (0, f"{expected}\napplied\n") == (ended.returncode, ended.stdout), ended.stderr[-2_000:]
