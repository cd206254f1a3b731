"""The expression language: hostile text, and whatever it accepts run over hostile values.

For every input:
1. parsing gives a checked expression or an ExpressionError with a code and a place in the text; no warning;
2. what was parsed compiles, and running it gives a value or an exception that `describe_exception` knows;
3. the value is plain JSON within the limits (or a part of the values it was given), and those values are unchanged;
4. nothing outside is touched: the event and the entity notice every attribute that is read from them, and Python's
   audit hook notices every import, file, process and code object made while an expression runs.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from functools import cache
from random import Random
from typing import Any

from interlock.expression.builtins import FIELDS, FUNCTIONS
from interlock.expression.codegen import Meter, compile_parsed, describe_exception
from interlock.expression.parser import ExpressionError, Parsed, parse
from tests.fuzz.mutation import encoded
from tests.fuzz.target import ACCEPTED

WORK = 200_000
ATTEMPTS_PER_LOOK = 1_000
CONTEXT_WEIGHTS = [60, 20, 5, 20, 5]
NAMES = frozenset({"context", "event", "entity", "principal"})

HOSTILE = [
    "().__class__.__bases__[0].__subclasses__()",
    "''.__class__.__mro__[1].__subclasses__()",
    "[].__class__.__base__",
    "event.__init__.__globals__['os'].system('id')",
    "event.data.__class__",
    "context.__getitem__('a')",
    "(lambda: 0).__code__",
    "(lambda a=context: a)()",
    "[x for x in context.list]",
    "[y := 1, y ** 2]",
    "{k: v for k, v in context}",
    "(x for x in ()).gi_frame.f_back.f_globals",
    "__import__('os').system('id')",
    "getattr(event, '__cl' + 'ass__')",
    "eval('1')",
    "exec('import os')",
    "open('/etc/passwd').read()",
    "'{0.__class__.__mro__}'.format(event)",
    "f'{event.__class__}'",
    "'%s' % event",
    "'%99999999d' % 1",
    "'a' * 999999999",
    "[0] * 999999999",
    "9**9**9",
    "1 << 99999999",
    "round(7, -99999999)",
    "int('9' + context.long)",
    "99999999999999999999999999999999",
    "1e99999",
    "context.long + context.long",
    "[context.double, context.double]",
    "context.double == context.double2",
    "context.deep == context.deep2",
    "context.list + context.list",
    "{'a': context, 'b': context}",
    "sum(context.list)",
    "min(context.words)",
    "upper(context.long)",
    "context.long in context.words",
    "context.deep in context.lists",
    "{**context}",
    "[*context.list]",
    "context.list[::2]",
    "context[...]",
    "1if 1else 1",
    "1 is 1",
    "'a'()",
    "'\\N{BULLET}'",
    "'\\ud800'",
    "b'x' + rb'y'",
    "\uff43ontext.a",
    "context.\u017fize",
    "'\u202ea'",
    "\x00",
    "context.a\x00",
    "1 # comment",
    "1 \\\n+ 1",
    "@context\ndef f(): pass",
    "await event",
    "yield 1",
    "(yield)",
    "print >>context, 1",
    "`1`",
    "1 <> 2",
    "not " * 40 + "1",
    "(" * 300 + "1" + ")" * 300,
    "[" * 250 + "]" * 250,
    "-" * 1_000 + "1",
    "context" + ".a" * 400,
    "1" + "+1" * 400,
    "1 if 1 else " * 100 + "1",
    "len" + "()" * 200,
    "In('" + "a" * 1_500 + "')",
]
VALID = [
    "context.items > 0",
    "event.data.amount >= context.total",
    "context.count + 1",
    "In('a') and not In('b')",
    "get(event.data, 'size', 's') == context.words[0]",
    "0 < context.count <= len(context.list) < 10",
    "{'id': entity.id, 'n': [context.count, context]}",
    "starts_with(event.name, 'a.') or ends_with(event.name, '.b')",
    "ms('5m') if has(context, 'count') else ms('1' + 'h')",
    "round(context.total / 3, 2)",
    "context.mapping.k['x']",
    "principal.id == context.mapping",
]
OPERATORS = ("+", "-", "*", "/", "//", "%", "and", "or", "==", "!=", "<", "<=", ">", ">=", "in", "not in")
CONTEXT_FIELDS = (
    *("a", "list", "words", "long", "deep", "deep2", "double", "double2"),
    *("lists", "mapping", "count", "total", "items"),
)
CHUNKS = [
    *("context", "event", "entity", "principal", "In", "true", "false", "null", "None", "True", "and", "or", "not"),
    *("is", "if", "else", "lambda", "for", "yield", "await", *FUNCTIONS, *OPERATORS, ".__class__", "._x"),
    *(f".{name}" for name in (*CONTEXT_FIELDS, *FIELDS["event"], *FIELDS["entity"])),
    *("**", "=", ":=", "&", "|", "^", "~", "<<", ">>", "@", "!", "&&", "||", "?", ":", "."),
    *(";", "#", "\\", "...", "->", "(", ")", "[", "]", "{", "}", ",", " ", " ", " "),
    *("0", "1", "2", "-1", "0.5", "1e308", "1e999", "0x1F", "1_0", "1j", "007", "1if"),
    *("18446744073709551615", "18446744073709551616", "'\\x41'", "'\\q'", "f'{x}'", "b'x'"),
    *("'a'", "'k'", "''", '"x"', "'", '"', "'''", "'5m'", "'12'"),
    *("\t", "\n", "\x00", "\u00e9", "\uff43", "\ud800", "\u202e"),
]


# --- values


def deep(levels: int) -> Any:
    """A list nested so many levels."""
    value: Any = [1]
    for _ in range(levels):
        value = [value]
    return value


def doubled(times: int) -> Any:
    """A list that holds itself twice, again and again: 2^times values."""
    value: Any = [1]
    for _ in range(times):
        value = [value, value]
    return value


def contexts() -> list[dict[str, Any]]:
    """Small and friendly, large, deep, doubled, and of the wrong types."""
    small = dict.fromkeys(CONTEXT_FIELDS, 1) | {"list": [1, 2.5, 3], "words": ["a", "b"], "mapping": {"k": {"x": 1}}}
    large = small | {
        "list": list(range(5_000)),
        "words": ["w" * 500] * 300,
        "long": "x" * 400_000,
        "deep": deep(60),
        "deep2": deep(60),
        "double": doubled(14),
        "double2": doubled(14),
        "lists": [deep(3) for _ in range(2_000)],
        "mapping": {f"k{key}": key for key in range(3_000)},
        "count": 2**256 - 1,
        "total": 1.7e308,
        "items": "\u00df" * 2_000,
    }
    bombs = large | {
        "deep": deep(2_000),
        "deep2": deep(2_000),
        "double": doubled(40),
        "double2": doubled(40),
        "long": "x" * 1_000_000,
        "list": [0.1] * 150_000,
    }
    rough: dict[str, Any] = {
        name: [None, True, "", [], {}, -1, 0.0, "a"][place % 8] for place, name in enumerate(CONTEXT_FIELDS)
    }
    return [small, large, bombs, rough, {}]


class Watched:
    """A root whose every attribute read is noticed: an expression may read the listed fields, and nothing else."""

    def __init__(self, root: str, values: dict[str, Any], touched: list[str]) -> None:
        object.__setattr__(self, "_seen", (frozenset(FIELDS[root]), touched))
        for name in FIELDS[root]:
            object.__setattr__(self, name, values.get(name))

    def __getattribute__(self, name: str) -> Any:
        fields, touched = object.__getattribute__(self, "_seen")
        if name not in fields:
            touched.append(f"attribute {name}")
        return object.__getattribute__(self, name)


# --- inputs


def expression(random: Random, depth: int) -> str:
    """A well-formed expression, mostly."""
    if depth <= 0 or random.random() < 0.15:
        root = random.choice(["context", "context", "event.data", "event", "entity", "principal"])
        name = random.choice(CONTEXT_FIELDS)
        atoms = ["1", "0", "2.5", "'a'", "'k'", "null", "true", "[]", "{}", "In('a')", "event.name", "entity.version"]
        return random.choice([random.choice(atoms), f"context.{name}", f"context.{name}", root])
    inner = [expression(random, depth - 1 - random.randrange(2)) for _ in range(3)]
    sign = random.choice(OPERATORS)
    name = random.choice(list(FUNCTIONS))
    most = FUNCTIONS[name][1] or 3
    return random.choice(
        [
            f"({inner[0]} {sign} {inner[1]})",
            f"({inner[0]} {sign} {inner[1]})",
            f"({inner[0]} < {inner[1]} {sign} {inner[2]})",
            f"({inner[0]} if {inner[1]} else {inner[2]})",
            f"[{inner[0]}, {inner[1]}]",
            f"{{'k': {inner[0]}, str({inner[1]}): {inner[2]}}}",
            f"{inner[0]}[{inner[1]}]",
            f"({inner[0]}).{random.choice(['k', 'a', 'x'])}",
            f"{name}({', '.join(inner[:most])})",
            f"{name}({', '.join(inner[:most])})",
            f"{random.choice(['not ', '-', '+'])}{inner[0]}",
            f"({inner[0]} is not null)",
        ]
    )


def mutated(random: Random) -> str:
    """A known text, cut, joined with others, or sprinkled with pieces."""
    text = random.choice(random.choice([HOSTILE, HOSTILE, VALID]))
    for _ in range(random.randrange(4)):
        place, other = random.randrange(len(text) + 1), random.choice(random.choice([HOSTILE, VALID]))
        text = random.choice(
            [
                text[:place] + random.choice(CHUNKS) + text[place:],
                text[:place] + text[place + random.randrange(1, 6) :],
                text[:place] + other[random.randrange(len(other)) :],
                f"{text}{random.choice([' ', ' and ', ' + ', ', ', '.', ''])}{other}",
                f"{random.choice(['(', '[', 'len(', 'get(', 'str('])}{text}{random.choice([')', ']', ', 1)'])}",
            ]
        )
    return text


def soup(random: Random) -> str:
    """Pieces of the language and of Python, in any order."""
    glue = random.choice(["", " "])
    return glue.join(random.choices(CHUNKS, k=random.randrange(1, 14)))


def noise(random: Random) -> str:
    """Any characters at all."""
    return "".join(map(chr, random.choices(range(random.choice([128, 0x3000, 0x110000])), k=random.randrange(60))))


# --- the run

ARMED: list[list[str]] = []
"""The lists that get the names of audit events: one while an expression runs, otherwise none."""


@cache
def install_audit() -> None:
    """Once for the process: an audit hook can never be removed."""

    def audit(event: str, _: tuple[Any, ...]) -> None:
        for touched in ARMED:
            touched.append(event)

    sys.addaudithook(audit)


class ExpressionTarget:
    """The values that expressions read, and what notices an escape."""

    name = "expression"

    def __init__(self) -> None:
        self.touched: list[str] = []
        self.contexts = contexts()
        self.before = [shape(each) for each in self.contexts]
        payloads = [None, {"amount": 1, "size": "s"}, {"k": doubled(40), "a": deep(200)}]
        self.events = [None, *(Watched("event", {"name": "a.b", "data": each}, self.touched) for each in payloads)]
        self.entity = Watched("entity", {"id": "A-1", "kind": "order", "version": 1}, self.touched)
        self.given = {id(each) for value in [*self.contexts, *payloads] for each in containers(value)}
        self.attempts = 0
        install_audit()

    def inputs(self, random: Random) -> Iterator[bytes]:
        """Yield mutations of known texts, pieces in any order, any characters, and well-formed expressions."""
        kinds: list[Callable[[Random], str]] = [mutated, soup, noise, lambda chance: expression(chance, 4)]
        while True:
            yield encoded(random.choices(kinds, weights=[35, 30, 5, 30])[0](random))

    def attempt(self, data: bytes) -> str:
        """Parse, compile, run and look at the value. The text alone decides which values it reads."""
        try:
            verdict = self.evaluate(data.decode("utf-8", "surrogatepass"), Random(data))
        finally:
            ARMED.clear()
            touched, self.touched[:] = list(self.touched), []
        assert not touched, f"escaped: {', '.join(touched)}"
        self.attempts += 1
        if self.attempts % ATTEMPTS_PER_LOOK == 0:
            self.look()
        return verdict

    def look(self) -> None:
        """Check that the values that were given are unchanged."""
        assert [shape(each) for each in self.contexts] == self.before, "a context was changed"

    def evaluate(self, text: str, random: Random) -> str:
        """Parse, compile and run. Raises whatever should not have been raised."""
        try:
            parsed = parse(text, names=NAMES)
        except ExpressionError as error:
            assert error.code.startswith("expression."), error.code
            assert 0 <= error.offset <= error.end <= len(text), f"{error.offset} to {error.end} of {len(text)}"
            return f"{error.code} {error.offset}"
        return f"{ACCEPTED} {self.evaluate_parsed(parsed, random)}"

    def evaluate_parsed(self, parsed: Parsed, random: Random) -> str:
        """Compile, run and look at the value."""
        function = compile_parsed(parsed, inside={name: name for name, _ in parsed.inside}).function
        context = random.choices(self.contexts, weights=CONTEXT_WEIGHTS)[0]
        event = random.choice(self.events)
        meter = Meter(WORK)
        ARMED.append(self.touched)
        try:
            value = function(context, event, self.entity, ("a", "b"), meter, {"id": "ann"})
        except Exception as error:  # noqa: BLE001  # `describe_exception` says whether it may be
            ARMED.clear()
            failed = error
        else:
            ARMED.clear()
            return f"a value of {self.check(value, {})[0]}"
        code = describe_exception(failed)[0]
        assert code not in ("expression.internal", "expression.unmetered"), f"{code}: {failed!r}"
        return code

    def check(self, value: Any, known: dict[int, tuple[int, int]]) -> tuple[int, int]:
        """The number of values and the depth of a plain value within the limits; given values are taken as they are."""
        if type(value) is list or type(value) is dict:
            if id(value) in self.given or id(value) in known:
                return known.get(id(value), (1, 1))
            parts = list(value.values() if type(value) is dict else value)
            assert type(value) is list or all(type(key) is str for key in value)
            sizes = [self.check(each, known) for each in parts]
            size = 1 + sum(count for count, _ in sizes), 1 + max((level for _, level in sizes), default=0)
            assert size[0] <= 100_000, "too many values"
            assert size[1] <= 64, "too deep"
            known[id(value)] = size
            return size
        if type(value) is int:
            assert abs(value) < 2**256, "too many bits"
        elif type(value) is float:
            assert math.isfinite(value), "not finite"
        elif type(value) is str:
            assert len(value) <= 1_000_000, "too long"
        else:
            assert value is None or type(value) is bool, f"not plain: {type(value)}"
        return 1, 0


def containers(value: Any) -> Iterator[Any]:
    """Every list and mapping in a value, each once."""
    seen, waiting = set(), [value]
    while waiting:
        each = waiting.pop()
        if type(each) in (list, dict) and id(each) not in seen:
            seen.add(id(each))
            yield each
            waiting += each.values() if type(each) is dict else each


def shape(value: Any) -> int:
    """A number that changes when a container in the value gains, loses or swaps a part."""
    parts = (tuple(map(id, each.values() if type(each) is dict else each)) for each in containers(value))
    return hash(tuple(parts))


EXPRESSION = ExpressionTarget()
