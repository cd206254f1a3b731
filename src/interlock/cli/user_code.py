"""Load charts from `module:name`. Errors of the user's code name the user's line."""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

from interlock.assemble.charts import BoundChart
from interlock.errors import InterlockError, UsageError
from interlock.model.diagnostics import suggestion

_CODE_NAME = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def is_code_name(name: str, *, check_file: bool = True) -> bool:
    """Return whether a name is `module:name`. With `check_file`, the name of an existing file is not."""
    return _CODE_NAME.fullmatch(name) is not None and not (check_file and Path(name).exists())


def load_code(name: str, *, folder: Path | None = None) -> list[BoundChart]:
    """Return the charts that `module:name` names: a chart, a list of charts, or a function that returns either.

    The module is also searched in the folder, by default the current one. Raises UsageError for anything else, and if
    the module or the function raises.
    """
    if not _CODE_NAME.fullmatch(name):
        module = name.removesuffix(".py").strip("./").replace("/", ".")
        hint = f"write module:name, as in {module if module.isidentifier() else 'orders'}:charts"
        raise UsageError(f"`{name}` is not of the form module:name", code="chart.module", hint=hint)
    folder = folder or Path.cwd()
    found = _import(name, folder)
    if callable(found) and not isinstance(found, BoundChart):
        _check_no_arguments(name, found)
        try:
            found = found()
        except Exception as error:
            raise _user_error(f"`{name}`", error, folder) from error
    charts = [found] if isinstance(found, BoundChart) else list(found) if isinstance(found, Iterable) else []
    if not charts or not all(isinstance(each, BoundChart) for each in charts):
        hint = "name the result of interlock.load, a list of those, or a function that returns one"
        raise UsageError(f"`{name}` is not a chart", code="chart.module", hint=hint)
    return charts


def _check_no_arguments(name: str, function: Callable[..., Any]) -> None:
    """Raise UsageError for a function that needs arguments, such as a handler: a TypeError would name our line."""
    try:
        signature(function).bind()
    except TypeError as error:
        hint = "name a chart, a list of charts, or a function without arguments that returns them"
        raise UsageError(f"`{name}` needs arguments: {error}", code="chart.module", hint=hint) from None
    except ValueError:  # the signature is unknown; the call itself will fail if it is wrong
        return


def _import(name: str, folder: Path) -> Any:
    module, _, attribute = name.partition(":")
    if str(folder) not in sys.path and not ("" in sys.path and folder == Path.cwd()):
        sys.path.insert(0, str(folder))  # as `python -m` does; an installed command does not
    try:
        found = import_module(module)
    except ImportError as error:
        message = f"module `{module}` cannot be imported: {error}"
        if error.name == module:  # it does not exist: a traceback would show our code only
            where = f"is {module}.py in this folder, or installed?"
            raise UsageError(message, code="chart.module", hint=where) from None
        raise UsageError(message, code="chart.module") from error
    except InterlockError:
        raise
    except Exception as error:
        raise _user_error(f"module `{module}`", error, folder) from error
    if not hasattr(found, attribute):
        charts = [each for each, value in vars(found).items() if isinstance(value, BoundChart)]
        hint = suggestion(attribute, vars(found)) or (f"its charts are {', '.join(charts)}" if charts else None)
        raise UsageError(f"module `{module}` has no `{attribute}`", code="chart.module", hint=hint)
    return getattr(found, attribute)


def _user_error(what: str, error: Exception, folder: Path) -> UsageError:
    """An error of the user's code, with the last line of the user's files in the traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    last = next((each for each in reversed(frames) if Path(each.filename).is_relative_to(folder)), frames[-1])
    file, line = (error.filename, error.lineno) if isinstance(error, SyntaxError) else (last.filename, last.lineno)
    message = f"{what} raised {type(error).__name__}: {getattr(error, 'msg', error)}"
    return UsageError(message, code="chart.module", hint=f"see {os.path.relpath(file or '?')}, line {line}")
