"""Create the tables of the stores."""

from typing import Any, ClassVar

from django.db import migrations

from interlock.contrib.django.schema_operation import UpgradeTables


class Migration(migrations.Migration):
    """The first one."""

    initial = True
    dependencies: ClassVar[list[Any]] = []
    operations: ClassVar[list[Any]] = [UpgradeTables(sqlite=14, postgres=12)]
