"""How long modules and functions are.

700 lines for a module and 70 for a function are what good looks like; they are reported (`make tidy` prints them).
900 and 120 are where the tests stop a change. A function is counted from its `def` to its last line.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.tidy.tracked import name, python_files, read

MODULE_LINES_GOOD, MODULE_LINES_MAX = 700, 900
FUNCTION_LINES_GOOD, FUNCTION_LINES_MAX = 70, 120


def long_modules(limit: int) -> list[str]:
    """Gives the modules with more lines than the limit."""
    sizes = {path: len((read(path) or "").splitlines()) for path in _measured()}
    return [f"{name(path)}: {lines} lines" for path, lines in sizes.items() if lines > limit]


def long_functions(limit: int) -> list[str]:
    """Gives the functions with more lines than the limit."""
    return [
        f"{name(path)}:{line} {function}: {lines} lines"
        for path in _measured()
        for function, line, lines in _functions(path)
        if lines > limit
    ]


def main() -> None:
    """Prints what is longer than good code tends to be."""
    for line in long_modules(MODULE_LINES_GOOD) + long_functions(FUNCTION_LINES_GOOD):
        print(f"long: {line}")


def _measured() -> tuple[Path, ...]:
    return python_files("src/", "tests/", "bench/", "examples/")


def _functions(path: Path) -> Iterator[tuple[str, int, int]]:
    for found in ast.walk(ast.parse(read(path) or "")):
        if isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef):
            yield found.name, found.lineno, (found.end_lineno or found.lineno) - found.lineno + 1


if __name__ == "__main__":
    main()
