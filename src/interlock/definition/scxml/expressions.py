"""Expressions of SCXML files to the expression language and back.

Rule 1: a field of the context is a bare name in SCXML (`Var1`) and `context.Var1` here; `_event`, `_name`, `_sessionid`
        and `_ioprocessors` have their own names. Only tokens are replaced: white space and mistakes are kept.
Rule 2: nothing is refused here. An invalid expression stays invalid: the compiler reports it, and evaluating it fails
        (S35).
Rule 3: `to_scxml` is the reverse. If `from_scxml` cannot undo it, the writer uses our own names.
"""

from __future__ import annotations

import ast
import re
from keyword import iskeyword
from typing import Any, Literal

from interlock.errors import SourceLocation
from interlock.expression.builtins import CONSTANTS
from interlock.expression.parser import ExpressionError, parse
from interlock.expression.tokens import TEXT_LENGTH_MAX
from interlock.model.document.actions import Expression, Value
from interlock.model.event import SCXML_PROCESSOR

Datamodel = Literal["interlock", "null", "python", "ecmascript"]

_LOCATION = "{'location': '#_scxml_' + entity.id}"
PROCESSORS = f"{{'{SCXML_PROCESSOR}': {_LOCATION}, 'scxml': {_LOCATION}}}"
"""`_ioprocessors` as an expression: the address of this entity, under both names of the only processor."""

_SYSTEM = {"_event": "event", "_name": "entity.kind", "_sessionid": "entity.id", "_ioprocessors": PROCESSORS}
_METHODS = {
    "get": "get",
    "startswith": "starts_with",
    "endswith": "ends_with",
    "lower": "lower",
    "upper": "upper",
    "startsWith": "starts_with",
    "endsWith": "ends_with",
    "toLowerCase": "lower",
    "toUpperCase": "upper",
    "hasOwnProperty": "has",
}
_FUNCTIONS = {"hasattr": "has"}
_JAVASCRIPT = {"&&": "and", "||": "or", "!": "not", "===": "==", "!==": "!="}
_TOKEN = re.compile(
    r"""(?P<blank>\s+)|(?P<word>[A-Za-z_$][A-Za-z0-9_$]*)|(?P<number>[0-9][A-Za-z0-9_.]*|\.[0-9][A-Za-z0-9_]*)
      |(?P<string>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|(?P<sign>===|!==|&&|\|\||==|!=|<=|>=|.)""",
    re.VERBOSE | re.DOTALL,
)
_UNDEFINED = re.compile(r"""typeof\s+(context\.(\w+)|[\w.]+)\s*(==|!=)\s*(?:'undefined'|"undefined")""")
_ITEM = re.compile(r"""\[\s*(?:'([A-Za-z0-9_-]+)'|"([A-Za-z0-9_-]+)")\s*\]""")

_CLOSING = (")", "]", "}")

Tokens = list[tuple[str, str]]


def from_scxml(text: str, datamodel: Datamodel) -> str:
    """The text in our language, as far as it can be translated token by token."""
    text = text.strip()  # as every other format reads it
    if datamodel == "interlock" or len(text) > TEXT_LENGTH_MAX:
        return text
    text = "".join(word for _, word in _renamed(_tokens(text), datamodel))
    return _UNDEFINED.sub(_unset, text) if datamodel == "ecmascript" else text


def _unset(found: re.Match[str]) -> str:
    value = f"get(context, {found[2]!r})" if found[2] else found[1]
    return f"{value} {found[3]} null"


def _renamed(found: Tokens, datamodel: Datamodel) -> Tokens:
    made: Tokens = []
    index = 0
    while index < len(found):
        kind, word = found[index]
        index += 1
        if kind == "word" and not _follows_dot(found, index - 1):
            made.append((kind, _FUNCTIONS.get(word, word) if _called(found, index) else _name(word, datamodel)))
        elif kind == "word" and word in _METHODS and _called(found, index):
            _as_function(made, _METHODS[word])
            index += 1
            if index < len(found) and found[index] != ("sign", ")"):
                made.append(("sign", ", "))
        elif datamodel == "ecmascript" and (kind, word) == ("word", "length"):
            _as_function(made, "len")
            made.append(("sign", ")"))
        elif datamodel == "ecmascript" and word in _JAVASCRIPT:
            made.append((kind, _spaced(_JAVASCRIPT[word], made, found[index : index + 1])))
        else:
            made.append((kind, word))
    return made


def to_scxml(text: str, datamodel: Datamodel) -> str:
    """The text with SCXML's names. The writer uses it only if `from_scxml` restores the original."""
    if datamodel == "interlock" or len(text) > TEXT_LENGTH_MAX:
        return text
    text = text.replace(PROCESSORS, "_ioprocessors")
    text = re.sub(r"\bentity\.kind\b", "_name", re.sub(r"\bentity\.id\b", "_sessionid", text))
    words = []
    found = _tokens(text)
    for index, (kind, word) in enumerate(found):
        if kind == "word" and word == "event" and not _follows_dot(found, index):
            words.append("_event")
        elif word in ("context", ".") and _context_dot(found, index if word == "context" else index - 1):
            continue
        else:
            words.append(word)
    return "".join(words)


def round_trips(text: str, datamodel: Datamodel) -> bool:
    """Whether an expression survives writing and reading in this datamodel."""
    return from_scxml(to_scxml(text, datamodel), datamodel) == text


def _tokens(text: str) -> Tokens:
    return [(str(match.lastgroup), match[0]) for match in _TOKEN.finditer(text)]


def _name(word: str, datamodel: Datamodel) -> str:
    if word in _SYSTEM:
        return _SYSTEM[word]
    if datamodel == "ecmascript" and word in ("typeof", "undefined"):
        return {"undefined": "null"}.get(word, word)
    return word if iskeyword(word) or word in CONSTANTS else f"context.{word}"


def _follows_dot(tokens: Tokens, index: int) -> bool:
    return index > 0 and tokens[index - 1] == ("sign", ".")


def _called(tokens: Tokens, index: int) -> bool:
    return index < len(tokens) and tokens[index] == ("sign", "(")


def _context_dot(tokens: Tokens, index: int) -> bool:
    """Whether `context.name` starts here and `name` would be read as a field again."""
    if index < 0 or tokens[index] != ("word", "context") or _follows_dot(tokens, index):
        return False
    rest = tokens[index + 1 : index + 3]
    return len(rest) == 2 and rest[0] == ("sign", ".") and rest[1][0] == "word"


def _spaced(word: str, before: Tokens, after: Tokens) -> str:
    if not word.isalpha():
        return word
    first = "" if word == "not" or (before and before[-1][0] == "blank") else " "
    last = "" if after and after[0][0] == "blank" else " "
    return f"{first}{word}{last}"


def _as_function(tokens: Tokens, name: str) -> None:
    """Turn `value.` at the end of the tokens into `name(value`."""
    tokens.pop()
    tokens.insert(_value_start(tokens), ("word", f"{name}("))


def _value_start(tokens: Tokens) -> int:
    """The start of the value at the end of the tokens: a name or bracket with everything selected from it."""
    index = len(tokens) - 1
    while index > 0:
        if tokens[index][1] in _CLOSING:
            index = _opening(tokens, index)
        before = tokens[index - 1] if index > 0 else ("sign", "")
        if tokens[index][1] in ("(", "[") and _ends_value(before):
            index -= 1
        elif before == ("sign", ".") and index > 1:
            index -= 2
        else:
            return index
    return 0


def _ends_value(token: tuple[str, str]) -> bool:
    kind, word = token
    return word in _CLOSING or kind == "string" or (kind == "word" and not iskeyword(word))


def _opening(tokens: Tokens, index: int) -> int:
    """The bracket that the one at `index` closes; the first token if there is none."""
    depth = 0
    while index > 0:
        depth += (tokens[index][1] in _CLOSING) - (tokens[index][1] in ("(", "[", "{"))
        if depth == 0:
            break
        index -= 1
    return index


def read_value(text: str, datamodel: Datamodel, location: SourceLocation) -> Value:
    """The value of an attribute such as `expr`: a literal, or an expression."""
    text = from_scxml(text, datamodel)
    try:
        parsed = parse(text)
    except ExpressionError:
        return Expression(text, location)
    if parsed.constant and _is_literal(parsed.tree):
        return _literal(parsed.tree)
    return Expression(text, location)


def _is_literal(node: ast.expr) -> bool:
    match node:
        case ast.Constant():
            return True
        case ast.Name():
            return node.id in CONSTANTS
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=number)):
            return type(number) in (int, float)
        case ast.List() | ast.Tuple():
            return all(_is_literal(each) for each in node.elts)
        case ast.Dict():
            keys = [each for each in node.keys if isinstance(each, ast.Constant) and isinstance(each.value, str)]
            return len(keys) == len(node.keys) and all(_is_literal(each) for each in node.values)
        case _:
            return False


def _literal(node: ast.expr) -> Any:
    match node:
        case ast.Name():
            return CONSTANTS[node.id]
        case ast.UnaryOp(operand=ast.Constant(value=int() | float() as number)):
            return -number
        case ast.List() | ast.Tuple():
            return [_literal(each) for each in node.elts]
        case ast.Dict():
            return {
                ast.literal_eval(key): _literal(each) for key, each in zip(node.keys, node.values, strict=True) if key
            }
        case _:
            return ast.literal_eval(node)


def write_value(value: Value, datamodel: Datamodel) -> str | None:
    """The text of `expr` for a value in this datamodel; None if it is too long or out of range."""
    text = expression_text(value)
    try:
        parse(text)
    except ExpressionError:
        return text if isinstance(value, Expression) and round_trips(text, datamodel) else None
    return to_scxml(text, datamodel) if round_trips(text, datamodel) else None


def expression_text(value: Value) -> str:
    """The value as one expression of our language."""
    match value:
        case Expression():
            return value.text
        case dict():
            return "{" + ", ".join(f"{key!r}: {expression_text(each)}" for key, each in value.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(expression_text(each) for each in value) + "]"
        case _:
            return repr(value)


def read_path(location: str, datamodel: Datamodel) -> str:
    """The dotted path of a location (`a.b`, `a['b']`); an invalid one is kept, and assigning to it fails."""
    path = _ITEM.sub(lambda found: f".{found[1] or found[2]}", location.strip())
    return path.removeprefix("context.") if datamodel == "interlock" else path
