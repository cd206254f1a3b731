"""The shape of the package: folders, contracts, sizes, and no module that nothing imports."""

import ast
import re
import tomllib

from tests.tidy import sizes
from tests.tidy.tracked import PACKAGE, ROOT, modules, name, python_files, read

SUPPRESSION = re.compile(
    r"#\s*(?:noqa\b(?::\s*[A-Z0-9, ]+)?|type:\s*ignore(?:\[[\w, -]+\])?|pragma:\s*no cover)(?P<reason>.*)$"
)


def test_only_public_namespaces_export_names() -> None:
    """The `__init__` of any other package is one docstring, so that each name has one address."""
    wrong = []
    for path in PACKAGE.glob("*/**/__init__.py"):
        if path.parent.name in {"shm", "testing"}:
            continue
        body = ast.parse(read(path) or "").body
        only_docstring = len(body) == 1 and ast.get_docstring(ast.Module(body=body, type_ignores=[])) is not None
        if not only_docstring:
            wrong.append(name(path))

    assert [] == wrong


def test_every_folder_is_a_package() -> None:
    """Without an `__init__` a folder is importable by accident and is left out of the wheel."""
    folders = {path.parent for path in python_files("src/interlock/")}

    assert [] == [name(folder) for folder in sorted(folders) if not (folder / "__init__.py").is_file()]


def test_a_module_opens_with_its_contract() -> None:
    silent = [name(path) for path in python_files("src/") if not ast.get_docstring(ast.parse(read(path) or ""))]

    assert [] == silent


def test_no_module_outgrows_its_reader() -> None:
    assert [] == sizes.long_modules(sizes.MODULE_LINES_MAX)


def test_no_function_outgrows_its_reader() -> None:
    assert [] == sizes.long_functions(sizes.FUNCTION_LINES_MAX)


def test_every_module_is_needed() -> None:
    """A module that neither code, nor an entry point, nor a lazy table names is dead."""
    known = modules()
    needed = _named_in_entry_points() | {"interlock", "interlock.__main__"}
    for path in known.values():
        needed |= _named_in(ast.parse(read(path) or ""))
    for_users = ("interlock.testing", "interlock.contrib")  # users import their modules; the package itself need not
    dead = [
        module
        for module, path in known.items()
        if path.name != "__init__.py" and module not in needed and not module.startswith(for_users)
    ]

    assert [] == dead


def test_no_module_imports_the_bare_package() -> None:
    wrong = [
        f"{module}:{found.lineno}"
        for module, path in modules().items()
        for found in ast.walk(ast.parse(read(path) or ""))
        if (isinstance(found, ast.ImportFrom) and found.module == "interlock")
        or (isinstance(found, ast.Import) and any(alias.name == "interlock" for alias in found.names))
    ]

    assert [] == wrong


def test_a_suppression_gives_its_reason() -> None:
    wrong = []
    for path in python_files("src/", "tests/", "bench/", "examples/"):
        lines = (read(path) or "").splitlines()
        for number, line in enumerate(lines, start=1):
            match = SUPPRESSION.search(line)
            above = lines[number - 2].strip() if number > 1 else ""
            if match and not match["reason"].strip(" -:") and not above.startswith("#"):
                wrong.append(f"{name(path)}:{number}")

    assert [] == wrong


def _named_in_entry_points() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    tables = [project.get("scripts", {}), *project.get("entry-points", {}).values()]
    return {target.split(":")[0] for table in tables for target in table.values()}


def _named_in(tree: ast.Module) -> set[str]:
    """Gives the modules a file imports, and those it names in strings to import them later."""
    named = set()
    for found in ast.walk(tree):
        if isinstance(found, ast.Import):
            named |= {alias.name for alias in found.names}
        elif isinstance(found, ast.ImportFrom) and found.module:
            named |= {found.module} | {f"{found.module}.{alias.name}" for alias in found.names}
        elif isinstance(found, ast.Constant) and isinstance(found.value, str):
            target = found.value.split(":")[0].strip(".")
            named |= {target, f"interlock.{target}"}
    return named
