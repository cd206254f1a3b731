"""The readers of definitions: YAML, SCXML, XState JSON and smcat.

For every input:
1. `loads` returns a chart or raises DefinitionError, whose errors have a code, a position and a short message;
2. the document of an accepted chart is stored as canonical JSON and read back as the same chart;
3. an accepted chart starts, or the start is refused with an error of ours;
4. an accepted chart is written in its own format, and in none of this more than a diagnostic says what is lost.
"""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from interlock.assemble.charts import BoundChart, format_writer, loads, read_text
from interlock.definition.json.format import canonical_json
from interlock.errors import DefinitionError, InterlockError
from interlock.model.limits import DIAGNOSTIC_LENGTH_MAX
from tests.fuzz import seeds
from tests.fuzz.mutation import Mutator, encoded, json_bytes
from tests.fuzz.target import ACCEPTED
from tests.hostile.definitions import ALL

SOURCE = "fuzz"
HOSTILE_BYTES_MAX = 10_000


class DefinitionTarget:
    """One format. `trees` are the seeds as JSON values, `write` turns a mutated tree into text."""

    def __init__(self, format: str, trees: Callable[[str], Any], write: Callable[[Any], str]) -> None:
        self.name = format
        self._parse = trees
        self._write = write

    def inputs(self, random: Random) -> Iterator[bytes]:
        """Yield mutated texts of the corpus: of tokens, of the tree, of bytes, and the known hostile texts."""
        corpus = [*seeds.texts(self.name), *_hostile(self.name)]
        mutator = Mutator(random, corpus, seeds.words(self.name))
        trees = [self._parse(each) for each in seeds.texts(self.name)]
        while True:
            kind = random.random()
            if kind < 0.45 or not trees:
                yield encoded(mutator.text(random.choice(corpus)))
            elif kind < 0.9:
                yield encoded(self._write(mutator.value(random.choice(trees))))
            elif kind < 0.97:
                yield mutator.data(encoded(random.choice(corpus)))
            else:
                yield encoded(mutator.text(self._write(mutator.value(random.choice(trees)))))

    def attempt(self, data: bytes) -> str:
        """Load the text. Return what was found, or the name of the accepted behaviour."""
        try:
            chart = loads(data, format=self.name, source=SOURCE)
        except DefinitionError as error:
            return self._refused(error, data)
        return f"{ACCEPTED} {_use(chart, self.name)}"

    def _refused(self, error: DefinitionError, data: bytes) -> str:
        errors = [each for each in error.diagnostics if each.severity == "error"]
        assert errors, "an error without errors"
        lines = data.count(b"\n") + data.count(b"\r") + data.count(b"\x0c") + data.count(b"\xe2\x80") + 2
        lines += data.count(b"\xc2\x85") + data.count(b"\x0b") + data.count(b"\x1c") + data.count(b"\x1d")
        for each in errors:
            assert each.code, "an error without a code"
            assert each.location.file == SOURCE, f"{each.code} names another file: {each.location.file!r:.60}"
            assert 1 <= each.location.line <= lines, f"{each.code} is at line {each.location.line} of {lines}"
            assert each.location.column >= 1, f"{each.code} is at column {each.location.column}"
            assert 0 < len(each.message) <= DIAGNOSTIC_LENGTH_MAX, f"{each.code} has {len(each.message)} characters"
        str(error).encode()  # a lone surrogate could not be printed
        return " ".join(f"{each.code}:{each.location.line}:{each.location.column}" for each in error.diagnostics)


def _use(chart: BoundChart[Any], format: str) -> str:
    """Store, write and start an accepted chart. Return its revision."""
    try:
        stored = canonical_json(chart.document)
    except InterlockError as error:
        return error.code
    again = loads(stored, format="json", source=SOURCE)
    assert again.chart.revision == chart.chart.revision, "the stored definition is another behaviour"
    for write in (format_writer(format), format_writer("yaml")):
        try:
            write(chart.document).text.encode()
        except InterlockError as error:
            assert error.code.startswith("export."), f"writing raised {error.code}: {error.message}"
    try:
        step = chart.start(None, entity=f"{chart.chart.kind}/1", time_ms=1)
    except InterlockError as error:
        return f"{chart.chart.revision} {error.code}"
    return f"{chart.chart.revision} {len(step.effects)}"


def _hostile(format: str) -> list[str]:
    """The known hostile texts of a format, without the large ones."""
    made = [each.make() for each in ALL if each.format == format]
    return [
        each.decode("utf-8", "surrogatepass")
        for each in made
        if len(each) <= HOSTILE_BYTES_MAX and b"\xff" not in each and b"\xe9" not in each
    ]


# Trees


def _yaml_tree(text: str) -> Any:
    """The tree of a chart as JSON has it: YAML has the same keys."""
    document = read_text(text, format="yaml", source=SOURCE).document
    assert document is not None
    return {name: value for name, value in json.loads(canonical_json(document)).items() if name != "dialect"}


def _element(found: ET.Element) -> dict[str, Any]:
    return {
        "tag": found.tag,
        "attributes": dict(found.attrib),
        "text": found.text or "",
        "children": [_element(each) for each in found],
    }


def _xml_tree(text: str) -> Any:
    return _element(ET.fromstring(text))


def _xml_text(tree: Any) -> str:
    """Write a mutated tree as XML. Whatever is not an element any more is text."""
    if not isinstance(tree, dict) or not isinstance(tree.get("tag"), str):
        return _escaped(tree)
    namespace, _, tag = tree["tag"].rpartition("}")
    given = tree.get("attributes")
    attributes = {f"xmlns{''}": namespace[1:]} if namespace else {}
    if isinstance(given, dict):
        attributes |= {str(name).rpartition("}")[2]: value for name, value in given.items()}
    said = "".join(f' {name}="{_escaped(value)}"' for name, value in attributes.items())
    children = tree.get("children")
    inside = "".join(map(_xml_text, children)) if isinstance(children, list) else _escaped(children)
    return f"<{tag}{said}>{_escaped(tree.get('text'))}{inside}</{tag}>"


def _escaped(value: Any) -> str:
    text = value if isinstance(value, str) else "" if value is None else json.dumps(value)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")


def _flow(tree: Any) -> str:
    """JSON is YAML. The text keeps characters as they are, because escapes are a separate part."""
    return json.dumps(tree, ensure_ascii=False)


YAML = DefinitionTarget("yaml", _yaml_tree, _flow)
SCXML = DefinitionTarget("scxml", _xml_tree, _xml_text)
XSTATE = DefinitionTarget("xstate", json.loads, lambda tree: json_bytes(tree).decode())
SMCAT = DefinitionTarget("smcat", str, str)
