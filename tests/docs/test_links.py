"""Links inside the project resolve, and every page is reachable."""

from pathlib import Path

import pytest
import yaml

from tests.docs.pages import anchors, links, pages
from tests.tidy.tracked import ROOT, markdown_files, name

DOCS = ROOT / "docs"


@pytest.mark.parametrize("page", markdown_files(), ids=name)
def test_links_resolve(page: Path) -> None:
    broken = []
    for link in links(page):
        target, _, fragment = link.partition("#")
        file = (page.parent / target).resolve() if target else page
        if not file.exists() or (fragment and file.suffix == ".md" and fragment not in anchors(file)):
            broken.append(link)

    assert [] == broken


def test_every_page_of_the_docs_is_reachable() -> None:
    reachable = set(_navigation())
    for page in pages():
        reachable |= {(page.parent / link.partition("#")[0]).resolve() for link in links(page)}
    lost = [name(page) for page in pages() if page.is_relative_to(DOCS) and page not in reachable]

    assert [] == lost


def test_the_navigation_names_existing_pages() -> None:
    assert [] == [name(page) for page in _navigation() if not page.is_file()]


def _navigation() -> list[Path]:
    class Loader(yaml.SafeLoader):
        """Reads mkdocs.yml and ignores its `!!python/name` tags."""

    Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)
    settings = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader)
    return list(_targets(settings["nav"]))


def _targets(entry: object) -> list[Path]:
    if isinstance(entry, str):
        return [(DOCS / entry).resolve()]
    children = entry.values() if isinstance(entry, dict) else entry if isinstance(entry, list) else []
    return [target for child in children for target in _targets(child)]
