"""mypy on what `interlock types` writes: it accepts the modules and the right programs, and rejects the wrong ones."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from interlock.assemble.charts import load
from interlock.render.python_types import python_types
from tests.tidy.tracked import ROOT

CHARTS = sorted(ROOT.glob("examples/**/*.interlock.yaml"))

RIGHT = """\
import interlock
from order_types import (
    OrderContext, OrderEvent, OrderState, PaymentRefundInput, order_context, order_runtime, order_states
)

async def declared(runtime: interlock.Runtime) -> int:
    orders = order_runtime(runtime)
    await orders.create("order/1", {"amount": 5}, key="k")
    receipt = await orders.send("order/1", "payment.confirmed", {"id": "p"}, key="k", expected=1)
    await orders.send("order/1", "order.cancelled", principal={"roles": ["support"]})
    return receipt.expect().version

def blocking(runtime: interlock.BlockingRuntime) -> str | None:
    orders = order_runtime(runtime)
    orders.create("order/1", {"amount": 5, "payment": None})
    orders.send("order/1", "payment.confirmed", {"id": "p"})
    return order_context(runtime.state("order/1"))["payment"]

def states(snapshot: interlock.Snapshot) -> bool:
    state: OrderState = "paid"
    return state in order_states(snapshot)

def handler(attempt: interlock.Attempt) -> str | None:
    given: PaymentRefundInput = attempt.input
    return given["payment"]

async def undeclared(runtime: interlock.Runtime, event: OrderEvent) -> OrderContext:
    return order_context((await runtime.send("order/1", event)).snapshot or await runtime.state("order/1"))
"""

WRONG = {
    "a misspelt event": 'await order_runtime(runtime).send("order/1", "payment.confirmd", {"id": "p"})',
    "an unknown field": 'await order_runtime(runtime).send("order/1", "payment.confirmed", {"ident": "p"})',
    "a wrong type": 'await order_runtime(runtime).send("order/1", "payment.confirmed", {"id": 5})',
    "a missing payload": 'await order_runtime(runtime).send("order/1", "payment.confirmed")',
    "an unknown option": 'await order_runtime(runtime).send("order/1", "order.cancelled", kye="k")',
    "an option of a wrong type": 'await order_runtime(runtime).send("order/1", "order.cancelled", expected="1")',
    "a missing field of the context": 'await order_runtime(runtime).create("order/1", {})',
    "a misspelt field of the context": 'await order_runtime(runtime).create("order/1", {"amount": 5, "paymnt": None})',
    "a missing context": 'await order_runtime(runtime).create("order/1")',
    "a missing await": 'order_runtime(runtime).send("order/1", "order.cancelled")',
    "an await too many": 'await order_runtime(blocking).send("order/1", "order.cancelled")',
    "a misspelt state": 'state: OrderState = "payed"',
    "an unknown field that is read": 'order_context(await runtime.state("order/1"))["amuont"]',
    "a field that may be null": 'order_context(await runtime.state("order/1"))["payment"].upper()',
    "an unknown field of an input": 'given["charge"]',
    "a misspelt handler": 'name: OrderHandler = "payment.refnud"',
}
"""One wrong statement for each function: after an error mypy knows no type, and would miss a second one."""

HEAD = """\
import interlock
from order_types import (
    OrderHandler, OrderState, PaymentRefundInput, order_context, order_runtime
)
"""
FUNCTION = """
async def wrong_{number}(
    runtime: interlock.Runtime, blocking: interlock.BlockingRuntime, given: PaymentRefundInput
) -> None:
    {statement}  # wrong
"""


@pytest.mark.slow
def test_mypy_accepts_right_programs_and_rejects_wrong_ones(tmp_path: Path) -> None:
    names = {"order_types.py": ROOT / "examples/order.interlock.yaml"}
    names |= {f"{path.relative_to(ROOT).as_posix().replace('/', '_').split('.')[0]}.py": path for path in CHARTS}
    for name, path in names.items():
        (tmp_path / name).write_text(python_types(load(path).chart), encoding="utf-8")
    (tmp_path / "right.py").write_text(RIGHT, encoding="utf-8")
    functions = [FUNCTION.format(number=number, statement=each) for number, each in enumerate(WRONG.values())]
    wrong = HEAD + "".join(functions)
    (tmp_path / "wrong.py").write_text(wrong, encoding="utf-8")
    expected = [f"wrong.py:{number}" for number, line in enumerate(wrong.splitlines(), 1) if line.endswith("# wrong")]

    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--no-error-summary", "."]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    rejected = {match[1] for match in re.finditer(r"^(\S+:\d+): error: ", ended.stdout, re.MULTILINE)}
    assert "" == ended.stderr
    assert set(expected) == rejected, ended.stdout
