"""Python itself as an expression language: for the few published tests that need more than the safe one.

A context is plain JSON, so what is not (functions, XML) is shown to the test's own code as an object and kept as data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from textwrap import dedent
from typing import Any
from xml.etree import ElementTree as ET

from interlock.definition.scxml.expressions import to_scxml
from interlock.expression.codegen import Compiled
from interlock.expression.language import Script
from interlock.expression.parser import ExpressionError, Parsed


class TrustedLanguage:
    """Evaluates what the SCXML reader made of a Python expression, and runs scripts."""

    def __init__(self) -> None:
        # The reader has written methods as functions of our language; these give them back.
        self.functions: dict[str, Callable[..., Any]] = {"get": lambda value, key: value.get(key)}

    def check(self, text: str) -> Parsed | None:
        self._code(text)
        return None

    def compile(self, text: str, inside: Mapping[str, str]) -> Compiled:
        code = self._code(text)

        def function(context: Mapping[str, Any], event: Any, entity: Any, active: Any, meter: Any, *_: Any) -> Any:
            names = self._names(context, event, entity, active)
            return self._kept(eval(code, names))

        return Compiled(source="", uses=frozenset(), function=function)

    def script(self, text: str) -> Script | None:
        code = compile(dedent(text).strip(), "<script>", "exec")

        def run(context: dict[str, Any], event: Any, entity: Any, active: Any, meter: Any) -> None:
            names = self._names(context, event, entity, active)
            known = set(names)
            exec(code, names)
            for name, value in names.items():
                if callable(value) and name not in known:
                    self.functions[name] = value
                elif name in context or name not in known | {"__builtins__"}:
                    context[name] = self._kept(value)

        return run

    def _code(self, text: str) -> Any:
        try:
            return compile(to_scxml(text, "python").strip(), "<expression>", "eval")
        except SyntaxError as error:
            raise ExpressionError("expression.syntax", error.msg, offset=0, end=len(text)) from error

    def _names(self, context: Mapping[str, Any], event: Any, entity: Any, active: Any) -> dict[str, Any]:
        shown = {name: self._shown(value) for name, value in context.items()}
        system = {"_name": entity.kind, "_sessionid": entity.id, "In": lambda name: name in active}
        if event is not None:
            system["_event"] = _Mapping({"name": event.name, "data": self._shown(event.data)})
        return {**self.functions, **shown, **system}

    def _shown(self, value: Any) -> Any:
        if isinstance(value, dict):
            function = self.functions.get(value.get("function", ""))
            return function or _Mapping({key: self._shown(each) for key, each in value.items()})
        if isinstance(value, str) and value.startswith("<"):
            return ET.fromstring(value)
        return value

    def _kept(self, value: Any) -> Any:
        if callable(value):
            name = f"function {len(self.functions)}"
            self.functions[name] = value
            return {"function": name}
        if value is None or isinstance(value, bool | int | float | str | list | dict):
            return value
        return {name: each for name, each in vars(type(value)).items() if not name.startswith("_")}


class _Mapping(dict[str, Any]):
    """A mapping whose keys are attributes too, as the tests expect of an event and its data."""

    def __getattr__(self, name: str) -> Any:
        return self[name]
