"""The public API: each name exported once, importable, documented and fully typed."""

import ast
import importlib
import inspect
import pkgutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.tidy.tracked import PACKAGE, ROOT, markdown_files, read

# What `import interlock` must not pay for; each is imported by the module that needs it, when it needs it.
LATE = ("asyncio", "click", "importlib.metadata", "logging", "rich", "yaml", "xml.parsers.expat")

PACKAGES = ("interlock", "interlock.shm", "interlock.testing")
MODULES = [importlib.import_module(each) for each in PACKAGES]  # as users have them, without what mypy knows
NAMES = [(module, name) for module in MODULES for name in module.__all__]

every_package = pytest.mark.parametrize("module", MODULES, ids=PACKAGES)


@every_package
def test_the_list_is_one_tuple_without_repeats(module: Any) -> None:
    assert module.__all__
    assert isinstance(module.__all__, tuple)
    assert len(set(module.__all__)) == len(module.__all__)


@every_package
def test_every_public_name_is_listed_by_dir(module: Any) -> None:
    assert set() == set(module.__all__) - set(dir(module))


@every_package
def test_a_star_import_gives_exactly_the_list(module: Any) -> None:
    namespace: dict[str, object] = {}
    exec(f"from {module.__name__} import *", namespace)
    namespace.pop("__builtins__")

    assert set(module.__all__) == set(namespace)


@every_package
def test_an_unknown_name_is_an_attribute_error(module: Any) -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = module.no_such_name


def test_no_name_is_exported_twice() -> None:
    values = [getattr(module, name) for module, name in NAMES]
    objects = [value for value in values if not isinstance(value, str | int | float | bool | None)]

    assert len({id(value) for value in objects}) == len(objects)


@every_package
def test_no_public_name_is_a_submodule(module: Any) -> None:
    """Importing a submodule later would silently replace the function of its name."""
    submodules = {each.name for each in pkgutil.iter_modules(module.__path__)}

    assert set() == submodules & set(module.__all__)


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_a_public_name_is_documented(module: Any, name: str) -> None:
    value = getattr(module, name)
    if inspect.isclass(value) or inspect.isroutine(value):
        generated = f"{name}("  # what dataclasses write when the author wrote nothing
        assert value.__doc__ is not None
        assert value.__doc__.strip()
        assert not value.__doc__.startswith(generated)
    else:
        assert any(name in (read(page) or "") for page in markdown_files())


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_a_public_name_is_typed(module: Any, name: str) -> None:
    untyped = [place for function in _functions(getattr(module, name)) for place in _untyped(function)]

    assert [] == untyped


@every_package
def test_type_checkers_see_every_lazy_name(module: Any) -> None:
    """A name loaded late is also imported under TYPE_CHECKING, or defined, so that editors and mypy know it."""
    tree = ast.parse(inspect.getsource(module))
    seen = set()
    for found in ast.walk(tree):
        if isinstance(found, ast.ImportFrom | ast.Import):
            seen |= {alias.asname or alias.name for alias in found.names}
        elif isinstance(found, ast.FunctionDef | ast.ClassDef):
            seen.add(found.name)
        elif isinstance(found, ast.AnnAssign) and isinstance(found.target, ast.Name):
            seen.add(found.target.id)
        elif isinstance(found, ast.Assign):
            seen |= {target.id for target in found.targets if isinstance(target, ast.Name)}

    assert set() == set(module.__all__) - seen


def test_importing_the_package_is_cheap() -> None:
    question = f"import sys, interlock; print(*[name for name in {LATE!r} if name in sys.modules])"
    command = [sys.executable, "-c", question]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)

    assert answer.stdout.split() == []


def test_the_package_is_marked_as_typed() -> None:
    assert (PACKAGE / "py.typed").is_file()


def _functions(value: object) -> Iterator[Callable[..., Any]]:
    if inspect.isclass(value):
        for member in vars(value).values():
            plain = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            if inspect.isfunction(plain) and plain.__module__.startswith("interlock") and _is_public(plain.__name__):
                yield plain
    elif inspect.isfunction(value):
        yield value


def _is_public(name: str) -> bool:
    return not name.startswith("_") or name == "__init__"


def _untyped(function: Callable[..., Any]) -> list[str]:
    signature = inspect.signature(function)
    missing = [
        f"{function.__qualname__}({parameter.name})"
        for position, parameter in enumerate(signature.parameters.values())
        if parameter.annotation is parameter.empty and not (position == 0 and parameter.name in {"self", "cls"})
    ]
    if signature.return_annotation is signature.empty:
        missing.append(f"{function.__qualname__} ->")
    return missing
