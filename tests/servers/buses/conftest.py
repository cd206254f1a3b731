"""One broker of each kind for all tests of a process, stopped at its end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import pytest

from tests.support import brokers

T = TypeVar("T", bound=brokers.Broker)


@pytest.fixture(scope="session")
def nats() -> Iterator[brokers.Nats]:
    """NATS."""
    yield from _served(brokers.Nats)


@pytest.fixture(scope="session")
def redis() -> Iterator[brokers.Redis]:
    """Redis."""
    yield from _served(brokers.Redis)


@pytest.fixture(scope="session")
def rabbitmq() -> Iterator[brokers.Rabbit]:
    """RabbitMQ."""
    yield from _served(brokers.Rabbit)


@pytest.fixture(scope="session")
def kafka() -> Iterator[brokers.Kafka]:
    """Kafka."""
    yield from _served(brokers.Kafka)


def _served(kind: type[T]) -> Iterator[T]:
    broker: T = brokers.started(kind)
    yield broker
    broker.remove()
