"""Compile blocks, guards and values to Python functions, generated on first use and cached.

Rule 1: generated source consists of text from this module, source that `expression.codegen` wrote, and `repr` of
        constants; nothing else.
Rule 2: the function of a block takes the run. It raises on error, and the caller decides what that means (S23).
Rule 3: a reserved event name is allowed only where an imported chart spells it out, never as a computed value.
Rule 4: every evaluation and every action is charged: straight code at the start of a block, loops once per iteration.
Rule 5: a value written to the context is measured in bytes (`StepRun.measure_stored`), unless its type is small. Other
        values are noted with the number of expression results they contain (`StepRun.measure_later`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from interlock.errors import UsageError
from interlock.expression.codegen import NAMESPACE, Compiled, EvaluationError, Typed, compile_typed
from interlock.expression.language import SAFE, Language
from interlock.expression.metering import SHORT_TEXT
from interlock.expression.parser import parse
from interlock.kernel.errors import ActionError
from interlock.kernel.run import StepRun
from interlock.model.charts.chart import Chart
from interlock.model.document.actions import (
    Action,
    Assign,
    AssignCall,
    Block,
    Cancel,
    Do,
    Emit,
    Expression,
    Foreach,
    Guard,
    GuardAll,
    GuardAny,
    GuardExpression,
    GuardIn,
    GuardNot,
    If,
    Log,
    Raise,
    Script,
    Send,
    Value,
)
from interlock.model.document.field import Charge, Field, field_problem
from interlock.model.encoding.storable import describe
from interlock.model.event import is_reserved
from interlock.model.limits import EVALUATION_WORK

ACTION_WORK = 10
"""Units of work of one action without its expressions: making an effect or an event takes about a microsecond."""

LITERAL_BYTES = 1_000
"""Bytes of a literal that count like the result of one expression."""

Function = Callable[[Mapping[str, Any], Any], Any]
"""A registered guard or assign function: (context, event), and the arguments if the chart gives any."""

Operation = Callable[[StepRun], Any]


class ActionCompiler:
    """Compiles the blocks, guards and values of one chart."""

    def __init__(
        self,
        chart: Chart,
        language: Language,
        guards: Mapping[str, Callable[..., Any]],
        assigns: Mapping[str, Callable[..., Any]],
    ) -> None:
        self.language = language
        self.guards = guards
        self.assigns = assigns
        self.fields = {field.name: field for state in chart.states for field in state.context}
        self.imported = chart.dialect.name != "interlock"
        self.types = {
            name: each.type
            for name, each in self.fields.items()
            if each.type in ("integer", "string", "boolean") and not each.nullable
        }
        self._expressions: dict[Expression, Compiled] = {}
        self._typed: dict[Expression, Typed] = {}

    def expression(self, expression: Expression) -> Compiled:
        """Return a compiled expression, made on first use."""
        found = self._expressions.get(expression)
        if found is None:
            found = self.language.compile(expression.text, dict(expression.inside))
            self._expressions[expression] = found
        return found

    def typed(self, value: Value) -> Typed | None:
        """Return the source of an expression with its type; None for other values and other languages."""
        if not isinstance(value, Expression) or value.malformed is not None or self.language is not SAFE:
            return None
        found = self._typed.get(value)
        if found is None:
            found = compile_typed(parse(value.text), inside=dict(value.inside), fields=self.types)
            self._typed[value] = found
        return found

    def block(self, block: Block) -> tuple[Operation, bool]:
        """Return a block as a function of the run, and whether it uses `In()`."""
        writer = CodeWriter(self)
        writer.write_block(block)
        return writer.function("block", ["run"]), "active" in writer.uses

    def guard(self, guard: Guard) -> Operation:
        """Return a guard as a function of the run."""
        writer = CodeWriter(self)
        writer.add(f"return {writer.guard(guard)}")
        return writer.function("guard", ["run"])

    def value(self, value: Value) -> Operation:
        """Return a value as a function of the run."""
        writer = CodeWriter(self)
        writer.add(f"return {writer.value(value)}")
        return writer.function("value", ["run"])


class Source:
    """The statements of a function, one line each, with their indentation."""

    __slots__ = ("depth", "lines")

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 1

    def add(self, line: str) -> None:
        """Add a statement."""
        self.lines.append("    " * self.depth + line)

    @contextmanager
    def inside(self, head: str) -> Iterator[None]:
        """Add a statement with a body: the statements that are added until the end of the `with` block."""
        self.add(head)
        self.depth += 1
        yield
        self.depth -= 1

    def extend(self, body: Source) -> None:
        """Add the statements of another source here."""
        indent = "    " * (self.depth - 1)
        self.lines += [indent + line for line in body.lines]


class CodeWriter:
    """Writes the source of one function. `uses` are the names of the run that it needs."""

    measure = "run.measure_stored"
    """The function that the source calls for a value of the context that may be large."""

    def __init__(self, actions: ActionCompiler) -> None:
        self.actions = actions
        self.namespace: dict[str, object] = {
            **NAMESPACE,
            "refuse": refuse,
            "small": _SMALL,
            "len": len,
            "str": str,
            "malformed": malformed,
            "call_function": call_function,
            "call_guard": call_guard,
            "type": type,
        }
        self.source = Source()
        self.uses: set[str] = set()
        self.work = 0
        self.loops = 0
        self.writes = False

    def add(self, line: str) -> None:
        """Add a statement."""
        self.source.add(line)

    def constant(self, value: object) -> str:
        """Return a name for an object that the generated source refers to."""
        name = f"k{len(self.namespace)}"
        self.namespace[name] = value
        return name

    def function(self, name: str, parameters: list[str]) -> Operation:
        """Return the function of the source written so far. The parts of the run that it uses become locals first."""
        opening = [f"def {name}({', '.join(parameters)}):"]
        sources = {
            "context": "run.writable_context()" if self.writes else "run.context",
            "event": "run.event",
            "entity": "run",
            "active": "run.active",
            "meter": "run.meter",
        }
        for each, source in sources.items():
            if each in self.uses or (each == "context" and self.writes):
                opening.append(f"    {each} = {source}")
        if self.work:
            opening.append(f"    run.meter.charge({self.work})")
        text = "\n".join(opening + (self.source.lines or ["    pass"]))
        # The source was written by this module and `expression.codegen` from checked trees, and runs without builtins.
        exec(compile(text, f"<{name}>", "exec"), self.namespace)  # noqa: S102
        compiled: Operation = self.namespace[name]  # type: ignore[assignment]  # the source defines it
        return compiled

    # Values and guards

    def value(self, value: Value) -> str:
        """Return the source of a value, with its expressions inlined.

        New lists and mappings are made each time. Otherwise all entities would share those of the chart.
        """
        if isinstance(value, Expression):
            return self.expression(value)
        if value is None or isinstance(value, bool | int | str | float):
            return repr(value)
        self.work += len(value)
        if isinstance(value, dict):
            return "{" + ", ".join(f"{key!r}: {self.value(each)}" for key, each in value.items()) + "}"
        return "[" + ", ".join(self.value(each) for each in value) + "]"

    def expression(self, expression: Expression) -> str:
        """Return the source of an expression, or of a call of its function if the language gives no source."""
        if expression.malformed is not None:
            self.work += EVALUATION_WORK
            return f"malformed({expression.malformed!r})"
        compiled = self.actions.expression(expression)
        self.work += compiled.work
        if compiled.source:
            self.uses |= compiled.uses
            return f"({compiled.source})"
        self.uses |= {"context", "event", "entity", "active", "meter"}
        return f"{self.constant(compiled.function)}(context, event, entity, active, meter)"

    def guard(self, guard: Guard) -> str:
        """Return the source of a guard. `and` and `or` stop as early as the guard does."""
        match guard:
            case GuardExpression():
                return self.expression(guard.expression)
            case GuardIn():
                self.uses.add("active")
                return f"({guard.state!r} in active)"
            case GuardNot():
                return f"(not {self.guard(guard.guard)})"
            case GuardAll():
                return "(" + " and ".join(self.guard(each) for each in guard.guards) + ")" if guard.guards else "True"
            case GuardAny():
                return "(" + " or ".join(self.guard(each) for each in guard.guards) + ")" if guard.guards else "False"
            case _:
                return self.call(guard.name, self.actions.guards, guard.arguments, by="call_guard")

    def call(
        self, name: str, known: Mapping[str, Callable[..., Any]], arguments: Value, *, by: str = "call_function"
    ) -> str:
        """Return the source of a call of a registered function. The kernel has checked that it is registered."""
        self.uses |= {"context", "event"}
        self.work += EVALUATION_WORK
        given = "" if arguments is None else f", {self.value(arguments)}"
        return self.call_source(self.constant(known[name]), name, f"context, event{given}", by=by)

    def call_source(self, function: str, name: str, arguments: str, *, by: str) -> str:
        """Return the source of a call of the author's code. What it raises is reported as its failure, by its name."""
        return f"{by}({function}, {name!r}, {arguments})"

    # Actions

    def write_block(self, block: Block) -> None:
        """Write the source of a block."""
        for action in block:
            self.action(action)

    def action(self, action: Action) -> None:
        """Write the source of an action."""
        self.work += ACTION_WORK
        match action:
            case Do():
                given = "" if action.arguments is None else f", 'input': {self.value(action.arguments)}"
                count = references(action.arguments)
                self.add(f"run.effect('call', {{'name': {action.name!r}{given}}}, {count})")
            case Assign():
                for path, value in action.values:
                    self.assign(path, value)
            case AssignCall():
                self.writes = True
                result = self.call(action.name, self.actions.assigns, action.arguments)
                self.add(f"run.assign_all({result}, {action.name!r})")
            case Raise():
                literal = ", literal_reserved=True" if self.is_literal_reserved(action.event) else ""
                count = references(action.data)
                self.add(f"run.raise_event({self.value(action.event)}, {self.value(action.data)}, {count}{literal})")
            case Send():
                self.send(action)
            case Cancel():
                self.add(f"run.cancel({self.value(action.id)})")
            case Emit():
                count = references(action.type) + references(action.data)
                self.add(f"run.emit({self.value(action.type)}, {self.value(action.data)}, {count})")
            case Log():
                payload = f"{{'label': {action.label!r}, 'value': {self.value(action.value)}}}"
                self.add(f"run.effect('log', {payload}, {references(action.label) + references(action.value)})")
            case If():
                self.branches(action)
            case Foreach():
                self.foreach(action)
            case _:
                self.script(action)

    def send(self, action: Send) -> None:
        arguments = (action.event, action.to, action.delay, action.id, None, action.data, action.type)
        texts = [self.value(each) for each in arguments]
        texts[4] = repr(action.id_location)
        if action.id_location is not None:
            self.writes = True
        if isinstance(action.id, str):
            self.add(f"run.sendid = {action.id!r}")  # an error in the arguments carries it, too (W3C 332)
        if action.restore is not None:
            texts.append(repr(action.restore))
        texts.append(f"references={references(action.data)}")
        if self.is_literal_reserved(action.event):
            texts.append("literal_reserved=True")
        self.add(f"run.send({', '.join(texts)})")

    def is_literal_reserved(self, event: Value) -> bool:
        """Return whether an imported chart spells a reserved event name out. The event is then an ordinary one."""
        return self.actions.imported and isinstance(event, str) and is_reserved(event)

    def assign(self, path: str, value: Value) -> None:
        """Write the source of one assignment. The common case, a whole declared field, is one check and one store."""
        self.writes = True
        source = self.value(value)
        field = self.actions.fields.get(path)
        if field is None:
            parts = tuple(path.split("."))
            self.add(f"run.assign({parts!r}, {source})")
            return
        self.uses.add("context")
        self.add(f"v = {source}")
        if isinstance(value, Expression | dict | list):
            self.check(field)
        else:
            problem = field_problem(value, field)
            if problem is not None:
                self.add(f"malformed({f'assign.refused: {problem}'!r})")
            elif isinstance(value, str) and len(value) >= SHORT_TEXT:
                self.measure_stored("v")
        self.add(f"context[{path!r}] = v")

    def check(self, field: Field) -> None:
        """Write the source that checks and measures `v` for a field."""
        quick = _QUICK.get(field.type) if field.enum is None and field.min is None and field.max is None else None
        if field.accepts_any:
            self.measure_stored("v")
        elif quick is not None and field.length_max is None and field.format is None:
            name = self.constant(quick)
            self.add(f"if type(v) is not {name}: {self.check_source('v', field)}")
            if quick is str:
                self.add(f"elif len(v) >= {SHORT_TEXT}: {self.measure}(v)")
        else:
            self.measure_stored("v")
            self.add(self.check_source("v", field))

    def measure_stored(self, value: str) -> None:
        """Write the source that measures a value for the context, unless it is small."""
        short = f"(type({value}) is str and len({value}) < {SHORT_TEXT})"
        self.add(f"if not ({short} or type({value}) in small): {self.measure}({value})")

    def check_source(self, value: str, field: Field) -> str:
        """Return the source of a check by the field's own rules, which is charged."""
        self.uses.add("meter")
        return f"refuse({value}, {self.constant(field)}, meter.charge)"

    def branches(self, action: If) -> None:
        """Write the source of an `if`. Each guard has its own `try`: a guard that fails counts as false (S33)."""
        self.loops += 1
        chosen, error = f"branch_{self.loops}", self.constant(Exception)
        self.add(f"{chosen} = 0")
        for number, (guard, _) in enumerate(action.branches, start=1):
            with self.source.inside("try:"):
                self.add(f"if not {chosen} and {self.guard(guard)}: {chosen} = {number}")
            with self.source.inside(f"except {error} as problem:"):
                self.add("run.report_error(problem, 'if')")
        word = "if"
        for number, (_, block) in enumerate(action.branches, start=1):
            with self.source.inside(f"{word} {chosen} == {number}:"):
                self.add("pass")
                self.write_block(block)
            word = "elif"
        if action.otherwise:
            with self.source.inside("else:"):
                self.write_block(action.otherwise)

    def foreach(self, action: Foreach) -> None:
        """Write the source of a `foreach`."""
        self.writes = True
        self.uses |= {"context", "meter"}
        count = self.constant(enumerate)
        self.loops += 1
        index, item = f"index_{self.loops}", f"item_{self.loops}"
        items = self.value(action.items)
        outside, outer_work = self.source, self.work
        body, self.work = Source(), 0
        self.source = body
        self.bind_loop_variable(action.item, item)
        if action.index is not None:
            self.bind_loop_variable(action.index, index)
        self.write_block(action.block)
        work, self.source, self.work = self.work, outside, outer_work
        loop = f"for {index}, {item} in {count}(run.items({items}, {action.item!r}, {action.index!r})):"
        with self.source.inside(loop):
            self.add(f"meter.charge({work + EVALUATION_WORK})")
            self.source.extend(body)

    def bind_loop_variable(self, name: str, value: str) -> None:
        """Write the source that puts an item or index into its field. A declared field checks it (S25)."""
        field = self.actions.fields.get(name)
        self.measure_stored(value)
        if field is not None and not field.accepts_any:
            self.add(self.check_source(value, field))
        self.add(f"context[{name!r}] = {value}")

    def script(self, action: Script) -> None:
        """Write the source of a script. Raises UsageError unless the language runs scripts."""
        script = self.actions.language.script(action.text)
        if script is None:
            raise UsageError("scripts are not allowed, because they run code", code="script.untrusted")
        self.writes = True
        self.uses |= {"context", "event", "entity", "active", "meter"}
        self.add(f"{self.constant(script)}(context, event, entity, active, meter)")


_QUICK: dict[str, type] = {"string": str, "integer": int, "boolean": bool}
_SMALL = frozenset({int, float, bool, type(None)})


def references(value: Value) -> int:
    """Return about how many large values a value of the chart can contain: its expressions, and its own bytes."""
    count, size, level = 0, 0, [value]
    while level:
        each = level.pop()
        if isinstance(each, Expression):
            count += 1
        elif isinstance(each, str):
            size += len(each)
        elif isinstance(each, dict | list | tuple):
            size += 8 * len(each)
            level += each.values() if isinstance(each, dict) else each
    return count + size // LITERAL_BYTES


def call_function(function: Callable[..., Any], name: str, *arguments: Any) -> Any:
    """Return the result of a registered function. Raises ActionError when it raises."""
    try:
        return function(*arguments)
    except Exception as error:
        message = f"`{name}` raised {type(error).__name__}: {describe(error)[:200]}"
        raise ActionError("function.failed", message) from error


def call_guard(function: Callable[..., Any], name: str, *arguments: Any) -> bool:
    """Return the truth of a registered guard's result. Taken inside the call, because `bool()` may raise too."""
    return bool(call_function(lambda *given: bool(function(*given)), name, *arguments))


def refuse(value: Any, field: Field, charge: Charge | None = None) -> None:
    """Raise ActionError when a value does not fit a field."""
    problem = field_problem(value, field, charge=charge)
    if problem is not None:
        raise ActionError("assign.refused", problem)


def malformed(message: str) -> Any:
    """Raise the error of an expression that could not be compiled, where it would be evaluated."""
    code, _, text = message.partition(": ")
    raise EvaluationError(code, text)
