"""Check the tokens of an expression before Python's parser reads it.

Rule 1: this module finds errors; `parse` raises them.
Rule 2: outside of strings only printable ASCII, known signs and known keywords are allowed. Python's parser never
        sees a comment, a line break, a string prefix, an unknown escape, or an identifier that it would normalise
        (NFKC).
Rule 3: size and nesting are limited here, because a deeply nested text can exhaust the parser itself.
"""

from __future__ import annotations

import re
from keyword import iskeyword
from typing import NamedTuple

from interlock.expression.builtins import KEYWORD_SUGGESTIONS, SIGN_SUGGESTIONS, WORDS

TEXT_LENGTH_MAX = 2_000
"""Characters of an expression: a guard that does not fit on a screen should be a registered function."""

NODES_MAX = 300
"""Nodes of an expression: with the sizes of values this bounds the cost of one evaluation, as there are no loops."""

DEPTH_MAX = 30
"""Nesting of an expression: keeps generated code, and recursion over it, far below the interpreter's limits."""

BLANKS = " \t\r\n"
"""Characters allowed around an expression. Inside, only spaces are."""

_DIGITS = r"[0-9](?:_?[0-9])*"
_EXPONENT = rf"(?:[eE][+-]?{_DIGITS})?"
_TOKEN = re.compile(
    rf"""
      (?P<blank>\ +)
    | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<number>(?:0[xX](?:_?[0-9a-fA-F])+|0[oO](?:_?[0-7])+|0[bB](?:_?[01])+
        |(?:{_DIGITS})?\.{_DIGITS}{_EXPONENT}|{_DIGITS}\.?{_EXPONENT})(?![A-Za-z0-9_.]))
    | (?P<string>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
    | (?P<foreign>\*\*|===|!==|<>|<<|>>|:=|->|\.\.\.|&&|\|\||\?\?|\?\.)
    | (?P<sign>//|==|!=|<=|>=|[-+*/%<>()\[\]{{}},:.])
    """,
    re.VERBOSE,
)
_ESCAPE = re.compile(
    r"""\\(?:[\\'"abfnrtv]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U(?:000[0-9a-fA-F]|0010)[0-9a-fA-F]{4})|(?P<odd>\\.)"""
)
# Control characters, line separators, and marks that change the direction of text.
_INVISIBLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_PREFIXES = frozenset({"r", "u", "b", "f", "br", "rb", "fr", "rf"})
_NUMERALS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_."
_LONG_TOKEN = 40


class TokenError(NamedTuple):
    """An error in a text: code, message, position, and the fix if it is known."""

    code: str
    message: str
    offset: int
    end: int
    hint: str | None = None


class _Token(NamedTuple):
    kind: str
    text: str
    start: int
    end: int


_BEFORE = _Token("sign", "(", -1, -1)


def find_token_error(text: str) -> TokenError | None:
    """Return the first error in the tokens of a text. If it is None, Python's parser may read the stripped text."""
    if len(text) > TEXT_LENGTH_MAX:
        message = f"the expression has {len(text):,} characters; the maximum is {TEXT_LENGTH_MAX:,}"
        return TokenError("expression.limit", message, TEXT_LENGTH_MAX, len(text), "register a named function instead")
    end = len(text.rstrip(BLANKS))
    position = len(text) - len(text.lstrip(BLANKS))
    if position >= end:
        return TokenError("expression.syntax", "the expression is empty", 0, len(text))
    nesting = _Nesting()
    last = _BEFORE
    while position < end:
        match = _TOKEN.match(text, position, end)
        if match is None:
            return _unknown(text, position)
        token = _Token(str(match.lastgroup), match[0], position, match.end())
        position = token.end
        if token.kind == "blank":
            continue
        error = _check_token(token, last) or nesting.add(token, last)
        if error is not None:
            return error
        last = token
    return None


class _Nesting:
    """Counts the least that each token adds to the tree, so that no oversized text reaches the parser."""

    def __init__(self) -> None:
        self.nodes = 0
        self.brackets = 0
        self.prefixes = 0

    def add(self, token: _Token, last: _Token) -> TokenError | None:
        prefix = token.text in ("not", "-", "+")
        self.prefixes = self.prefixes + 1 if prefix else 0
        if token.text in ("(", "[", "{"):
            self.brackets += 1
            # A round bracket after a value is a call; after anything else it only groups.
            self.nodes += token.text != "(" or _ends_value(last)
        elif token.text in (")", "]", "}"):
            self.brackets -= 1
        elif token.kind in ("number", "string") or (token.kind == "word" and token.text not in WORDS):
            self.nodes += 1
        return oversized(self.nodes, max(self.brackets, self.prefixes), token.start, token.end)


def oversized(nodes: int, depth: int, start: int, end: int) -> TokenError | None:
    """Return the error of an expression with too many nodes or levels, or None."""
    if nodes > NODES_MAX:
        message, hint = f"the expression has more than {NODES_MAX} parts", "register a named function instead"
    elif depth > DEPTH_MAX:
        message, hint = f"the expression is nested deeper than {DEPTH_MAX}", "split it, or group long sums in brackets"
    else:
        return None
    return TokenError("expression.limit", message, start, end, hint)


def _ends_value(token: _Token) -> bool:
    return token.text in (")", "]", "}") or (token.kind != "sign" and token.text not in WORDS)


def _check_token(token: _Token, last: _Token) -> TokenError | None:
    if token.kind == "word":
        return _check_word(token, last)
    if token.kind == "string":
        return _check_string(token, last)
    if token.kind == "foreign":
        return _foreign(token.text, token.start)
    return None


def _check_word(token: _Token, last: _Token) -> TokenError | None:
    if not iskeyword(token.text):
        return None
    if last.text == ".":
        message = f'"{token.text}" is a keyword and cannot follow a dot'
        return TokenError("expression.syntax", message, token.start, token.end, f"write ['{token.text}'] instead")
    if token.text in WORDS:
        return None
    message = f'"{token.text}" is not part of the language'
    return TokenError("expression.node", message, token.start, token.end, KEYWORD_SUGGESTIONS.get(token.text))


def _check_string(token: _Token, last: _Token) -> TokenError | None:
    if last.end == token.start and last.text.lower() in _PREFIXES:
        hint = "join strings with + and str()" if "f" in last.text.lower() else "write it without the prefix"
        message = f"strings have no prefix such as {last.text}"
        return TokenError("expression.node", message, last.start, token.end, hint)
    if last.kind == "string":
        message = "two strings without an operator between them"
        return TokenError("expression.syntax", message, last.start, token.end, "put a comma or + between them")
    invisible = _INVISIBLE.search(token.text)
    if invisible is not None:
        start = token.start + invisible.start()
        message = f"the string contains the invisible character U+{ord(invisible[0]):04X}"
        escape = f"write \\u{ord(invisible[0]):04x}" if invisible[0] < "\ud800" else None
        return TokenError("expression.constant", message, start, start + 1, escape)
    for found in _ESCAPE.finditer(token.text):
        if found["odd"]:
            start = token.start + found.start()
            message = f'"{found[0]}" is not an escape of the language'
            return TokenError("expression.constant", message, start, start + 2, "write \\\\ for a backslash")
    return None


def _unknown(text: str, position: int) -> TokenError:
    """Return the error of a position where no token starts."""
    sign = text[position]
    if sign in "'\"":
        return TokenError("expression.syntax", "the string is not closed", position, len(text), f"close it with {sign}")
    if sign in "0123456789":
        end = len(text) - len(text[position:].lstrip(_NUMERALS))
        message = f'"{text[position : min(end, position + _LONG_TOKEN)]}" is not a number'
        return TokenError("expression.syntax", message, position, end)
    if _INVISIBLE.match(sign):
        hint = "write the expression on one line, with spaces" if sign in BLANKS else None
        message = f"the character U+{ord(sign):04X} is not allowed in an expression"
        return TokenError("expression.syntax", message, position, position + 1, hint)
    return _foreign(sign, position)


def _foreign(sign: str, position: int) -> TokenError:
    code = "expression.node" if sign.isascii() else "expression.syntax"
    message = f'"{sign}" is not part of the language'
    return TokenError(code, message, position, position + len(sign), SIGN_SUGGESTIONS.get(sign))
