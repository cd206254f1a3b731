"""The names, functions and keywords of the language, and suggestions for those of other languages.

Everything that depends on a name lives here: roots, fields, constants, functions and how many arguments they take.
Rule 1: what is not listed does not exist; the checker and the compiler both read these tables.
Rule 2: words of other languages only lead to hints. They are never accepted.
"""

from __future__ import annotations

NAMES = frozenset({"context", "event", "entity"})
"""The roots that every expression may read. Policy expressions may also read `principal`."""

FIELDS = {
    "event": ("name", "data", "id", "time_ms", "type", "origin", "origintype", "sendid", "invokeid", "principal"),
    "entity": ("id", "kind", "version", "epoch"),
}
"""The fields of the roots that are not mappings of the user."""

CONSTANTS = {"true": True, "false": False, "null": None}
"""Constants as in JSON, allowed in addition to Python's."""

FUNCTIONS: dict[str, tuple[int, int | None]] = {
    "In": (1, 1),
    "abs": (1, 1),
    "actors": (1, 1),
    "all": (1, 1),
    "any": (1, 1),
    "bool": (1, 1),
    "ceil": (1, 1),
    "ends_with": (2, 2),
    "float": (1, 1),
    "floor": (1, 1),
    "get": (2, 3),
    "has": (2, 2),
    "int": (1, 1),
    "len": (1, 1),
    "lower": (1, 1),
    "max": (1, None),
    "min": (1, None),
    "ms": (1, 1),
    "round": (1, 2),
    "starts_with": (2, 2),
    "str": (1, 1),
    "sum": (1, 1),
    "upper": (1, 1),
}
"""Every function with its minimum and maximum number of arguments (None: no maximum)."""

GENERATED_FUNCTIONS: dict[str, tuple[int, int | None]] = {"_record_sender": (1, None)}
"""Functions that only the compiler writes into expressions, `compiler.approvals`. They are not part of the language."""

WORDS = frozenset({"and", "or", "not", "in", "is", "if", "else", "True", "False", "None"})
"""The keywords of Python that belong to the language."""

NAME_SUGGESTIONS = {
    "_event": "event",
    "_name": "entity.kind",
    "_sessionid": "entity.id",
    "TRUE": "true",
    "FALSE": "false",
    "NULL": "null",
    "actor": "event.principal",
    "ctx": "context",
    "data": "event.data",
    "e": "event",
    "evt": "event",
    "id": "entity.id",
    "kind": "entity.kind",
    "now": "event.time_ms",
    "payload": "event.data",
    "nil": "null",
    "self": "context",
    "state": "In('...')",
    "this": "context",
    "time": "event.time_ms",
    "undefined": "null",
    "principal": "event.principal",
    "user": "event.principal",
    "version": "entity.version",
}
"""Names of other languages and libraries, and their equivalents here."""

FUNCTION_SUGGESTIONS = {
    "Boolean": "bool(x)",
    "Number": "float(x)",
    "String": "str(x)",
    "contains": "item in x",
    "count": "len(x)",
    "defined": "has(x, 'key')",
    "duration": "ms('5m')",
    "endswith": "ends_with(x, 'end')",
    "exists": "has(x, 'key')",
    "getattr": "get(x, 'key')",
    "has_key": "has(x, 'key')",
    "hasattr": "has(x, 'key')",
    "in_state": "In('state')",
    "includes": "item in x",
    "isIn": "In('state')",
    "length": "len(x)",
    "matches": "In('state')",
    "parseFloat": "float(x)",
    "parseInt": "int(x)",
    "size": "len(x)",
    "startswith": "starts_with(x, 'start')",
    "toString": "str(x)",
}
"""Functions of other languages and libraries, and their equivalents here."""

METHOD_SUGGESTIONS = {
    "append": "{x} + [{a}]",
    "endsWith": "ends_with({x}, {a})",
    "endswith": "ends_with({x}, {a})",
    "format": "'text ' + str(value)",
    "get": "get({x}, {a})",
    "has": "has({x}, {a})",
    "hasOwnProperty": "has({x}, {a})",
    "includes": "{a} in {x}",
    "join": "a + b",
    "length": "len({x})",
    "lower": "lower({x})",
    "startsWith": "starts_with({x}, {a})",
    "startswith": "starts_with({x}, {a})",
    "toLowerCase": "lower({x})",
    "toString": "str({x})",
    "toUpperCase": "upper({x})",
    "upper": "upper({x})",
}
"""Methods of other languages, and their equivalents: `{x}` is the object, `{a}` are the arguments."""

SIGN_SUGGESTIONS = {
    "**": "powers are not supported; write a product",
    "===": "write ==",
    "!==": "write !=",
    "<>": "write !=",
    "&&": "write and",
    "||": "write or",
    "!": "write not",
    "=": "write == to compare",
    ":=": "an expression cannot assign; use the action assign",
    "?": "write a if test else b",
    "??": "write get(x, 'key', default)",
    "?.": "write get(x, 'key')",
    "&": "write and",
    "|": "write or",
    ";": "write one expression",
    "$": "write the name without $; texts are joined with +",
    "`": "write a plain text in quotes",
    "#": "write the comment outside of the expression",
    "\\": "write the expression on one line",
}
"""Signs that are not part of the language, and what to write instead."""

KEYWORD_SUGGESTIONS = {
    "for": "comprehensions are not supported; use any, all, sum, min, max, or the action foreach",
    "lambda": "functions cannot be defined; register a named guard or assign function",
    "await": "an expression has no side effects; use an effect",
    "yield": "an expression has no side effects; use an effect",
    "import": "imports are not supported; register a named guard or assign function",
}
"""Keywords of Python that are not part of the language, and what to do instead."""
