"""The app `interlock` of a Django project."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.core import checks
from django.db.models.signals import post_migrate

from interlock.errors import NotFoundError, UsageError


class InterlockConfig(AppConfig):
    """Registers the checks, and prepares stores after `migrate`."""

    name = "interlock.contrib.django"
    label = "interlock"
    verbose_name = "Interlock"

    def ready(self) -> None:
        """Register what Django calls later; nothing is opened here, because servers fork after this."""
        from interlock.contrib.django.checks import check_charts, check_settings

        checks.register(check_settings, "interlock")
        checks.register(check_charts, "interlock")
        post_migrate.connect(prepare_stores, sender=self, dispatch_uid="interlock")


def prepare_stores(using: str, **_: Any) -> None:
    """Open and close the stores of a database once its tables are there, outside of any transaction.

    This turns on WAL in a SQLite file and creates declared indexes: neither is possible inside `transaction.atomic`,
    where the first send of a process may open its runtime, and where each `TestCase` is.
    """
    from interlock.contrib.django.runtimes import NOT_MIGRATED, open_runtime
    from interlock.contrib.django.settings import all_stores

    for store in all_stores().values():
        if store.database == using:
            try:
                open_runtime(store).close()
            except (UsageError, NotFoundError) as error:
                if error.code not in {*NOT_MIGRATED, "django.memory"}:  # other apps were migrated; raised when used
                    raise
