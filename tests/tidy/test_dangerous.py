"""Code that runs text, starts programs, reads pickles or speaks to the network: in the modules below, and nowhere else.

ruff's rules `S` (bandit) report each use; a suppression there is one line. This list is the whole picture: what exists,
where, and why. And secrets are compared in constant time.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

from tests.tidy.tracked import modules, read

IMPORTS: dict[str, dict[str, str]] = {
    "pickle": {},
    "marshal": {},
    "shelve": {},
    "dill": {},
    "requests": {},
    "aiohttp": {},
    "httpx": {},
    "urllib.request": {},
    "urllib3": {},
    "ftplib": {},
    "smtplib": {},
    "telnetlib": {},
    "xml.etree": {},
    "xml.dom": {},
    "xml.sax": {},
    "lxml": {},
    "http.client": {
        "interlock.buses.webhook": "sends messages to addresses that the guard has checked",
        "interlock.trust.jwks": "reads the keys of an issuer that the key file names",
    },
    "subprocess": {
        "interlock.cli.git_files": "reads an old revision of a definition with git; no shell",
        "interlock.trust.keyrings": "the operator's own command that prints the master keys; no shell",
    },
    "os.system": {},
    "pty": {},
}
"""Modules, and our modules that may import them, with the reason."""

CALLS: dict[str, dict[str, str]] = {
    "eval": {"interlock.expression.codegen": "code of a checked syntax tree, without builtins"},
    "exec": {
        "interlock.kernel.codegen": "functions that we generate",
        "interlock.kernel.compiled.compiler": "functions that we generate",
        "interlock.assemble.mappings": "a Python file that the caller names, as an import would run it",
    },
    "__import__": {},
    "os.system": {},
    "os.popen": {},
    "os.execv": {},
    "yaml.load": {},
    "yaml.unsafe_load": {},
    "yaml.full_load": {},
    "yaml.safe_load": {},
    "tempfile.mktemp": {},
    "ssl._create_unverified_context": {},
    "hashlib.md5": {},
    "hashlib.sha1": {},
}
"""Calls, and our modules that may make them, with the reason."""

SECRETS = frozenset({"csrf", "token", "secret", "signature", "mac", "wanted", "link", "password", "api_key"})
"""Names of values that are compared with what a stranger sends."""

COMPARING_PACKAGES = ("interlock.web", "interlock.trust", "interlock.buses")

PUBLIC_COMPARISONS: dict[str, str] = {
    "interlock.trust.issuers: given != wanted": "a claim of a token whose signature was verified",
    "interlock.trust.sealing: token == ERASED": "the word that replaces erased values",
    "interlock.web.key_file_watcher: signature == self._signature": "size and times of a file, not a signature",
}
"""`module: expression` of comparisons that look like one of a secret and are not, with the reason."""


Nodes = tuple[ast.AST, ...]


def nodes(text: str) -> Nodes:
    """All nodes of the syntax tree of a module that some check looks at."""
    wanted = ast.Import | ast.ImportFrom | ast.Call | ast.Compare
    return tuple(each for each in ast.walk(ast.parse(text)) if isinstance(each, wanted))


def imported(nodes: Nodes) -> Iterator[str]:
    """Every name that a module imports, in full."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{each.name}" for each in node.names)


def calls(nodes: Nodes) -> Iterator[str]:
    """Every name that a module calls."""
    return (ast.unparse(each.func) for each in nodes if isinstance(each, ast.Call))


def shells(nodes: Nodes) -> Iterator[int]:
    """The lines of calls with `shell=` that is not False."""
    for node in nodes:
        if not isinstance(node, ast.Call):
            continue
        for each in node.keywords:
            if each.arg == "shell" and not (isinstance(each.value, ast.Constant) and each.value.value is False):
                yield node.lineno


def compared_secrets(nodes: Nodes) -> Iterator[str]:
    """Comparisons with == or != in which one side is named like a secret, and the other is not a constant."""
    for node in nodes:
        if not isinstance(node, ast.Compare) or not isinstance(node.ops[0], ast.Eq | ast.NotEq):
            continue
        sides = (node.left, node.comparators[0])
        names = {each.attr if isinstance(each, ast.Attribute) else getattr(each, "id", "") for each in sides}
        if names & SECRETS and not any(isinstance(each, ast.Constant) for each in sides):
            yield ast.unparse(node)


@cache
def parsed() -> tuple[tuple[str, Nodes], ...]:
    """Every module of the package with its nodes."""
    return tuple((module, nodes(read(path) or "")) for module, path in modules().items())


def test_the_checks_find_what_they_are_for() -> None:
    bad = nodes(
        "import pickle, http.client\nfrom urllib import request\nsubprocess.run('x', shell=True)\n"
        "eval('1')\nyaml.load(x)\nif session.csrf == given: pass\n"
    )

    assert {"pickle", "http.client", "urllib.request"} <= set(imported(bad))
    assert {"eval", "yaml.load"} <= set(calls(bad))
    assert [3] == list(shells(bad))
    assert ["session.csrf == given"] == list(compared_secrets(bad))


def test_only_listed_modules_import_what_is_dangerous() -> None:
    found = [
        f"{module} imports {name}"
        for module, found_nodes in parsed()
        for name in set(imported(found_nodes)) & IMPORTS.keys()
        if module not in IMPORTS[name]
    ]

    assert [] == found


def test_only_listed_modules_call_what_is_dangerous() -> None:
    found = [
        f"{module} calls {name}"
        for module, found_nodes in parsed()
        for name in set(calls(found_nodes)) & CALLS.keys()
        if module not in CALLS[name]
    ]

    assert [] == found


def test_no_program_is_started_by_a_shell() -> None:
    assert [] == [f"{module}:{line}" for module, found_nodes in parsed() for line in shells(found_nodes)]


def test_every_listed_module_still_needs_its_entry() -> None:
    known = dict(parsed())
    listed = {(module, name) for table in (IMPORTS, CALLS) for name, places in table.items() for module in places}
    found = {(module, name) for module, name in listed if name in {*imported(known[module]), *calls(known[module])}}

    assert listed == found


def test_secrets_are_compared_in_constant_time() -> None:
    found = [
        f"{module}: {text}"
        for module, found_nodes in parsed()
        if module.startswith(COMPARING_PACKAGES)
        for text in compared_secrets(found_nodes)
    ]

    assert sorted(PUBLIC_COMPARISONS) == sorted(found)
