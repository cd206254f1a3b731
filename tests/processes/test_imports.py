"""What an import loads, in a new interpreter."""

from __future__ import annotations

import subprocess
import sys

LATE = ("asyncio", "click", "interlock.assemble.charts", "interlock.kernel.step", "msgspec", "rich", "yaml")


def loaded_after(code: str) -> list[str]:
    """Which of the late modules another interpreter has loaded after this code."""
    question = f"import sys; {code}; print(*[name for name in {LATE!r} if name in sys.modules])"
    return subprocess.run([sys.executable, "-c", question], capture_output=True, text=True, check=True).stdout.split()


def test_the_bare_import_loads_nothing() -> None:
    assert [] == loaded_after("import interlock")


def test_a_name_loads_what_it_needs_and_no_more() -> None:
    assert ["msgspec"] == loaded_after("import interlock; interlock.Event('x')")
    assert {"click", "rich", "asyncio"}.isdisjoint(loaded_after("import interlock; interlock.loads"))


def test_a_runtime_does_not_import_the_renderer() -> None:
    code = "import interlock.runtime.blocking, sys; print([each for each in sys.modules if 'interlock.render' in each])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "[]" == found.stdout.strip()
