"""What `manage.py check` says about the setting `INTERLOCK` and the models that have a chart."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from django.apps import apps
from django.core.checks import CheckMessage, Error, Warning  # noqa: A004 - the names of Django
from django.db import connections

from interlock.contrib.django.models import ChartLink, InterlockModel
from interlock.contrib.django.settings import StoreSettings, all_stores, store_settings
from interlock.errors import UsageError


def check_settings(**_: Any) -> list[CheckMessage]:
    """Report invalid options, charts, handlers and databases, and SQLite settings that make sends fail."""
    found: list[CheckMessage] = []
    for store in (_reported(found, all_stores) or {}).values():
        _reported(found, store.bound_charts)
        _reported(found, store.import_handlers)
        _reported(found, store.url, ignored="django.memory")  # the database of tests may be there, unused
        if store.database in connections:
            found += _sqlite_warnings(store)
    return found


def check_charts(**_: Any) -> list[CheckMessage]:
    """Report models whose chart is missing, or not one of their store."""
    found: list[CheckMessage] = []
    for model in apps.get_models():
        if issubclass(model, InterlockModel):
            problem = _reported(found, partial(_check_model, model))
            if problem:
                found.append(Error(problem, obj=model, id="interlock.E002"))
    return found


def _check_model(model: type[InterlockModel]) -> str | None:
    link = getattr(model, "interlock", None)
    if not isinstance(link, ChartLink):
        return 'it has no chart: write interlock = chart_of("shop.charts.order")'
    if link.path not in store_settings(link.store).charts:
        return f"the chart `{link.path}` is not one of the store `{link.store}` in the setting INTERLOCK"
    fields = model._meta.get_fields()  # noqa: SLF001 - documented by Django, in spite of its name
    if link.id != "pk" and link.id not in {each.name for each in fields}:
        return f"it has no field `{link.id}`, which chart_of(..., id=...) names"
    return None


def _sqlite_warnings(store: StoreSettings) -> list[CheckMessage]:
    connection = connections[store.database]
    if connection.vendor != "sqlite":
        return []
    options = connection.settings_dict.get("OPTIONS", {})
    if str(options.get("transaction_mode", "")).upper() in {"IMMEDIATE", "EXCLUSIVE"}:
        return []
    return [
        Warning(
            f"transactions of the database `{store.database}` start without the write lock, so a send in one that has "
            "read fails with `conflict.joined` when another transaction commits meanwhile",
            hint=f'DATABASES["{store.database}"]["OPTIONS"] = {{"transaction_mode": "IMMEDIATE"}}',
            id="interlock.W001",
        )
    ]


def _reported(found: list[CheckMessage], call: Callable[[], Any], *, ignored: str = "") -> Any:
    """Return the result of a call; None when it raises a UsageError, which is reported."""
    try:
        return call()
    except UsageError as error:
        if error.code != ignored:
            found.append(Error(error.message, hint=error.hint, id="interlock.E001"))
        return None
