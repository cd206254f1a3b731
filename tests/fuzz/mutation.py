"""Mutations of a corpus that we generate: of tokens of a text, of nodes of a JSON value, of bytes.

Everything is drawn from one `random.Random`.
"""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Sequence
from random import Random
from typing import Any

TEXT_MAX = 200_000
"""Characters of a mutated text: repetitions are multiplied by later mutations, and most inputs should be small."""

LARGE_SHARE = 1 / 300
"""Texts with a piece that is repeated up to half of the largest size: what is quadratic shows."""

_TOKEN = re.compile(r"\n[ ]*|\w+|[ \t]+|[^\w\s]", re.UNICODE)

WORDS = (
    *("", " ", "\n", "\t", "\r", "\x00", "\x1b", "\x7f", "\x85", "\u2028", "\ufeff", "\u202e", "\u00e9", "e\u0301"),
    *("\ud800", "\udfff", "\uffff", "\U0001f600", "\U0010ffff", "\uff43", "\u0131", "\u00df"),
    *("0", "1", "-1", "007", "0x1F", "0o7", "1_0", "1e999", "-0.0", ".inf", ".nan", "9" * 90, "1.5", "1e-400"),
    *("18446744073709551616", "-9223372036854775809", "true", "null", "~", "yes", "no", "on", "NaN", "Infinity"),
    *("*", "&a", "*a", "!!python/object", "!tag", "<<", "---", "...", "%YAML 1.1", "|", ">", "|2-", "?", ":", "-"),
    *(
        "{",
        "}",
        "[",
        "]",
        "(",
        ")",
        "<",
        ">",
        "/>",
        "</",
        "<!--",
        "-->",
        "<![CDATA[",
        "]]>",
        "<?",
        "?>",
        "<!DOCTYPE x>",
    ),
    *("&lt;", "&#0;", "&#xD800;", "&x;", '"', "'", "\\", "\\u0000", "\\ud800", "\\x", "#", "=", "=>", "->", "..", "."),
    *("__class__", "_x", "constructor", "a" * 260, "\u00e9" * 130, "s0.s1", "#s0", ".s0", "*.*", "done.state.a"),
    *(
        "error",
        "error.*",
        "after.1s",
        "done.invoke.x",
        "= context.n",
        "= 1 +",
        "= not",
        "In(",
        "10s",
        "1ms",
        "-5s",
        "1y",
    ),
)

VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2**31, 2**53 + 1, 2**63, 2**64, -(2**63) - 1, 10**78, 10**300, 0.5, -0.0, 1e308),
    *(
        "",
        " ",
        "a",
        "0",
        "\x00",
        "\n",
        "\ud800",
        "\u202e",
        "\U0010ffff",
        "a" * 300,
        "\u00e9" * 150,
        ".",
        "..",
        "/",
        "a/b",
    ),
    *(
        "_a",
        "__proto__",
        "*",
        "a.*",
        "#a",
        "=",
        "= 1",
        "= context.n",
        "= context.__class__",
        "= 1 +",
        "1s",
        "-1s",
        "9y",
    ),
    *("2026-11-19T00:00:00Z", "2026-11-19", "9999-12-31T23:59:59.999+23:59", "AAAA", "AA=A", "true", "null"),
    *([], {}, [[]], [{}], {"": None}, {"a": {"b": [1]}}, [None] * 40, {"type": "x"}, {"$ref": "#"}),
)


def deep(random: Random, levels: int) -> Any:
    """Return a value that is nested so many levels."""
    value: Any = _copied(random.choice(VALUES))
    for _ in range(levels):
        value = [value] if random.random() < 0.5 else {"a": value}
    return value


class Mutator:
    """Mutations that also draw from the words of a corpus."""

    def __init__(self, random: Random, corpus: Sequence[str], words: Sequence[str]) -> None:
        self.random = random
        self.corpus = corpus
        self.words = words

    # Texts

    def text(self, text: str) -> str:
        """Return a text after one to six mutations of its tokens. One in three hundred is large."""
        tokens = _TOKEN.findall(text)
        for _ in range(self.random.choice((1, 1, 1, 2, 2, 3, 4, 6))):
            tokens = self._mutate_tokens(tokens)
        if self.random.random() < LARGE_SHARE and tokens:
            at = self.random.randrange(len(tokens))
            piece = "".join(tokens[at : at + self.random.choice((1, 2, 5, 20))])
            tokens.insert(at, piece * (TEXT_MAX // max(1, 2 * len(piece))))
        return "".join(tokens)[:TEXT_MAX]

    def word(self) -> str:
        """Return a word: one of the corpus, or a hostile one."""
        return self.random.choice(WORDS if self.random.random() < 0.4 else self.words)

    def _mutate_tokens(self, tokens: list[str]) -> list[str]:
        random = self.random
        if not tokens:
            return [self.word()]
        at = random.randrange(len(tokens))
        to = min(len(tokens), at + random.choice((1, 1, 2, 4, 8, 24)))
        kind = random.randrange(12)
        if kind == 0:
            return tokens[:at] + tokens[to:]
        if kind <= 3:  # most errors of people are one wrong word
            return [*tokens[:at], self.word(), *tokens[at + 1 :]]
        if kind == 4:
            return [*tokens[:at], self.word(), *tokens[at:]]
        if kind == 5:
            return tokens[:to] + tokens[at:]
        if kind == 6:
            times = random.choice((2, 3, 10, 70, 500))
            return tokens[:at] + tokens[at:to] * times + tokens[to:] if times * (to - at) < 20_000 else tokens
        if kind == 7:
            other = _TOKEN.findall(random.choice(self.corpus)) or [""]
            start = random.randrange(len(other))
            return tokens[:at] + other[start : start + random.choice((1, 3, 10, 40))] + tokens[to:]
        if kind == 8:
            return tokens[:at]
        if kind == 9:
            place = random.randrange(len(tokens))
            tokens = list(tokens)
            tokens[at], tokens[place] = tokens[place], tokens[at]
            return tokens
        if kind == 10:  # indentation, and the space around tokens
            token = tokens[at]
            return [*tokens[:at], token + " " * random.choice((1, 2, 4, 100)), *tokens[at + 1 :]]
        return [*tokens[:at], *random.choices(WORDS, k=random.randrange(1, 5)), *tokens[to:]]

    # Values

    def value(self, value: Any) -> Any:
        """Return a copy of a JSON value after one to four mutations of its nodes."""
        value = _copied(value)
        for _ in range(self.random.choice((1, 1, 1, 2, 2, 3, 4))):
            value = self._mutate_value(value)
        return value

    def _mutate_value(self, root: Any) -> Any:
        random = self.random
        places = list(_places(root))
        if not places:
            return self._leaf()
        holder, key = random.choice(places)
        kind = random.randrange(10)
        if kind <= 3:
            holder[key] = self._leaf()
        elif kind == 4:
            del holder[key]
        elif kind == 5 and isinstance(holder, dict):
            holder[self.word()] = holder.pop(key)
        elif kind == 6:
            other, place = random.choice(places)
            if other is not holder or place != key:
                holder[key] = _copied(other[place])
        elif kind == 7:
            holder[key] = deep(random, random.choice((1, 2, 30, 70, 150)))
        elif kind == 8 and isinstance(holder, dict):
            holder[self.word()] = self._leaf()
        else:
            holder[key] = [holder[key]] * random.choice((1, 2, 3, 40)) if random.random() < 0.5 else {"a": holder[key]}
        return root

    def _leaf(self) -> Any:
        return self.word() if self.random.random() < 0.4 else _copied(self.random.choice(VALUES))

    # Bytes

    def data(self, data: bytes) -> bytes:
        """Return bytes with a few of them changed, removed or repeated."""
        random, found = self.random, bytearray(data)
        for _ in range(random.choice((1, 1, 2, 4))):
            if not found:
                return random.randbytes(random.randrange(8))
            at = random.randrange(len(found))
            kind = random.randrange(5)
            if kind == 0:
                found[at] ^= 1 << random.randrange(8)
            elif kind == 1:
                found[at : at + 1] = random.randbytes(random.randrange(1, 4))
            elif kind == 2:
                del found[at : at + random.choice((1, 1, 4, 100))]
            elif kind == 3:
                found[at:at] = random.choice((b"\x00", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xfe\xff", b"\x80"))
            else:
                del found[at:]
        return bytes(found)


def _copied(value: Any) -> Any:
    """Return a copy of a JSON value; `deepcopy` takes ten times as long."""
    return pickle.loads(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))


def encoded(text: str) -> bytes:
    """Return a text as bytes. Lone surrogates become bytes that are not UTF-8."""
    return text.encode("utf-8", "surrogatepass")


def json_bytes(value: Any) -> bytes:
    """Return a value as JSON: with escapes, so that a lone surrogate stays one."""
    return json.dumps(value).encode()


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every container with a key or index in it."""
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting and len(found) < 5_000:
        each = waiting.pop()
        items = each.items() if isinstance(each, dict) else enumerate(each) if isinstance(each, list) else ()
        for key, inner in items:
            found.append((each, key))
            if isinstance(inner, dict | list):
                waiting.append(inner)
    return found
