"""Public names of a package, imported when they are first used, so that `import interlock` stays quick."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The functions `__getattr__` and `__dir__` for a package: each name is imported from its home on first use.

    A home is `module` for a name that the module defines, or `module:name` for another name, or `module:` for the
    module itself.
    """
    namespace = vars(sys.modules[package])

    def get_attribute(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, separator, attribute = homes[name].partition(":")
        loaded = import_module(module)
        value = loaded if separator and not attribute else getattr(loaded, attribute or name)
        namespace[name] = value
        return value

    def list_names() -> list[str]:
        return sorted({*namespace, *namespace["__all__"]})

    return get_attribute, list_names
