"""One broker of each kind for all tests of a process, stopped at its end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import pytest

from tests.support import brokers as servers

T = TypeVar("T", bound=servers.Broker)


@pytest.fixture(scope="session")
def nats() -> Iterator[servers.Nats]:
    """NATS."""
    yield from _served(servers.Nats)


@pytest.fixture(scope="session")
def redis() -> Iterator[servers.Redis]:
    """Redis."""
    yield from _served(servers.Redis)


@pytest.fixture(scope="session")
def rabbitmq() -> Iterator[servers.Rabbit]:
    """RabbitMQ."""
    yield from _served(servers.Rabbit)


@pytest.fixture(scope="session")
def kafka() -> Iterator[servers.Kafka]:
    """Kafka."""
    yield from _served(servers.Kafka)


def _served(kind: type[T]) -> Iterator[T]:
    broker: T = servers.started(kind)
    yield broker
    broker.remove()
