"""Run the benchmarks: print tables and goals, write the results as JSON, and write the page of the documentation.

    python bench/run.py                      all suites; many minutes on an idle machine
    python bench/run.py --quick              a smoke run: tiny sizes, no goal is checked
    python bench/run.py --only durable       one suite: SUITES
    python bench/run.py --only W7,interlock  some workloads and lines of the in-process suite
    python bench/run.py --only durable,fleet,interlock,raw    some of another suite
    python bench/run.py --page-only          write the page again from the newest results

A name of `--only` selects everything that starts with it. The exit code is 0 even if a goal is missed, because the
machine may be busy; with `--judge` it is 1 if a goal is missed or, in a whole run, was not measured. A line that does
not start is reported and left out. A partial run is stored, but never shown on the page.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from bench import report, results  # noqa: E402  # the paths above come first
from bench.durable.suite import DURABLE  # noqa: E402  # as above
from bench.evolve.suite import EVOLVE  # noqa: E402  # as above
from bench.finding.suite import FINDING  # noqa: E402  # as above
from bench.http.suite import HTTP  # noqa: E402  # as above
from bench.inprocess.suite import IN_PROCESS  # noqa: E402  # as above
from bench.measure import Measurement, selects  # noqa: E402  # as above
from bench.measure import report as progress  # noqa: E402  # as above
from bench.metrics.suite import METRICS  # noqa: E402  # as above
from bench.pages.suite import PAGES  # noqa: E402  # as above
from bench.shm.suite import SHARED_MEMORY  # noqa: E402  # as above
from bench.suite import Suite  # noqa: E402  # as above
from bench.timers.suite import TIMERS  # noqa: E402  # as above
from bench.traces.suite import TRACES  # noqa: E402  # as above
from bench.wakeups.suite import WAKEUPS  # noqa: E402  # as above

SUITES = {
    each.name: each
    for each in (IN_PROCESS, DURABLE, SHARED_MEMORY, TIMERS, WAKEUPS, EVOLVE, FINDING, METRICS, TRACES, HTTP, PAGES)
}
"""Every suite, in the order in which a whole run measures them."""


def main(arguments: list[str] | None = None) -> int:
    """Measure, store and print."""
    options = parse(arguments)
    folder = Path(options.results)
    missed = False
    if not options.page_only:
        for suite, names in chosen(options.only):
            missed |= suite.is_missed(_measure(suite, names, options, folder))
    newest = [(suite, run) for suite in SUITES.values() if (run := results.newest(folder, suite.name)) is not None]
    if newest:
        Path(options.page).write_text(report.page(newest), encoding="utf-8")
    elif options.page_only:
        progress("bench: there are no results to write a page from")
        return 2
    return 1 if options.judge and missed else 0


def chosen(only: str) -> list[tuple[Suite, list[str]]]:
    """Return the suites that `--only` selects, and the names within each; no names select the whole suite.

    Without the name of a suite, the names belong to the in-process suite. Raises SystemExit for an unknown name.
    """
    names = [name.strip() for name in only.split(",") if name.strip()]
    if not names:
        return [(suite, []) for suite in SUITES.values()]
    suite = next((SUITES[name] for name in names if name in SUITES), IN_PROCESS)
    names = [name for name in names if name != suite.name]
    for name in names:
        if not any(selects(name, each) for each in suite.choices):
            raise SystemExit(
                f"bench: unknown name {name!r} in the suite {suite.name}; known: {', '.join(suite.choices)}"
            )
    return [(suite, names)]


def _measure(suite: Suite, names: list[str], options: argparse.Namespace, folder: Path) -> results.Run:
    load_before = os.getloadavg()[0]
    effort = suite.efforts[options.quick]
    if options.rounds is not None:
        effort = dataclasses.replace(effort, rounds=options.rounds)
    measurement = Measurement(names=names, effort=effort)
    progress(f"bench: {suite.name} ...")
    suite.run(measurement)
    run = measurement.run(suite.name, quick=options.quick, load_before=load_before)
    print(report.text(suite, run))
    progress(f"bench: wrote {results.write(run, folder).name}")
    return run


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    description = (__doc__ or "").replace("SUITES", ", ".join(SUITES))
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny sizes; no goal is checked")
    parser.add_argument("--only", default="", metavar="NAMES", help="a suite, workloads and lines, separated by commas")
    parser.add_argument("--rounds", type=_positive, metavar="N", help="samples per figure; 5 by default")
    parser.add_argument("--judge", action="store_true", help="exit with 1 if a goal is missed")
    parser.add_argument("--page-only", action="store_true", help="measure nothing; write the page from stored results")
    parser.add_argument("--results", default=ROOT / "bench" / "results", metavar="FOLDER")
    parser.add_argument("--page", default=ROOT / "docs" / "benchmarks.md", metavar="FILE")
    return parser.parse_args(arguments)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


if __name__ == "__main__":
    sys.exit(main())
