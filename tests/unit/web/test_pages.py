"""The static files: size, safety, imports, contrast and addresses."""

import re
from importlib.resources import files

import pytest

from interlock.web.pages import ADDRESSES, SHELL, static_files
from tests.unit.web.consoles import open_console

BYTES_MAX = 52 * 1024
CONTRAST_MIN = 4.5
FILES = static_files()
SCRIPTS = sorted(name for name in FILES if name.endswith(".js"))


def source(name: str) -> str:
    """Return the text of a static file."""
    return (files("interlock.web") / "static" / name).read_text(encoding="utf-8")


def test_static_files_are_small() -> None:
    assert sum(len(each.compressed) for each in FILES.values()) <= BYTES_MAX


@pytest.mark.parametrize("name", SCRIPTS)
def test_no_script_parses_text_as_markup(name: str) -> None:
    banned = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|setAttribute\(\"on"

    assert [] == re.findall(banned, source(name))


@pytest.mark.parametrize("name", SCRIPTS)
def test_attributes_are_passed_by_attrs(name: str) -> None:
    text = re.sub(r"/\*.*?\*/", "", source(name), flags=re.DOTALL)
    bare = re.findall(r"(?<![\w.$])h\(\s*(?:\"[^\"]*\"|\w+)\s*,\s*\{", text)
    computed = re.findall(r"(?<![\w.$])attrs\((?!\{)[^)]*\)", text)

    assert ([], []) == (bare, computed)


@pytest.mark.parametrize("name", SCRIPTS)
def test_no_string_of_a_script_spans_lines(name: str) -> None:
    assert [] == [line for line in source(name).splitlines() if line.count("`") % 2]


def test_shell_has_no_inline_script_or_style() -> None:
    text = source(SHELL)

    assert [] == re.findall(r"\son\w+=|style=|<style|<script(?![^>]*\bsrc=)", text)
    assert [] == re.findall(r"https?://", text)


def test_no_file_refers_to_another_host() -> None:
    found = {
        address
        for name in FILES
        for address in re.findall(r"https?://[\w./-]+", source(name))
        if address != "http://www.w3.org/2000/svg"
    }

    assert set() == found


def test_every_import_exists_and_every_file_is_used() -> None:
    named = {each for name in FILES for each in re.findall(r"/static/([\w./]+)", source(name))}

    assert set() == named - set(FILES)
    assert {SHELL} == set(FILES) - named


def test_every_imported_name_is_exported() -> None:
    exported = {
        name: set(re.findall(r"^export (?:async )?(?:function|const|let|class) (\w+)", source(name), re.MULTILINE))
        for name in SCRIPTS
    }
    wrong = [
        f"{name}: {one} of {target}"
        for name in SCRIPTS
        for names, target in re.findall(r"import \{([^}]+)\} from \"/static/([\w./]+)\"", source(name))
        for one in (each.strip() for each in names.split(","))
        if one and one not in exported[target]
    ]

    assert [] == wrong


def test_every_imported_name_is_used() -> None:
    unused = []
    for name in SCRIPTS:
        text = source(name)
        for names, _ in re.findall(r"import \{([^}]+)\} from \"/static/([\w./]+)\"", text):
            body = re.sub(r"import \{[^}]+\} from \"[^\"]+\";", "", text)
            unused += [
                f"{name}: {one}"
                for one in (each.strip() for each in names.split(","))
                if not re.search(rf"\b{one}\b", body)
            ]

    assert [] == unused


@pytest.mark.parametrize("place", ADDRESSES)
async def test_every_page_address_returns_the_shell(place: str) -> None:
    address = place.replace("{kind}", "order").replace("{entity:path}", "order/A/1")
    async with open_console() as client:
        response = await client.http.get(address)

    assert (200, "text/html; charset=utf-8") == (response.status_code, response.headers["content-type"])


async def test_unchanged_file_is_not_sent_again() -> None:
    async with open_console() as client:
        first = await client.http.get("/static/main.js")
        again = await client.http.get("/static/main.js", headers={"If-None-Match": first.headers["etag"]})
        plain = await client.http.get("/static/main.js", headers={"Accept-Encoding": "identity"})

    assert "gzip" == first.headers["content-encoding"]
    assert (304, b"") == (again.status_code, again.content)
    assert first.content == plain.content


# Colours


def tokens() -> dict[str, dict[str, str]]:
    """Return the colours of both themes."""
    found = re.findall(r"--([\w-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)", source("app.css"))
    return {"light": {name: light for name, light, _ in found}, "dark": {name: dark for name, _, dark in found}}


def luminance(colour: str) -> float:
    """Return the relative luminance of a colour, as WCAG 2.2 defines it."""
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours, from 1 to 21."""
    bright, dim = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


TEXTS = ("text", "muted", "accent", "good", "warn", "bad", "guard", "action")
PAIRS = [
    *[(text, ground) for text in TEXTS for ground in ("card", "bg")],
    *[(text, "soft") for text in ("text", "muted")],
    *[(text, f"{text}-soft") for text in ("accent", "good", "warn", "bad")],
    ("on-accent", "accent"),
    ("bg", "text"),
]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(("text", "ground"), PAIRS)
def test_colours_have_enough_contrast(theme: str, text: str, ground: str) -> None:
    colours = tokens()[theme]

    assert contrast(colours[text], colours[ground]) >= CONTRAST_MIN


@pytest.mark.parametrize("path", ["/nowhere", "/k", "/k/order/nowhere", "/%F0%9F%8E%89", "/<script>"])
async def test_unknown_page_address_returns_the_shell_with_404(path: str) -> None:
    async with open_console() as client:
        response = await client.http.get(path)
        again = await client.http.get(path, headers={"If-None-Match": FILES[SHELL].tag})

    assert (404, "text/html; charset=utf-8", "no-store") == (
        response.status_code,
        response.headers["content-type"],
        response.headers["cache-control"],
    )
    assert FILES[SHELL].plain == response.content
    assert 404 == again.status_code


@pytest.mark.parametrize("path", ["/api", "/api/v1/nowhere", "/api/v2/kinds", "/static/", "/static/a/b"])
async def test_unknown_api_path_is_a_problem(path: str) -> None:
    async with open_console() as client:
        response = await client.http.get(path, headers={"Accept": "text/html"})

    assert (404, "path.unknown") == (response.status_code, response.json()["code"])


async def test_write_to_an_unknown_page_is_a_problem() -> None:
    async with open_console() as client:
        response = await client.http.post("/nowhere")

    assert (404, "path.unknown") == (response.status_code, response.json()["code"])
