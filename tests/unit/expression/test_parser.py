"""Parsing: what an expression reads, and errors with their positions and hints."""

from __future__ import annotations

import ast
import pickle

import pytest

from interlock.expression.builtins import FUNCTIONS, NAMES
from interlock.expression.parser import ExpressionError, Parsed, _Check, parse
from tests.unit.expression.evaluation import refusal

ESCAPES = [
    "().__class__.__bases__[0].__subclasses__()",
    "''.__class__.__mro__",
    "context.__class__",
    "context._private",
    "event.__init__.__globals__",
    "event.data.__class__",
    "__import__('os').system('id')",
    "__builtins__",
    "_x",
    "''.format(context)",
    "'{0.__class__}'.format(event)",
    "'%s' .join(context.a)",
    "f'{event.__class__}'",
    "F'{1}'",
    "rb'x'",
    "getattr(event, '__class__')",
    "globals()",
    "locals()",
    "vars()",
    "eval('1')",
    "exec('1')",
    "open('x')",
    "type(event)",
    "lambda: 1",
    "(lambda f=[]: f)()",
    "[x for x in context.a]",
    "{x for x in context.a}",
    "(x for x in context.a)",
    "{k: v for k, v in context.a}",
    "(x := 1)",
    "x := 1",
    "x = 1",
    "9**9**9",
    "1 << 9",
    "1 >> 9",
    "1 & 1",
    "1 | 1",
    "1 ^ 1",
    "~1",
    "context.a @ context.b",
    "context.a[1:2]",
    "context.a[::]",
    "context.a[1, 2]",
    "context.a[...]",
    "...",
    "{**context}",
    "{1, 2}",
    "[*context.a]",
    "len(*context.a)",
    "len(**context)",
    "len(x=1)",
    "await event",
    "yield 1",
    "(yield)",
    "async",
    "import os",
    "print",
    "@context",
    "1; 2",
    "context.a\nimport os",
    "1 # note",
    "1 \\\n + 1",
    "b'x'",
    "1j",
    "context()",
    "event.data.pop('x')",
    "(1)(2)",
    "[].append(1)",
    "True()",
    "In",
    "len",
    "match",
    "raise",
    "assert 1",
    "del context",
    "\u212acontext",
    "\uff43ontext.a",
    "\u00b5",
    "a\u0301",
    "context.\u0430",
    "1\u0660",
    "'\ud800'",
    "'\\ud800'",
    "'\\N{DASH}'",
    "'\\777'",
    "'\\d'",
    "'a\x00b'",
    "\x00",
    "'a\tb'",
    "1\t+ 1",
    "'\u202e'",
    "'''a'''",
    "'a' 'b'",
    "'a",
    '"a',
    "'a\\'",
]


@pytest.mark.parametrize("text", ESCAPES)
def test_what_is_not_on_the_lists_is_refused(text: str) -> None:
    """Every known way out of a Python sandbox, and all of Python beyond the language, ends in an ExpressionError."""
    error = refusal(text)

    assert error.code.startswith("expression.")
    assert 0 <= error.offset <= error.end <= len(text)


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("context.items > 0", (("items", 8),)),
        ("  context.b + context . a ", (("b", 10), ("a", 24))),
        ("context['x'].y", (("x", 8),)),
        ("'\u00e9\U0001f600' == context.x", (("x", 16),)),
        ("event.data.x", ()),
        ("context[event.name]", ()),
        ("get(context, 'maybe')", ()),
        ("[context.a, {'k': context.b}, context.a]", (("a", 9), ("b", 26), ("a", 38))),
    ],
)
def test_reads_names_context_fields_in_order_of_the_text(text: str, reads: tuple[tuple[str, int], ...]) -> None:
    parsed = parse(text)

    assert reads == parsed.reads


def test_inside_names_states_with_offsets() -> None:
    """`inside` holds what In() was given, in order."""
    parsed = parse("In('b') or not In(\"a.c\")")

    assert (("b", 3), ("a.c", 18)) == parsed.inside
    assert not parsed.constant


@pytest.mark.parametrize(
    ("text", "roots", "constant"),
    [
        ("1 + 2 == len('abc')", set(), True),
        ("true", set(), True),
        ("In('a')", set(), False),
        ("context", {"context"}, False),
        ("event.name + entity.id + str(context.a)", {"context", "event", "entity"}, False),
    ],
)
def test_roots_tell_what_is_used(text: str, roots: set[str], constant: bool) -> None:
    parsed = parse(text)

    assert (frozenset(roots), constant) == (parsed.roots, parsed.constant)


def test_the_text_is_kept_unchanged() -> None:
    parsed = parse("\n  context.a \t")

    assert parsed.text == "\n  context.a \t"
    assert (("a", 11),) == parsed.reads
    assert isinstance(parsed.tree, ast.Attribute)


def test_principal_is_available_only_on_request() -> None:
    assert frozenset({"principal"}) == parse("principal.id", names=NAMES | {"principal"}).roots
    assert refusal("principal.id", names=NAMES).hint == 'did you mean "event.principal"?'


@pytest.mark.parametrize(
    ("text", "code", "span", "hint"),
    [
        ("ctx.a", "name", (0, 3), 'did you mean "context"?'),
        ("contex.a", "name", (0, 6), 'did you mean "context"?'),
        ("1 + TRUE", "name", (4, 8), 'did you mean "true"?'),
        ("undefined", "name", (0, 9), 'did you mean "null"?'),
        ("zebra", "name", (0, 5), "values are read from context, entity, event"),
        ("len", "name", (0, 3), "call it: len(...)"),
        ("event.nam", "name", (6, 9), 'did you mean "name"?'),
        ("event['nam']", "name", (6, 11), 'did you mean "name"?'),
        ("entity.zzz", "name", (7, 10), "its fields are id, kind, version, epoch"),
        ("context._a", "name", (8, 10), None),
        ("length(context.a)", "function", (0, 6), 'did you mean "len(x)"?'),
        ("IN('a')", "function", (0, 2), 'did you mean "In"?'),
        ("strats_with('a', 'b')", "function", (0, 11), 'did you mean "starts_with"?'),
        ("zebra(1)", "function", (0, 5), f"the functions are {', '.join(FUNCTIONS)}"),
        ("context.get('a')", "function", (0, 11), "write get(context, 'a')"),
        ("context.a.startswith('x')", "function", (0, 20), "write starts_with(context.a, 'x')"),
        ("context.a.lower()", "function", (0, 15), "write lower(context.a)"),
        ("context.a.append()", "function", (0, 16), "write context.a + [...]"),
        ("context.a.zebra()", "function", (0, 15), None),
        ("('a' + context.abcdefghijklmnopqrstuvwxyz + 'bcdefgh').lower()", "function", (0, 60), "write lower(x)"),
        ("[1](2)", "function", (0, 3), None),
        ("len()", "arguments", (0, 5), None),
        ("get(1)", "arguments", (0, 6), None),
        ("min()", "arguments", (0, 5), None),
        ("In(context.a)", "arguments", (3, 12), "In('state')"),
        ("In(1)", "arguments", (3, 4), "In('state')"),
        ("ms('5')", "constant", (3, 6), "write 250ms, 30s, 5m, 24h, 7d or 1h30m"),
        ("1 is 1", "node", (0, 6), "write == or !="),
        ("null is 1 is 1", "node", (0, 14), "write == or !="),
        ("{1: 2}", "constant", (1, 2), None),
        ("{'a': 1, 'a': 2}", "constant", (9, 12), None),
        ("context[True]", "constant", (8, 12), None),
        ("context[1.5]", "constant", (8, 11), None),
        ("context[None]", "constant", (8, 12), None),
        ("context.a[1, 2]", "node", (10, 14), "write x[a][b]"),
        ("{1, 2}", "node", (0, 6), "write a list: [a, b]"),
        ("context.a[1:]", "node", (10, 12), "read one item: x[0], x[-1]"),
        ("18446744073709551616", "constant", (0, 20), None),
        ("1e999", "constant", (0, 5), None),
        ("'\\ud800'", "constant", (0, 8), None),
    ],
)
def test_refusals_have_a_position_and_a_hint(text: str, code: str, span: tuple[int, int], hint: str | None) -> None:
    """Each refusal has a code, the characters it is about, and a hint for common habits."""
    error = refusal(text, names=NAMES)

    assert (f"expression.{code}", span, hint) == (error.code, (error.offset, error.end), error.hint)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("len(1, 2)", "len() takes 1 argument, not 2"),
        ("get(1)", "get() takes 2 or 3 arguments, not 1"),
        ("max()", "max() takes 1 or more arguments, not 0"),
        ("has(1)", "has() takes 2 arguments, not 1"),
    ],
)
def test_wrong_numbers_of_arguments_are_counted(text: str, message: str) -> None:
    """The message says how many arguments a function takes and how many it was given."""
    assert message == refusal(text).message


def test_largest_constants_are_accepted() -> None:
    """Whole numbers go to 64 bits, decimal numbers to what a float holds."""
    assert parse("18446744073709551615 + 1.7e308").constant


def test_syntax_errors_of_python_get_a_position() -> None:
    """What Python's own parser refuses is reported at the character it names, counted from the text as given."""
    error = refusal("  (1 + ")

    assert ("expression.syntax", 2) == (error.code, error.offset)
    assert refusal("'\u00e9' 1").offset == 4


@pytest.mark.parametrize("raised", [RecursionError(), MemoryError(), ValueError("x")])
def test_failures_of_the_parser_itself_do_not_leak(raised: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise raised

    monkeypatch.setattr(ast, "parse", fail)
    error = refusal(" 1 ")

    assert ("expression.limit", 1, 2) == (error.code, error.offset, error.end)


@pytest.mark.parametrize("text", ["context.n >", " context.n > 1 and", "context.", "1 +  "])
def test_an_expression_that_ends_too_early_has_its_error_at_the_end(text: str) -> None:
    error, end = refusal(text), len(text.rstrip())

    assert ("expression.syntax", "the expression ends too early", end - 1, end) == (
        error.code,
        error.message,
        error.offset,
        error.end,
    )


def test_a_syntax_error_without_a_position_points_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:

    def fail(*_: object, **__: object) -> None:
        raise SyntaxError("odd")

    monkeypatch.setattr(ast, "parse", fail)
    error = refusal(" 1 ")

    assert ("expression.syntax", "odd", 1, 2) == (error.code, error.message, error.offset, error.end)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "a ** b",
            "a << b",
            "~a",
            "a @ b",
            "lambda: 1",
            "[x for x in y]",
            "(x := 1)",
            "f'{x}'",
            "await_ if 1 else (yield)",
        ),
        *("{**context}", "...", "b'x'", "1j", "len(x=1)", "{1, 2}", "context[1:2]", "[*context]", "context.__class__"),
    ],
)
def test_the_second_wall_holds_alone(text: str) -> None:
    """The walk over the tree refuses all of it again, without the help of the scanner."""
    tree = ast.parse(text, mode="eval").body
    check = _Check(text, shift=0, names=NAMES | {"a", "b", "x", "y", "await_"})

    with pytest.raises(ExpressionError):
        check.walk(tree)


@pytest.mark.parametrize(
    "text",
    [
        "1" + "+1" * 30,
        "[" + "1," * 300 + "]",
        "context" + ".a" * 30,
        "1 if 1 else " * 30 + "1",
        "(),(),()" + ",()" * 300,
    ],
)
def test_trees_too_large_or_too_deep_are_refused(text: str) -> None:
    error = refusal(text)

    assert error.code == "expression.limit"


@pytest.mark.parametrize("text", ["1" + "+1" * 29, "[" + "1," * 299 + "]", "context" + ".a" * 29, "1 and " * 250 + "1"])
def test_trees_at_the_limit_are_accepted(text: str) -> None:
    """30 levels and 300 nodes are allowed."""
    assert isinstance(parse(text), Parsed)


def test_errors_survive_pickling() -> None:
    error = refusal("ctx.a")
    copy = pickle.loads(pickle.dumps(error))

    assert vars(error) == vars(copy)
    assert str(error) == str(copy)
