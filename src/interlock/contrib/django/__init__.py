"""Interlock in a Django project: settings, tables by `migrate`, one runtime for each process, rows with a life.

    INSTALLED_APPS = [..., "interlock.contrib.django"]
    INTERLOCK = {"default": {"charts": ["shop.charts.order"]}}

Import from `models` and `runtimes`. It contains no SQL and no rule of a send.
"""
