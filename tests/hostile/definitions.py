"""Malicious definitions in every format, each with the error that it must cause.

Rule 1: a text is created when it is needed; some are megabytes.
Rule 2: the code of the first error is fixed; the tests check its position.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

HEAD = "interlock: 1\nkind: hostile\n"
DEEP = 200_000
FORMATS = (("yaml", "yaml"), ("scxml", "scxml"), ("xstate", "json"), ("smcat", "smcat"))
"""Formats, and the prefix of the codes of their readers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hostile:
    """A text and the code of its error."""

    name: str
    format: str
    code: str
    make: Callable[[], bytes]

    @property
    def file(self) -> str:
        """A file name whose suffix is that of the format."""
        suffix = {"yaml": "interlock.yaml", "xstate": "json"}.get(self.format, self.format)
        return f"hostile.{suffix}"


def yaml(name: str, code: str, text: str) -> Hostile:
    """A YAML chart: the usual head and this."""
    return Hostile(name=name, format="yaml", code=code, make=(HEAD + text).encode)


def made(name: str, format: str, code: str, make: Callable[[], bytes | str]) -> Hostile:
    """A text of any format, created when it is needed."""

    def data() -> bytes:
        text = make()
        return text.encode() if isinstance(text, str) else text

    return Hostile(name=name, format=format, code=code, make=data)


def scxml(inside: str, *, before: str = "", **attributes: str) -> str:
    """An SCXML document around this."""
    said = "".join(f' {key}="{text}"' for key, text in attributes.items())
    head = f'<scxml xmlns="http://www.w3.org/2005/07/scxml" version="1.0" datamodel="python"{said}>'
    return f"{before}{head}{inside}</scxml>"


def _alias_bomb() -> str:
    """Nine levels of nine: a billion values in a few hundred bytes."""
    lines = ["meta:", "  a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"  a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]
    return HEAD + "\n".join(lines) + "\nstates: {a: {}}\n"


def _entity_bomb() -> str:
    entities = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
    return scxml('<state id="&l9;"/>', before=f'<!DOCTYPE scxml [<!ENTITY l0 "lol">{entities}]>')


def _levels(count: int) -> str:
    """States in states, this many levels."""
    text = HEAD
    for level in range(count):
        text += f"{' ' * level * 2}states:\n{' ' * (level * 2 + 1)}s{level}:\n"
    return text + f"{' ' * (count * 2)}description: the last\n"


def _json_levels(count: int) -> str:
    return '{"initial":"a","states":{"b":{},"a":' * count + "{}" + "}}" * count


def _json(text: str) -> str:
    """An XState definition with this in its root."""
    return f'{{{text},"initial":"a","states":{{"a":{{}},"b":{{}}}}}}'


def _expression(text: str) -> str:
    """A chart with this guard."""
    fields = "context: {n: {type: integer, default: 1}}"
    return f"{fields}\nstates: {{a: {{on: {{go: {{target: b, guard: {text}}}}}}}, b: {{type: final}}}}\n"


PARSERS = (
    made("alias bomb", "yaml", "yaml.values", _alias_bomb),
    yaml("recursive alias", "yaml.alias", "states: &loop {a: *loop}\n"),
    yaml(
        "a hundred and one aliases",
        "yaml.aliases",
        f"meta: {{x: &x 1, y: [{', '.join(['*x'] * 101)}]}}\nstates: {{a: {{}}}}\n",
    ),
    made("flow lists, deep", "yaml", "yaml.depth", lambda: HEAD + "meta: " + "[" * DEEP),
    made("flow mappings, deep", "yaml", "yaml.depth", lambda: HEAD + "meta: " + "{a: " * DEEP),
    made("block lists, deep", "yaml", "yaml.depth", lambda: HEAD + "meta:\n " + "- " * DEEP),
    made("block mappings, deep", "yaml", "yaml.depth", lambda: HEAD + "".join(f"{' ' * n}a:\n" for n in range(1_300))),
    made("JSON lists, deep", "xstate", "json.depth", lambda: "[" * DEEP),
    made("JSON objects, deep", "xstate", "json.depth", lambda: '{"a":' * DEEP),
    made("XML, deep", "scxml", "scxml.depth", lambda: scxml("<state>" * (DEEP // 2))),
    made("smcat, deep", "smcat", "smcat.depth", lambda: "a {" * DEEP),
    made("entity bomb", "scxml", "scxml.doctype", _entity_bomb),
    made(
        "external entity",
        "scxml",
        "scxml.doctype",
        lambda: scxml("<state>&x;</state>", before='<!DOCTYPE scxml [<!ENTITY x SYSTEM "file:///etc/passwd">]>'),
    ),
    made(
        "external DTD",
        "scxml",
        "scxml.doctype",
        lambda: scxml("<state/>", before='<!DOCTYPE scxml SYSTEM "http://127.0.0.1:9/x.dtd">'),
    ),
    made("undeclared entity", "scxml", "scxml.syntax", lambda: scxml("<state>&nothing;</state>")),
    made(
        "data src outside of the folder",
        "scxml",
        "scxml.src",
        lambda: scxml('<datamodel><data id="x" src="file:../../../../etc/passwd"/></datamodel><state id="a"/>'),
    ),
    made(
        "script of a file",
        "scxml",
        "script.untrusted",
        lambda: scxml('<script src="../../../../etc/passwd"/><state id="a"/>'),
    ),
    yaml("number of 5,000 digits", "yaml.number", f"meta: {{n: {'9' * 5_000}}}\nstates: {{a: {{}}}}\n"),
    yaml("hexadecimal of 5,000 digits", "yaml.number", f"meta: {{n: 0x{'f' * 5_000}}}\nstates: {{a: {{}}}}\n"),
    yaml("exponent beyond all", "yaml.number", "meta: {n: 1e999999}\nstates: {a: {}}\n"),
    made("JSON number of 5,000 digits", "xstate", "json.number", lambda: _json(f'"context":{{"n":{"9" * 5_000}}}')),
    made("JSON not a number", "xstate", "json.syntax", lambda: _json('"context":{"n":NaN}')),
    made("five megabytes of YAML", "yaml", "yaml.size", lambda: HEAD + "# x\n" * 1_310_720),
    made("five megabytes of JSON", "xstate", "json.size", lambda: "[" + "1," * 2_621_440),
    made("five megabytes of XML", "scxml", "scxml.size", lambda: scxml("<state/>" * 655_360)),
    made("five megabytes of smcat", "smcat", "smcat.size", lambda: "a -> b;\n" * 655_360),
)

BYTES = (
    made("NUL byte in YAML", "yaml", "yaml.character", lambda: HEAD + "description: a\0b\n"),
    made("NUL byte in JSON", "xstate", "json.syntax", lambda: '{"id":"a\0b"}'),
    made("NUL byte in XML", "scxml", "scxml.syntax", lambda: scxml('<state id="a\0b"/>')),
    *(made(f"UTF-16 as {each}", each, f"{name}.encoding", lambda: HEAD.encode("utf-16")) for each, name in FORMATS),
    *(
        made(f"lone surrogate as {each}", each, f"{name}.encoding", lambda: b"kind: \xed\xa0\x80\n")
        for each, name in FORMATS
    ),
    made("bytes that are no UTF-8", "yaml", "yaml.encoding", lambda: HEAD.encode() + b"description: caf\xe9\n"),
    made("control characters", "yaml", "yaml.character", lambda: HEAD + "description: \x1b[2J\x07\nstates: {a: {}}\n"),
    made("JSON lone surrogate escape", "xstate", "json.string", lambda: _json('"id":"\\ud800"')),
    made("JSON control character", "xstate", "json.syntax", lambda: _json('"id":"\x1b"')),
    made("empty YAML", "yaml", "yaml.empty", lambda: ""),
    made("empty SCXML", "scxml", "scxml.syntax", lambda: ""),
    made("empty JSON", "xstate", "json.syntax", lambda: ""),
    made("empty smcat", "smcat", "smcat.empty", lambda: ""),
    yaml("lone surrogate escape", "yaml.syntax", 'description: "\\ud800"\nstates: {a: {}}\n'),
)

MEANINGS = (
    yaml("duplicate key", "yaml.duplicate_key", "states: {a: {}, b: {}, a: {type: final}}\n"),
    made("JSON duplicate key", "xstate", "json.duplicate_key", lambda: _json('"on":{"x":".a","x":".b"}')),
    made("XML duplicate attribute", "scxml", "scxml.syntax", lambda: scxml('<state id="a" id="b"/>')),
    yaml("merge key", "yaml.merge", "meta: {base: &b {x: 1}, other: {<<: *b}}\nstates: {a: {}}\n"),
    yaml("tag that makes objects", "yaml.tag", "meta: !!python/object/apply:os.system ['true']\nstates: {a: {}}\n"),
    yaml("second document", "yaml.documents", "states: {a: {}}\n---\nstates: {b: {}}\n"),
    yaml("infinity", "yaml.number", "meta: .inf\nstates: {a: {}}\n"),
    yaml("unknown key", "key.unknown", "state: {a: {}}\nstates: {a: {}}\n"),
    yaml("unknown target", "target.unknown", "states: {a: {on: {go: c}}, b: {}}\n"),
    made(
        "XState unknown target",
        "xstate",
        "target.unknown",
        lambda: '{"initial":"a","states":{"a":{"on":{"go":"c"}},"b":{}}}',
    ),
    yaml("eventless cycle", "always.loop", "states: {a: {always: b}, b: {always: c}, c: {always: a}}\n"),
    made(
        "2,001 states",
        "yaml",
        "chart.states",
        lambda: HEAD + "states:\n" + "".join(f"  s{n}: {{}}\n" for n in range(2_001)),
    ),
    made("33 levels", "yaml", "chart.depth", lambda: _levels(33)),
    made("33 levels of JSON", "xstate", "chart.depth", lambda: _json_levels(33)),
    made(
        "too many transitions",
        "yaml",
        "chart.transitions",
        lambda: f"{HEAD}states: {{a: {{transitions: [{'{event: x}, ' * 20_001}]}}}}\n",
    ),
    yaml("name too long", "name.invalid", f"states: {{{'a' * 300}: {{}}, b: {{}}}}\n"),
)

EXPRESSIONS = tuple(
    yaml(f"expression {name}", code, _expression(text))
    for name, code, text in (
        ("reaching for a class", "expression.name", '"= context.__class__"'),
        ("calling the interpreter", "expression.function", "\"= __import__('os').system('true')\""),
        ("opening a file", "expression.function", "\"= open('/etc/passwd')\""),
        ("with a lambda", "expression.node", '"= (lambda: 1)()"'),
        ("with a comprehension", "expression.node", '"= [x for x in context.xs]"'),
        ("with a walrus", "expression.node", '"= (n := 1)"'),
        ("with a format", "expression.node", "\"= f'{context}'\""),
        ("with a power", "expression.node", '"= 9 ** 9 ** 9 > 1"'),
        ("with a shift", "expression.node", '"= 1 << 100000 > 1"'),
        ("of 5,000 digits", "expression.constant", f'"= {"9" * 1_500} > 1"'),
        ("too long", "expression.limit", f'"= {"1 + " * 1_000}1 > 1"'),
        ("nested in parentheses", "expression.limit", f'"= {"(" * 900}1{")" * 900}"'),
        ("nested in lists", "expression.limit", f'"= {"[" * 200}1{"]" * 200}"'),
        ("with a long chain", "expression.limit", f'"= {"not " * 400}true"'),
        ("with a NUL", "expression.syntax", '"= 1\\0"'),
        ("not an expression", "expression.node", '"= import os"'),
        ("with a star", "expression.node", '"= [*context.xs]"'),
    )
)

ALL = (*PARSERS, *BYTES, *MEANINGS, *EXPRESSIONS)


def wide_chart() -> str:
    """A chart of 2,000 states, as many as there may be."""
    return HEAD + "states:\n" + "".join(f"  s{number}: {{}}\n" for number in range(2_000))


def deep_chart() -> str:
    """A chart of 32 levels, as deep as may be."""
    return _levels(32)
