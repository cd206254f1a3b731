"""RabbitMQ without a broker."""

import pytest

from interlock.buses.rabbitmq import TYPE_BYTES_MAX, open_bus
from interlock.errors import RejectedError, UnavailableError
from interlock.model.journal.message import Message

NOWHERE = "amqp://guest:guest@127.0.0.1:1/?exchange=orders"


def typed(type: str) -> Message:
    """A message of this type."""
    return Message(id="1", source="/shop/order", type=type)


@pytest.mark.parametrize("type", ["x" * (TYPE_BYTES_MAX + 1), "ü" * (TYPE_BYTES_MAX // 2 + 1)])
async def test_a_type_that_is_too_long_for_amqp_is_rejected(type: str) -> None:
    bus = open_bus(NOWHERE)
    with pytest.raises(RejectedError) as caught:
        await bus.publish(typed(type))
    await bus.close()

    assert "bus.size" == caught.value.code


async def test_the_longest_type_of_amqp_is_sent_to_the_broker() -> None:
    bus = open_bus(NOWHERE)
    with pytest.raises(UnavailableError):
        await bus.publish(typed("x" * TYPE_BYTES_MAX))
    await bus.close()
