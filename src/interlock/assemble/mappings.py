"""Load a mapping from a file: YAML, or Python that defines `mapping` and the functions `states` and `context`.

A Python file is code of the user: it is run when it is loaded. What it raises then names its line.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from interlock.assemble.text_files import read_text_file
from interlock.errors import UsageError
from interlock.evolve.mapping.document import Mapping, mapping_of, read_mapping


def load_mapping(path: str | Path) -> Mapping:
    """Return the mapping of a file.

    Raises DefinitionError for a mapping that is invalid; UsageError for a Python file that raises or defines no
    `mapping`, and for a file that is too large or not UTF-8; OSError if the file cannot be read.
    """
    file = Path(path)
    text = read_text_file(file)
    if file.suffix != ".py":
        return read_mapping(text, source=str(path))
    names: dict[str, Any] = {"__name__": file.stem, "__file__": str(file)}
    try:
        exec(compile(text, str(path), "exec"), names)  # noqa: S102  # the user's own file, named on the command line
    except Exception as error:
        lines = [each for each in traceback.extract_tb(error.__traceback__) if each.filename == str(path)]
        line = error.lineno if isinstance(error, SyntaxError) else lines[-1].lineno if lines else None
        message = f"{path} raised {type(error).__name__}: {getattr(error, 'msg', error)}"
        raise UsageError(message, code="mapping.module", hint=f"see line {line}" if line else None) from error
    if not isinstance(names.get("mapping"), dict):
        hint = 'such as mapping = {"interlock-mapping": 1, "kind": "order"}'
        raise UsageError(f"{path} defines no `mapping`", code="mapping.module", hint=hint)
    return mapping_of(
        names["mapping"],
        source=str(path),
        text=text,
        states=_function(names, "states", path),
        context=_function(names, "context", path),
    )


def _function(names: dict[str, Any], name: str, path: str | Path) -> Callable[..., Any] | None:
    found = names.get(name)
    if found is not None and not callable(found):
        raise UsageError(
            f"`{name}` in {path} is not a function", code="mapping.module", hint="write def states(entity):"
        )
    return found
