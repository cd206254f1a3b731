"""The package itself: names that are imported when they are used, and nothing else."""

import importlib
import subprocess
import sys

import pytest

LATE = ("asyncio", "click", "interlock.assemble.charts", "interlock.kernel.step", "msgspec", "rich", "yaml")


def loaded_after(code: str) -> list[str]:
    """Which of the late modules another interpreter has loaded after this code."""
    question = f"import sys; {code}; print(*[name for name in {LATE!r} if name in sys.modules])"
    return subprocess.run([sys.executable, "-c", question], capture_output=True, text=True, check=True).stdout.split()


def test_the_bare_import_loads_nothing() -> None:
    """Neither a parser, nor the command line, nor the kernel."""
    assert [] == loaded_after("import interlock")


def test_a_name_loads_what_it_needs_and_no_more() -> None:
    """An event needs no chart; loading a chart needs no command line."""
    assert ["msgspec"] == loaded_after("import interlock; interlock.Event('x')")
    assert {"click", "rich", "asyncio"}.isdisjoint(loaded_after("import interlock; interlock.loads"))


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    interlock = importlib.import_module("interlock")

    with pytest.raises(AttributeError, match="module 'interlock' has no attribute 'nonsense'"):
        _ = interlock.nonsense
    assert not hasattr(interlock, "nonsense")


def test_every_name_is_listed_and_is_the_one_of_its_home() -> None:
    """`dir` shows them before they are used; the second use finds the first one's object."""
    interlock = importlib.import_module("interlock")

    assert set(interlock.__all__) <= set(dir(interlock))
    for name in interlock.__all__:
        assert getattr(interlock, name) is getattr(interlock, name)
    assert interlock.build is importlib.import_module("interlock.definition.builder.namespace")
    assert interlock.__version__ == importlib.import_module("importlib.metadata").version("interlock")
