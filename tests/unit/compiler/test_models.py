"""Models of a context and of payloads are compared with the chart when it is loaded."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Literal, NotRequired, TypedDict

import msgspec
import pydantic
import pytest

import interlock
from interlock.errors import DefinitionError, UsageError

ORDER = """
interlock: 1
kind: order
context:
  amount: {type: string, format: decimal, required: true}
  paid_at: {type: string, format: date-time, nullable: true}
  lines:
    type: array
    items: {type: object, fields: {name: {type: string, required: true}, count: {type: integer, required: true}}}
    default: []
  speed: {type: string, enum: [slow, fast], default: slow}
  rate: {type: number, default: 1}
events:
  paid: {payload: {id: string, at: {type: string, format: date-time}, note: {type: string, required: false}}}
  closed: {}
states:
  open: {on: {paid: {target: done, actions: [{assign: {paid_at: "= event.data.at"}}]}, closed: done}}
  done: {type: final}
"""


@dataclass
class Line:
    """A line of an order."""

    name: str
    count: int


class Order(msgspec.Struct):
    """The context, as a Struct."""

    amount: Decimal
    paid_at: datetime | None = None
    lines: list[Line] = []
    speed: Literal["slow", "fast"] = "slow"
    rate: float = 1


@dataclass
class OrderClass:
    """The context, as a dataclass."""

    amount: Decimal
    paid_at: datetime | None = None
    lines: list[Line] = field(default_factory=list)
    speed: Literal["slow", "fast"] = "slow"
    rate: float = 1


class LineModel(pydantic.BaseModel):
    """A line of an order."""

    name: str
    count: int


class OrderModel(pydantic.BaseModel):
    """The context, as a pydantic model."""

    amount: Decimal
    paid_at: datetime | None = None
    lines: list[LineModel] = []
    speed: Literal["slow", "fast"] = "slow"
    rate: float = 1


class OrderDict(TypedDict):
    """The context, as a TypedDict."""

    amount: Decimal
    paid_at: NotRequired[datetime | None]
    lines: NotRequired[list[Line]]
    speed: NotRequired[Literal["slow", "fast"]]
    rate: NotRequired[float]


class Paid(msgspec.Struct):
    """A payload."""

    id: str
    at: datetime


ORDERS: list[tuple[Any, Any]] = [(Order, Line), (OrderClass, Line), (OrderModel, LineModel), (OrderDict, Line)]
AT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(("context", "line"), ORDERS)
async def test_a_context_is_written_and_read_as_its_model(context: Any, line: Any) -> None:
    order = interlock.loads(ORDER, context=context, models={"paid": Paid})
    given = context(amount=Decimal("19.90"), lines=[line(name="a", count=2)])
    async with interlock.open("memory:", charts=[order], work=False) as orders:
        created = (await orders.create("order/1", given)).expect()
        receipt = (await orders.send("order/1", Paid("p", AT), key="k")).expect()
        again = await orders.send("order/1", Paid("p", AT), key="k")

    before: Any = order.context_of(created.snapshot)
    after: Any = order.context_of(receipt.snapshot)
    values = after if isinstance(after, dict) else {name: getattr(after, name) for name in Order.__struct_fields__}
    assert (Decimal("19.90"), AT, "slow", 1) == tuple(values[each] for each in ("amount", "paid_at", "speed", "rate"))
    assert ([line(name="a", count=2)], "duplicate") == (values["lines"], again.outcome)
    assert type(before) is type(given)
    assert order.start(given, entity="order/2").snapshot.context["amount"] == "19.90"


def test_without_a_model_the_context_is_a_mapping_without_the_progress_of_sagas() -> None:
    text = """
interlock: 1
kind: trip
context: {to: {type: string, default: Rome}}
states:
  booking:
    saga:
      steps: [{id: hotel, do: {src: hotel.book}, compensate: {src: hotel.cancel}}]
      onDone: booked
      onCompensated: refused
      onError: refused
  booked: {type: final}
  refused: {type: final}
"""
    trip = interlock.loads(text)
    snapshot = trip.start(entity="trip/1").snapshot
    found = trip.context_of(snapshot)
    found["to"] = "Oslo"

    assert {"to": "Rome"} == trip.context_of(snapshot)
    assert {"to"} < set(snapshot.context)


def struct(**fields: Any) -> Any:
    """A Struct like `Order`, with some fields replaced; `...` removes one."""
    types = {
        "amount": Decimal,
        "paid_at": datetime | None,
        "lines": list[Line],
        "speed": Literal["slow", "fast"],
        "rate": float,
    }
    assert set(Order.__struct_fields__) == set(types)
    wanted = {name: each for name, each in (types | fields).items() if each is not ...}
    return msgspec.defstruct("Wrong", list(wanted.items()), module="shop.models")


@dataclass
class Short:
    """A line without its count, and with another field."""

    name: str
    colour: str


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"amount": ...}, "model.missing_field", ["amount", "shop.models.Wrong"]),
        ({"extra": str}, "model.unknown_field", ["extra"]),
        ({"amount": int}, "model.type", ["amount", "string", "integer"]),
        ({"amount": date}, "model.type", ["amount", "decimal", "date"]),
        ({"paid_at": datetime}, "model.nullable", ["paid_at", "null"]),
        ({"amount": Decimal | None}, "model.nullable", ["amount", "None"]),
        ({"speed": Literal["slow"]}, "model.enum", ["speed", "fast"]),
        ({"speed": Literal["slow", "fast", "warp"]}, "model.enum", ["speed", "warp"]),
        ({"speed": str}, "model.enum", ["speed"]),
        ({"rate": int}, "model.type", ["rate", "number", "integer"]),
        ({"lines": set[str]}, "model.type", ["lines", "set"]),
        ({"lines": list[int]}, "model.type", ["lines", "object", "integer"]),
        ({"lines": list[Short]}, "model.missing_field", ["count"]),
        ({"lines": list[Short]}, "model.unknown_field", ["colour"]),
        ({"rate": complex}, "model.type", ["complex"]),
    ],
)
def test_a_difference_is_an_error_with_both_places(fields: dict[str, Any], code: str, words: list[str]) -> None:
    with pytest.raises(DefinitionError) as caught:
        interlock.loads(ORDER, context=struct(**fields))
    found = [each for each in caught.value.diagnostics if each.code == code]

    assert found
    assert found[0].location.line > 1
    for word in words:
        assert any(word in each.message + (each.hint or "") for each in found)


def test_an_integer_may_be_written_into_a_number_of_a_payload() -> None:
    text = ORDER.replace("id: string", "id: number")

    @dataclass
    class Numbered:
        id: int
        at: datetime

    assert interlock.loads(text, models={"paid": Numbered}).models == {"paid": Numbered}


def test_a_payload_may_leave_out_what_the_chart_does_not_need_and_nothing_else() -> None:
    class Short(msgspec.Struct):
        id: str

    interlock.loads(ORDER, models={"paid": Paid})
    with pytest.raises(DefinitionError) as caught:
        interlock.loads(ORDER, models={"paid": Short})

    assert ["model.missing_field"] == [each.code for each in caught.value.diagnostics if each.severity == "error"]


def test_what_a_field_cannot_express_is_a_warning() -> None:
    class Tagged(msgspec.Struct, tag=True):
        one: int

    class Other(msgspec.Struct, tag=True):
        two: int

    text = ORDER.replace("rate: {type: number, default: 1}", "rate: {type: object, default: {}}")
    order = interlock.loads(text, context=struct(rate=Tagged | Other))

    assert "model.inexact" in [each.code for each in order.diagnostics]


def test_a_model_that_contains_itself_is_compared() -> None:
    with pytest.raises(DefinitionError) as caught:
        interlock.loads(ORDER, context=Node)

    assert "model.missing_field" in [each.code for each in caught.value.diagnostics]


class Node(msgspec.Struct):
    """A tree."""

    children: list[Node] = []


@pytest.mark.parametrize(
    ("call", "code"),
    [
        ({"models": {"payd": Paid}}, "event.unknown"),
        ({"models": {"paid": dict}}, "model.malformed"),
        ({"models": {"paid": Paid("p", AT)}}, "model.malformed"),
        ({"models": [Paid]}, "model.malformed"),
        ({"context": Order, "models": {"context": Order}}, "model.malformed"),
        ({"contxt": Order}, "argument.unknown"),
    ],
)
def test_models_that_cannot_be_meant_raise(call: dict[str, Any], code: str) -> None:
    with pytest.raises(UsageError) as caught:
        interlock.loads(ORDER, **call)

    assert code == caught.value.code


async def test_an_event_is_found_by_its_model_only_if_there_is_one() -> None:
    text = ORDER.replace("closed: {}", "closed: {payload: {id: string, at: string}}")
    order = interlock.loads(text, models={"paid": Paid, "closed": Paid})

    class Derived(Paid):
        pass

    async with interlock.open("memory:", charts=[order], work=False) as orders:
        await orders.create("order/1", {"amount": "1"})
        codes = []
        for call in ((Paid("p", AT),), (Line("a", 1),), (Derived("p", AT),), (Paid("p", AT), {"id": "p"})):
            with pytest.raises(UsageError) as caught:
                await orders.send("order/1", *call)
            codes.append(caught.value.code)
        receipt = await orders.send("order/1", "closed", Derived("p", AT))

    assert ["event.ambiguous", "event.unknown", "event.ambiguous", "event.malformed"] == codes
    assert "applied" == receipt.outcome


async def test_a_stored_context_that_does_not_fit_the_model_names_the_field() -> None:
    order = interlock.loads(ORDER, context=Order)
    snapshot = interlock.loads(ORDER).start({"amount": "1"}, entity="order/1").snapshot
    broken = msgspec.structs.replace(snapshot, context={**snapshot.context, "amount": "secret"})
    with pytest.raises(UsageError) as caught:
        order.context_of(broken)

    assert "context.model" == caught.value.code
    assert "amount" in str(caught.value)
    assert "secret" not in str(caught.value)
