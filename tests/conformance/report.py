"""Runs the published suites and our own semantic suite, writes docs/conformance.md, and ends with one line of counts.

Exit code 1 when a mandatory test fails, when fewer than 20 optional ones pass, when our own suite fails, or when the
files of the W3C are absent: a run that proved nothing must not look like one that did.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from tests.conformance.w3c.suite import (  # noqa: E402  # the paths above come first
    NEUTRAL,
    PLACES,
    Case,
    cases,
    data_folder,
    verdict,
)

PAGE = ROOT / "docs" / "conformance.md"
SEMANTICS = ROOT / "tests" / "conformance" / "semantics"
MANDATORY, OPTIONAL, OPTIONAL_MIN, HTTP = 158, 22, 20, 11
ANCHOR = "https://www.w3.org/Voice/2013/scxml-irp/"


def main() -> int:
    """Run everything; 0 when the bars are met."""
    folder = data_folder()
    if folder is None:
        print(f"conformance: SKIPPED, no W3C files; looked for {PLACES}", file=sys.stderr)
        return 1
    results = [(case, None if case.manual else verdict(folder, case)) for case in cases(folder)]
    for case, problem in results:
        if problem is not None and case.group != "http":
            print(f"{case.group} test {case.id} fails: {problem}")
    passed = Counter(case.group for case, problem in results if problem is None)
    line = (
        f"conformance: mandatory {passed['mandatory']}/{MANDATORY}, "
        f"optional {passed['optional']}/{OPTIONAL}, http {passed['http']}/{HTTP}"
    )
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(results, line))
    own, own_fine = semantics()
    print(own)
    print(line)
    return 0 if passed["mandatory"] == MANDATORY and passed["optional"] >= OPTIONAL_MIN and own_fine else 1


def semantics() -> tuple[str, bool]:
    """The project's own suite, when it is there: a sentence about it, and whether it is fine."""
    if not SEMANTICS.is_dir():
        return "semantics: no suite of ours here", True
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", str(SEMANTICS)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    counts = re.findall(r"\d+ (?:passed|failed|skipped|errors?)", done.stdout)
    if done.returncode != 0:
        print(done.stdout)
    return f"semantics: {', '.join(counts) or 'nothing ran'}", done.returncode == 0


def page(results: list[tuple[Case, str | None]], line: str) -> str:
    """The page of results: facts only, no text of the tests."""
    rows = [row(case, problem) for case, problem in results]
    manual = ", ".join(case.id for case, _ in results if case.manual)
    neutral = "\n".join(f"- {name}: {reason}." for name, reason in NEUTRAL.items())
    return f"""# Conformance

Written by `make conformance`; do not edit.

    {line}

Every automatic test of the [W3C SCXML 1.0 implementation report plan]({ANCHOR}), run on a simulated clock.
A test passes when the entity ends in the final state `pass`.
The test files belong to the W3C and others and are not part of this repository.

- **form**: `python` is the published form with Python expressions, `null` the one for the null datamodel, `neutral` the
  W3C's own with its macros expanded by us.
- **evaluator**: `safe` is the expression language that users have; `trusted` is Python itself, in the tests only.
- BasicHTTP: there is no HTTP event processor; what passes does so without one. Test 201 (optional) asks for one too.
- Manual tests, to be read by a person and not counted: {manual}.

Taken from the neutral form because the Python form is wrong:

{neutral}

| test | section | counts as | form | evaluator | result |
|---|---|---|---|---|---|
{chr(10).join(rows)}
"""


def row(case: Case, problem: str | None) -> str:
    """One test as a row of the table."""
    form = {"txml": "neutral"}.get(case.form, case.form)
    result = "by a person" if case.manual else "pass" if problem is None else "**fail**"
    cells = [case.id, case.spec, case.group, "" if case.manual else form, "" if case.manual else case.evaluator, result]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
