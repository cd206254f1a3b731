"""The W3C's implementation report plan for SCXML: where its files are, which form of a test we run, how it ended.

The files are data of others and not in this repository: `INTERLOCK_W3C` names their folder, else it is looked for
next to the project.
A test passes when the entity ends in the final state `pass`, on a simulated clock.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interlock.compiler.build import compile_document
from interlock.definition.scxml.format import read_scxml
from interlock.errors import InterlockError
from interlock.expression.language import SAFE, Language
from interlock.kernel.step import Kernel
from interlock.model.document.document import Document
from interlock.testing.simulation import Simulation
from tests.conformance.w3c.macros import expanded
from tests.conformance.w3c.trusted import TrustedLanguage

ROOT = Path(__file__).resolve().parents[3]
VARIABLE = "INTERLOCK_W3C"
PLACES = f"the folder named by {VARIABLE}, and ../shared/conformance/w3c next to the project"

RUN_MS = 60_000
"""The longest delay in the files is 30 s."""

TRUSTED = frozenset({"302", "303", "304", "446", "452", "453", "456", "557", "561"})
"""Tests whose text needs Python itself: scripts, a class, a lambda, `isinstance`, XML objects."""

NEUTRAL = {
    "240": "the Python form targets a state that is not there",
    "352": "the Python form contradicts 198 and 253 on origintype",
    "509": "the Python form holds a JavaScript guard",
    "525": "the Python form adds a string to a list",
}
"""Tests taken from the neutral form, because the Python form is wrong."""


UNBOUND = frozenset({"277", "280", "436"})
"""Neutral forms that ask whether a name is bound, which a bare name cannot say, or that need another datamodel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One test of the plan: its files in the form we run, and how they are run."""

    id: str
    spec: str
    profile: str
    mandatory: bool
    manual: bool
    form: str
    files: tuple[str, ...]

    @property
    def group(self) -> str:
        """What it counts for: mandatory, optional, http, or manual."""
        if self.manual:
            return "manual"
        if self.profile == "basic-http":
            return "http"
        return "mandatory" if self.mandatory else "optional"

    @property
    def evaluator(self) -> str:
        """Whose expressions it needs."""
        return "trusted" if self.id in TRUSTED else "safe"


def data_folder() -> Path | None:
    """The folder of the test files, or None when it is in neither place."""
    named = os.environ.get(VARIABLE)
    folders = [Path(named)] if named else [ROOT.parent / "shared" / "conformance" / "w3c"]
    return next((each for each in folders if (each / "manifest.json").is_file()), None)


def cases(folder: Path) -> tuple[Case, ...]:
    """Every test of the plan, by number."""
    tests = json.loads((folder / "manifest.json").read_text())["tests"]
    return tuple(sorted((_case(each) for each in tests), key=lambda each: (int(each.id), each.id)))


def _case(test: dict[str, Any]) -> Case:
    form = "txml" if test["id"] in NEUTRAL else "null" if test["null"] else "python"
    return Case(
        id=test["id"],
        spec=test["spec"],
        profile=test["profile"],
        mandatory=test["conformance"] == "mandatory",
        manual=test["manual"],
        form=form,
        files=tuple(test["start"] if form == "txml" else test[form]),
    )


def verdict(folder: Path, case: Case) -> str | None:
    """None when every file of a test passes, else what happened instead."""
    for name in case.files:
        problem = file_verdict(folder, f"{case.form}/{name}", TrustedLanguage() if case.id in TRUSTED else SAFE)
        if problem is not None:
            return f"{name}: {problem}"
    return None if case.files else "no file in this form"


def file_verdict(
    folder: Path, name: str, language: Language, rewrite: Callable[[Document], str] | None = None
) -> str | None:
    """None when one file passes, else what happened instead."""
    try:
        simulation, entity = simulated(folder, name, language, rewrite=rewrite)
    except InterlockError as error:
        return str(error).splitlines()[0]
    ended = simulation.snapshots[entity].configuration
    return None if ended == ("pass",) else f"ended in {', '.join(ended) or 'no state'}"


def simulated(
    folder: Path, name: str, language: Language = SAFE, *, rewrite: Callable[[Document], str] | None = None
) -> tuple[Simulation, str]:
    """The simulation after a file has run, and its entity. `rewrite` gives another text for the document it means."""
    path = folder / name

    def resolved(src: str) -> str:
        return definition(path.parent / src.removeprefix("file:").replace(".scxml", path.suffix))

    def kernel(text: str, source: str) -> Kernel:
        document = read_document(text, source, resolved)
        if rewrite is not None:
            document = read_document(rewrite(document), source, resolved)
        compilation = compile_document(document, language=language)
        if compilation.chart is None:
            raise InterlockError(str(next(each for each in compilation.diagnostics if each.severity == "error")))
        return Kernel(compilation.chart, language=language)

    def computed(src: str) -> Kernel:
        return kernel(resolved(src) if src.startswith("file:") else src, src[:40])

    simulation = Simulation(kernel(definition(path), path.name), compile=computed)
    entity = f"test/{path.stem}"
    simulation.create(entity)
    simulation.run(RUN_MS)
    return simulation, entity


def read_document(text: str, source: str, resolved: Callable[[str], str]) -> Document:
    """The document of a text. Raises InterlockError when there is none."""
    reading = read_scxml(text, source=source, loader=resolved)
    if reading.document is None:
        raise InterlockError(str(reading.diagnostics[0]))
    return reading.document


def definition(path: Path) -> str:
    """The text of a test file, its macros expanded where it has some."""
    text = path.read_text()
    return expanded(text) if path.suffix == ".txml" else text


def neutral_files(folder: Path, case: Case) -> tuple[str, ...]:
    """The same test in the neutral form, a second reading of what it asks for; none where that has no meaning."""
    if case.group != "mandatory" or case.id in UNBOUND:
        return ()
    tests = json.loads((folder / "manifest.json").read_text())["tests"]
    names = next(each["start"] for each in tests if each["id"] == case.id)
    return tuple(f"txml/{each}" for each in names)
