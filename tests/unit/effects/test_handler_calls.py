"""Typed handlers: `(input, attempt)`, results that are models, and asynchronous generators."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest

import interlock
from interlock.model.snapshot import Snapshot
from interlock.testing.simulation import Simulation
from tests.support.eventually import eventually

ORDER = """
interlock: 1
kind: order
context:
  price: {type: string, format: decimal, required: true}
  receipt: {type: any, default: null}
  why: {type: string, default: ""}
states:
  paying:
    invoke:
      id: pay
      src: charge
      input: {price: "= context.price"}
      timeout: 1m
      onDone: {target: paid, actions: [{assign: {receipt: "= event.data"}}]}
      onError: {target: failed, actions: [{assign: {why: "= event.data.code"}}]}
  paid: {type: final}
  failed: {type: final}
"""


class ChargeStruct(msgspec.Struct):
    """An input."""

    price: Decimal


class ChargeModel(pydantic.BaseModel):
    """An input."""

    price: Decimal


@dataclass
class ChargeClass:
    """An input."""

    price: Decimal


class ChargeDict(TypedDict):
    """An input."""

    price: Decimal


@dataclass
class Charged:
    """A result."""

    at: datetime
    price: Decimal


AT = datetime(2026, 1, 1, tzinfo=UTC)
RECEIPT = {"at": "2026-01-01T00:00:00Z", "price": "39.80"}


async def life(handler: Any) -> Snapshot:
    """How an order with this handler ends."""
    chart = interlock.loads(ORDER)
    chart.handler("charge")(handler)
    async with interlock.open("memory:", charts=[chart], work=True) as orders:
        await orders.create("order/1", {"price": Decimal("19.90")})

        async def is_over() -> bool:
            return (await orders.state("order/1")).ended is not None

        await eventually(is_over)
        return await orders.state("order/1")


def _struct(input: ChargeStruct, attempt: interlock.Attempt) -> Charged:
    return Charged(AT, input.price * 2)


async def _model(input: ChargeModel, attempt: interlock.Attempt) -> Charged:
    return Charged(AT, input.price * 2)


def _class(input: ChargeClass, attempt: interlock.Attempt) -> Charged:
    return Charged(AT, input.price * 2)


async def _dict(input: ChargeDict, attempt: interlock.Attempt) -> Charged:
    return Charged(AT, input["price"] * 2)


def _plain(input, attempt):  # type: ignore[no-untyped-def]  # an input without a type is JSON
    return {"at": AT, "price": Decimal(input["price"]) * 2}


def _alone(attempt: interlock.Attempt) -> Charged:
    return Charged(AT, Decimal(attempt.input["price"]) * 2)


async def _stream(input: ChargeStruct, attempt: interlock.Attempt) -> AsyncIterator[interlock.Progress[Any] | Charged]:
    yield interlock.Progress({"done": Decimal("0.5")})
    yield Charged(AT, input.price * 2)


@pytest.mark.parametrize("handler", [_struct, _model, _class, _dict, _plain, _alone, _stream])
async def test_a_handler_gets_its_input_as_its_type_and_returns_a_model(handler: Any) -> None:
    found = await life(handler)

    assert (("paid",), RECEIPT) == (found.configuration, found.context["receipt"])


@pytest.mark.parametrize("handler", [_struct, _model, _class, _dict, _alone, _stream])
def test_a_simulation_calls_it_in_the_same_way(handler: Any) -> None:
    simulation = Simulation(interlock.loads(ORDER), handlers={"charge": handler})
    simulation.create("order/1", {"price": "19.90"})
    simulation.run()

    assert RECEIPT == simulation.snapshots["order/1"].context["receipt"]


@dataclass
class Other:
    """An input that the chart does not give."""

    amount: int


def _wrong_input(input: Other, attempt: interlock.Attempt) -> None: ...


def _wrong_result(attempt: interlock.Attempt) -> Any:
    return {"rate": float("nan")}


@pytest.mark.parametrize(("handler", "code"), [(_wrong_input, "handler.input"), (_wrong_result, "result.malformed")])
async def test_what_does_not_fit_is_the_error_of_the_handler(handler: Any, code: str) -> None:
    found = await life(handler)

    assert (("failed",), code) == (found.configuration, found.context["why"])
