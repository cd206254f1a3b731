"""What state-machine-cat itself says: it accepts what we write, and reads what we read the same way.

Needs Node.js and `npm install` in tests/conformance/node; without them these tests are skipped, and say so.
"""

import json
import random
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interlock.definition.smcat.labels import LabelReader
from interlock.definition.smcat.parse import parse_smcat
from interlock.definition.smcat.read import read_smcat
from interlock.definition.smcat.states import Draft, read_drafts, walk_drafts
from interlock.definition.smcat.write import write_smcat
from interlock.definition.source.node import SourceLines
from interlock.errors import Place
from interlock.model.diagnostics import Diagnostics
from tests.unit.definition.built_charts import every_word, order, vm

NODE = Path(__file__).parents[2] / "conformance" / "node"
SEED = 20_151
TEXTS = 600
ARROWS = ["->", "=>", "<-", "<=", ">>", "<<", "=>>", "<<=", "--", "==", " <: ", " :> "]

pytestmark = [
    pytest.mark.node,
    pytest.mark.skipif(
        shutil.which("node") is None or not (NODE / "node_modules" / "state-machine-cat").is_dir(),
        reason="SKIPPED: state-machine-cat is not here; run npm install in tests/conformance/node",
    ),
]


def parsed_by_them(texts: list[str]) -> list[Any]:
    """What state-machine-cat makes of each text; None where it refuses it."""
    done = subprocess.run(
        ["node", "smcat.mjs"], cwd=NODE, input=json.dumps(texts), capture_output=True, text=True, check=True
    )
    answers: list[Any] = json.loads(done.stdout)
    return answers


@pytest.mark.parametrize("chart", [order, vm, every_word], ids=lambda each: each.__name__)
def test_what_we_write_is_accepted(chart: Any) -> None:
    """The writer's text is smcat, also where it quotes, nests, forks and notes; and every `type=` is taken."""
    text = write_smcat(chart()).text
    (parsed,) = parsed_by_them([text])

    assert parsed is not None, text
    assert all(each["typeExplicitlySet"] for each in _their_states(parsed))


def test_what_they_accept_is_what_we_accept() -> None:
    """On random texts, many of them damaged, both accept the same ones and see the same states and arrows."""
    chance = random.Random(SEED)
    texts = [_text(chance) for _ in range(TEXTS)]
    theirs = parsed_by_them(texts)
    differing = [
        (text, mine, seen)
        for text, parsed in zip(texts, theirs, strict=True)
        if (mine := _our_view(text)) != (seen := None if parsed is None else _their_view(parsed))
    ]

    assert [] == differing[:3], f"seed {SEED}"
    assert TEXTS // 10 < sum(each is None for each in theirs) < TEXTS // 2


def test_the_examples_of_their_readme_are_read() -> None:
    """Each gives a document; only a join outside of a parallel state has no meaning here."""
    readme = (NODE / "node_modules" / "state-machine-cat" / "README.md").read_text(encoding="utf-8")
    texts = re.findall(r"^```smcat\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    readings = [read_smcat(text, source="readme.smcat") for text in texts]
    errors = [found.code for each in readings for found in each.diagnostics if found.severity == "error"]

    assert len(texts) > 10
    assert None not in [each.document for each in readings]
    assert ["smcat.join"] == errors


def _our_view(text: str) -> Any:
    diagnostics = Diagnostics()
    lines = SourceLines(text, "random.smcat")
    body = parse_smcat(text, lines, diagnostics)
    if body is None or diagnostics.has_errors:
        return None
    root = read_drafts(body, LabelReader(lines, Diagnostics()), Diagnostics(), Place())
    names = sorted((each.name, _depth(each)) for each in walk_drafts(root))
    arrows = sorted(
        (arrow.source.name, arrow.targets[0].name, arrow.internal)
        for each in walk_drafts(root)
        for arrow in each.leaving
    )
    return names, arrows


def _depth(draft: Draft) -> int:
    return len(list(draft.ancestors()))


def _their_view(parsed: Any) -> Any:
    names = sorted((each["name"], each["depth"]) for each in _their_states(parsed))
    arrows = sorted((each["from"], each["to"], each.get("type") == "internal") for each in _their_arrows(parsed))
    return names, arrows


def _their_states(parsed: Any, depth: int = 1) -> Iterator[Any]:
    for each in parsed["states"]:
        yield {**each, "typeExplicitlySet": each.get("typeExplicitlySet"), "depth": depth}
        if "statemachine" in each:
            yield from _their_states(each["statemachine"], depth + 1)


def _their_arrows(parsed: Any) -> Iterator[Any]:
    yield from parsed.get("transitions", ())
    for each in parsed["states"]:
        if "statemachine" in each:
            yield from _their_arrows(each["statemachine"])


def _text(chance: random.Random) -> str:
    """A random text of the language; every second one has a character taken out, doubled or put in."""
    numbers = iter(range(1_000))
    text = _body(chance, 0, numbers)
    if chance.random() < 0.5:
        at = chance.randrange(len(text))
        damage = chance.choice(["", text[at] * 2, *';,{[]:#"-=>\n a'])
        text = text[:at] + damage + text[at + 1 :]
    return text


def _body(chance: random.Random, depth: int, numbers: Iterator[int]) -> str:
    names = [_name(chance, numbers) for _ in range(chance.randint(1, 4))]
    states = [_state(chance, name, depth, numbers) for name in names]
    declared = chance.random() < 0.8
    names += [_name(chance, numbers)] if chance.random() < 0.3 else []
    kinds = ARROWS if declared else ARROWS[:-1]  # `:>` in front of all else is the one difference, and known
    arrows = [_arrow(chance, names, kinds) for _ in range(chance.randint(0 if declared else 1, 4))]
    return (",".join(states) + ";" if declared else "") + "".join(arrows)


def _name(chance: random.Random, numbers: Iterator[int]) -> str:
    number = next(numbers)
    return chance.choice(
        [f"s{number}", f'"state {number}"', f"a.b{number}", f"^c{number}", f"final{number}", f"]f{number}"]
    )


def _state(chance: random.Random, name: str, depth: int, numbers: Iterator[int]) -> str:
    parts = [chance.choice(["", " ", "\n# a note\n", " // why\n", "/* so */"]), name]
    if chance.random() < 0.4:
        attributes = ["type=regular", 'label="a \\"b\\" c"', "active", 'COLOR="red"', 'class="x y-z"', "type=parallel"]
        parts.append("[" + " ".join(chance.sample(attributes, chance.randint(0, 2))) + "]")
    if chance.random() < 0.4:
        parts.append(": " + chance.choice(["entry/ x\n exit/ y", '"do/ a, b"', "", "some words", "entry / [z]"]))
    if depth < 2 and chance.random() < 0.3:
        parts.append(" {" + _body(chance, depth + 1, numbers) + "}")
    return "".join(parts)


def _arrow(chance: random.Random, names: list[str], kinds: list[str]) -> str:
    arrow = chance.choice(kinds)
    parts = [chance.choice(["", "\n", "#n\n"]), chance.choice(names), arrow, chance.choice(names)]
    if chance.random() < 0.3:
        parts.append(" [" + chance.choice(["type=internal", "width=2.5", 'color="blue" type=external', ""]) + "]")
    if chance.random() < 0.5:
        parts.append(": " + chance.choice(["go", "go [ok]/ a, b", '"x; [y] {z}"', "", "[= a[0] == ']']", "/ b"]))
    return "".join(parts) + ";"
