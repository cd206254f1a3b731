"""Rows of Django whose life is an entity of a chart: the row and the event are written in one transaction."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, Unpack

from django.db import connections, models
from django.utils.asyncio import async_unsafe

from interlock.assemble.charts import BoundChart
from interlock.contrib.django.runtimes import runtime
from interlock.contrib.django.settings import DEFAULT, import_chart, store_settings
from interlock.errors import UsageError
from interlock.model.encoding.convert import Model
from interlock.model.journal.entry import Receipt
from interlock.model.snapshot import Snapshot
from interlock.runtime.join.joined import Joined
from interlock.runtime.request_checks import SendOptions


class ChartLink:
    """Which chart the rows of a model live by, and which field is the id of their entity. Made by `chart_of`."""

    def __init__(self, path: str, *, id: str, store: str) -> None:
        self.path = path
        self.id = id
        self.store = store

    @cached_property
    def chart(self) -> BoundChart[Any]:
        """The chart, imported when it is first used: its module may import models."""
        return import_chart(self.path)

    @property
    def connection(self) -> Any:
        """The connection of this thread to the database of the store."""
        return connections[store_settings(self.store).database]

    def entity_of(self, row: models.Model) -> str:
        """Return the id of the entity of a row. Raises UsageError for a row that is not saved yet."""
        value = getattr(row, self.id)
        if value is None:
            message = f"this `{type(row).__name__}` has no `{self.id}` yet"
            raise UsageError(message, code="django.unsaved", hint="save it first, in the same transaction")
        return f"{self.chart.chart.kind}/{value}"

    def joined(self) -> Joined:
        """Return the runtime in the open transaction. Its calls raise UsageError (`join.autocommit`) outside of one."""
        return runtime(self.store).join(self.connection)


def chart_of(path: str, *, id: str = "pk", store: str = DEFAULT) -> ChartLink:
    """Return the link of a model to its chart: the dotted path of a chart of the store in the setting `INTERLOCK`.

    `id` is the field whose value, after the kind, is the id of the entity: `order/7`.
    """
    return ChartLink(path, id=id, store=store)


class InterlockModel(models.Model):
    """A row whose life is an entity. The database of the store decides, wherever the row itself was read from.

    class Order(InterlockModel):
        interlock = chart_of("shop.charts.order")
        amount = models.DecimalField(max_digits=10, decimal_places=2)

    with transaction.atomic():
        order = Order.objects.create(amount=amount)
        order.create_entity({"amount": amount})
    """

    interlock: ClassVar[ChartLink]

    class Meta:
        """It has no table."""

        abstract = True

    @property
    def entity(self) -> str:
        """The id of the entity, such as `order/7`. Raises UsageError (`django.unsaved`) before the row is saved."""
        return self.interlock.entity_of(self)

    @async_unsafe
    def create_entity(self, context: Mapping[str, Any] | Model | None = None, **options: Any) -> Receipt:
        """Create the entity in the open transaction; the arguments are those of `Runtime.create`.

        Raises UsageError (`join.autocommit`) outside `transaction.atomic`: a crash could keep the row and lose the
        entity.
        """
        return self.interlock.joined().create(self.entity, context, **options)

    @async_unsafe
    def send(self, event: str | Model, payload: Any = None, **options: Unpack[SendOptions]) -> Receipt:
        """Send an event in the open transaction; the arguments are those of `Runtime.send`.

        The receipt counts after the COMMIT. Raises UsageError (`join.autocommit`) outside `transaction.atomic`, and
        ConflictError (`conflict.joined`) when another transaction was first: run the whole transaction again.
        """
        return self.interlock.joined().send(self.entity, event, payload, **options)

    @async_unsafe
    def snapshot(self) -> Snapshot:
        """Return the entity: inside `transaction.atomic` as that transaction sees it, without a lock.

        Raises NotFoundError when the entity does not exist.
        """
        link = self.interlock
        if link.connection.in_atomic_block:
            return link.joined().state(self.entity)
        return runtime(link.store).state(self.entity)
