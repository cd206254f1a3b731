"""Definitions made to do harm, in every format: what each is, and the finding it must end in.

Rule 1: a text is made when it is asked for; some are megabytes.
Rule 2: the first error's code is the promise; where it stands is checked by the tests, for all alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

HEAD = "interlock: 1\nkind: hostile\n"
DEEP = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Hostile:
    """A text and the code of the error that answers it."""

    name: str
    format: str
    code: str
    make: Callable[[], bytes]

    @property
    def file(self) -> str:
        """A file name whose suffix tells the format."""
        suffix = {"yaml": "interlock.yaml", "xstate": "json"}.get(self.format, self.format)
        return f"hostile.{suffix}"


def yaml(name: str, code: str, text: str) -> Hostile:
    """A YAML chart: the usual head and this."""
    return Hostile(name=name, format="yaml", code=code, make=lambda: (HEAD + text).encode())


def made(name: str, format: str, code: str, make: Callable[[], bytes | str]) -> Hostile:
    """A text of any format, made when asked for."""

    def data() -> bytes:
        text = make()
        return text.encode() if isinstance(text, str) else text

    return Hostile(name=name, format=format, code=code, make=data)


def scxml(inside: str, *, before: str = "", **attributes: str) -> str:
    """An SCXML document around this."""
    said = "".join(f' {key}="{text}"' for key, text in attributes.items())
    return f'{before}<scxml xmlns="http://www.w3.org/2005/07/scxml" version="1.0" datamodel="python"{said}>{inside}</scxml>'


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
    return '{"states":{"a":' * count + "{}" + "}}" * count


def _expression(text: str) -> str:
    return f"{HEAD}context: {{n: {{type: integer, default: 1}}}}\nstates: {{a: {{on: {{go: {{target: b, guard: {text}}}}}}}, b: {{type: final}}}}\n"


PARSERS = (
    made("alias bomb", "yaml", "?", _alias_bomb),
    yaml("recursive alias", "?", "states: &loop {a: *loop}\n"),
    yaml("a hundred and one aliases", "?", f"meta: {{x: &x 1, y: [{', '.join(['*x'] * 101)}]}}\nstates: {{a: {{}}}}\n"),
    made("flow lists, deep", "yaml", "?", lambda: HEAD + "meta: " + "[" * DEEP),
    made("flow mappings, deep", "yaml", "?", lambda: HEAD + "meta: " + "{a: " * DEEP),
    made("block lists, deep", "yaml", "?", lambda: HEAD + "meta:\n " + "- " * DEEP),
    made("block mappings, deep", "yaml", "?", lambda: HEAD + "".join(f"{' ' * n}a:\n" for n in range(1_300))),
    made("JSON lists, deep", "xstate", "?", lambda: "[" * DEEP),
    made("JSON objects, deep", "xstate", "?", lambda: '{"a":' * DEEP),
    made("XML, deep", "scxml", "?", lambda: scxml("<state>" * (DEEP // 2))),
    made("smcat, deep", "smcat", "?", lambda: "a {" * DEEP),
    made("entity bomb", "scxml", "?", _entity_bomb),
    made("external entity", "scxml", "?",
         lambda: scxml("<state>&x;</state>", before='<!DOCTYPE scxml [<!ENTITY x SYSTEM "file:///etc/passwd">]>')),
    made("external DTD", "scxml", "?", lambda: scxml("<state/>", before='<!DOCTYPE scxml SYSTEM "http://127.0.0.1:9/x.dtd">')),
    made("undeclared entity", "scxml", "?", lambda: scxml("<state>&nothing;</state>")),
    made("src outside of the folder", "scxml", "?", lambda: scxml('<state id="a"><invoke src="file:../../../../etc/passwd"/></state>')),
    made("script src outside of the folder", "scxml", "?", lambda: scxml('<script src="../../../../etc/passwd"/><state id="a"/>')),
    yaml("number of 5,000 digits", "?", f"meta: {{n: {'9' * 5_000}}}\nstates: {{a: {{}}}}\n"),
    yaml("hexadecimal of 5,000 digits", "?", f"meta: {{n: 0x{'f' * 5_000}}}\nstates: {{a: {{}}}}\n"),
    yaml("exponent beyond all", "?", "meta: {n: 1e999999}\nstates: {a: {}}\n"),
    made("JSON number of 5,000 digits", "xstate", "?", lambda: f'{{"context":{{"n":{"9" * 5_000}}},"states":{{"a":{{}}}}}}'),
    made("JSON not a number", "xstate", "?", lambda: '{"context":{"n":NaN},"states":{"a":{}}}'),
    made("five megabytes of YAML", "yaml", "?", lambda: HEAD + "# x\n" * 1_310_720),
    made("five megabytes of JSON", "xstate", "?", lambda: "[" + "1," * 2_621_440),
    made("five megabytes of XML", "scxml", "?", lambda: scxml("<state/>" * 655_360)),
    made("five megabytes of smcat", "smcat", "?", lambda: "a -> b;\n" * 655_360),
)  # fmt: skip

BYTES = (
    *(made(f"NUL byte in {each}", each, "?", lambda: b"a\x00b") for each in ("yaml", "scxml", "xstate", "smcat")),
    *(made(f"UTF-16 {each}", each, "?", lambda: "interlock: 1\n".encode("utf-16")) for each in ("yaml", "scxml", "xstate", "smcat")),
    *(made(f"lone surrogate in {each}", each, "?", lambda: b"kind: \xed\xa0\x80\n") for each in ("yaml", "scxml", "xstate", "smcat")),
    made("bytes that are no UTF-8", "yaml", "?", lambda: HEAD.encode() + b"description: caf\xe9\n"),
    made("control characters", "yaml", "?", lambda: HEAD + "description: \x1b[2J\x07\nstates: {a: {}}\n"),
    made("JSON lone surrogate escape", "xstate", "?", lambda: '{"id":"\\ud800","states":{"a":{}}}'),
    made("JSON control character", "xstate", "?", lambda: '{"id":"\x1b","states":{"a":{}}}'),
    made("empty YAML", "yaml", "?", lambda: ""),
    made("empty SCXML", "scxml", "?", lambda: ""),
    made("empty JSON", "xstate", "?", lambda: ""),
    made("empty smcat", "smcat", "?", lambda: ""),
    yaml("lone surrogate escape", "?", 'description: "\\ud800"\nstates: {a: {}}\n'),
)  # fmt: skip

MEANINGS = (
    yaml("duplicate key", "?", "states: {a: {}, b: {}, a: {type: final}}\n"),
    made("JSON duplicate key", "xstate", "?", lambda: '{"states":{"a":{},"a":{}}}'),
    made("XML duplicate attribute", "scxml", "?", lambda: scxml('<state id="a" id="b"/>')),
    yaml("merge key", "?", "base: &b {x: 1}\nstates: {a: {<<: *b}}\n"),
    yaml("tag that makes objects", "?", "meta: !!python/object/apply:os.system ['true']\nstates: {a: {}}\n"),
    yaml("second document", "?", "states: {a: {}}\n---\nstates: {b: {}}\n"),
    yaml("infinity", "?", "meta: .inf\nstates: {a: {}}\n"),
    yaml("unknown key", "?", "state: {a: {}}\nstates: {a: {}}\n"),
    yaml("unknown target", "?", "states: {a: {on: {go: c}}, b: {}}\n"),
    made("SCXML unknown target", "scxml", "?", lambda: scxml('<state id="a"><transition event="go" target="c"/></state>')),
    made("XState unknown target", "xstate", "?", lambda: '{"initial":"a","states":{"a":{"on":{"go":"c"}},"b":{}}}'),
    yaml("eventless cycle", "?", "states: {a: {always: b}, b: {always: c}, c: {always: a}}\n"),
    made("2,001 states", "yaml", "?", lambda: HEAD + "states:\n" + "".join(f"  s{n}: {{}}\n" for n in range(2_001))),
    made("33 levels", "yaml", "?", lambda: _levels(33)),
    made("33 levels of JSON", "xstate", "?", lambda: _json_levels(33)),
    made("too many transitions", "yaml", "?", lambda: f"{HEAD}states: {{a: {{transitions: [{'{event: x}, ' * 20_001}]}}}}\n"),
    yaml("name too long", "?", f"states: {{{'a' * 300}: {{}}}}\n"),
)  # fmt: skip

EXPRESSIONS = tuple(
    yaml(f"expression {name}", "?", _expression(text).removeprefix(HEAD))
    for name, text in {
        "reaching for a class": '"= context.__class__"',
        "reaching through a string": "\"= ''.join\"",
        "calling the interpreter": "\"= __import__('os').system('true')\"",
        "opening a file": "\"= open('/etc/passwd')\"",
        "with a lambda": '"= (lambda: 1)()"',
        "with a comprehension": '"= [x for x in context.xs]"',
        "with a walrus": '"= (n := 1)"',
        "with a format": "\"= f'{context}'\"",
        "with a power": '"= 9 ** 9 ** 9 > 1"',
        "with a shift": '"= 1 << 100000 > 1"',
        "of 5,000 digits": f'"= {"9" * 1_500} > 1"',
        "too long": f'"= {"1 + " * 1_000}1 > 1"',
        "nested in parentheses": f'"= {"(" * 900}1{")" * 900}"',
        "nested in lists": f'"= {"[" * 200}1{"]" * 200}"',
        "with a long chain": f'"= {"not " * 400}true"',
        "with a NUL": '"= 1\\0"',
        "that is no expression": '"= import os"',
        "with a star": '"= [*context.xs]"',
    }.items()
)

ALL = (*PARSERS, *BYTES, *MEANINGS, *EXPRESSIONS)
