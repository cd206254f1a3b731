"""The corpus of definitions: the charts of our documentation and examples, and small random ones, in every format."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from random import Random

from interlock.assemble.charts import format_writer, read_text
from interlock.errors import InterlockError
from interlock.model.document.document import Document
from tests.properties.charts import document

ROOT = Path(__file__).parents[2]

TEXT_MAX = 5_000
"""Characters of a text of the corpus: small ones are fast to read, and each mutation changes a larger part of them."""

RANDOM_CHARTS = 200
"""Random charts that are tried; those whose text is small enough are used."""

SKETCHES = (
    """initial,
a: entry/ do x
  exit/ do y,
b [color="red"] {
  c, d;
  c => d: e [n > 1]/ act;
},
^fork, ]join, final;
initial => a;
a => b: go;
b => final: done # a comment
;
""",
    """p.parallel [label="two"] { one { x -> y: t; }, two { u; }; };
a, h.history, H [type=deephistory];
a -> p: 'odd';
""",
)
"""Texts of smcat that our writer does not write."""

_YAML = re.compile(r"^```yaml[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)


@cache
def documents() -> tuple[Document, ...]:
    """Return every chart of the corpus."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(ROOT.glob("examples/**/*.interlock.yaml"))]
    for page in sorted(ROOT.glob("docs/**/*.md")):
        texts += _YAML.findall(page.read_text(encoding="utf-8"))
    found = [read_text(each, format="yaml", source="<seed>").document for each in texts if len(each) <= TEXT_MAX]
    charts = [each for each in found if each is not None]
    return (*charts, *(document(Random(number)) for number in range(RANDOM_CHARTS)))


@cache
def texts(format: str) -> tuple[str, ...]:
    """Return the corpus of a format. The first texts are those that people wrote."""
    found = list(SKETCHES) if format == "smcat" else []
    for each in documents():
        try:
            text = format_writer(format)(each).text
        except InterlockError:  # a format that cannot express this chart
            continue
        if len(text) <= TEXT_MAX and text not in found:
            found.append(text)
    return tuple(found)


@cache
def words(format: str) -> tuple[str, ...]:
    """Return every word of the corpus of a format, sorted."""
    return tuple(sorted({word for text in texts(format) for word in re.findall(r"[\w.]+", text)}))
