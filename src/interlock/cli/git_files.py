"""Definitions in a git repository, by `REVISION:PATH` as git writes them: `HEAD~1:order.yaml`.

Rule 1: a name of an existing file is that file, also if it contains a colon.
Rule 2: git only reads: no filter or other program of the repository's configuration is run on the content.
"""

from __future__ import annotations

import subprocess
from pathlib import Path, PurePosixPath

from interlock.assemble.charts import FORMATS, format_for_text, get_format
from interlock.cli.input import STDIN, Source, read_source
from interlock.errors import NotFoundError, UnavailableError, UsageError
from interlock.model.limits import DEFINITION_STORED_BYTES_MAX

_SECONDS_MAX = 60
"""Time for one call of git. Reading a local object takes milliseconds; a partial clone may have to fetch it."""


def read_revision(name: str, format: str | None = None) -> Source:
    """Return the definition in a file, on stdin, or in a revision of the git repository around the current folder.

    Raises NotFoundError for a missing file, revision or repository, UsageError if the format is not known.
    """
    revision, colon, path = name.partition(":")
    if not colon or not revision or name == STDIN or Path(name).exists():
        return read_source(name, format)
    if format is not None:
        get_format(format)
    data = _read_object(revision, path)
    found = format or format_for_text(PurePosixPath(path).name, data)
    if found is None:
        hint = f"add --from {'|'.join(FORMATS)}"
        raise UsageError(f'the format of "{name}" is not known', code="format.unknown", hint=hint)
    return Source(name=name, data=data, format=found, path=None)


def _read_object(revision: str, path: str) -> bytes:
    """The content of a file in a revision; each step has one reason why it is missing."""
    if revision.startswith("-"):
        raise UsageError(f'invalid revision "{revision}"', code="git.revision", hint="write it like HEAD~1 or a branch")
    if _git("rev-parse", "--git-dir") is None:
        hint = f'there is no file "{revision}:{path}" either'
        raise NotFoundError("the current folder is not in a git repository", code="git.repository", hint=hint)
    if _git("rev-parse", "--verify", "--quiet", f"{revision}^{{tree}}") is None:
        hint = "git log and git branch list them"
        raise NotFoundError(f'unknown git revision "{revision}"', code="git.revision", hint=hint)
    data = _git("cat-file", "blob", f"{revision}:{path}")
    if data is None:
        hint = f"the path starts at the top of the repository; write {revision}:./{path} to start in this folder"
        raise NotFoundError(f'no file "{path}" in git revision "{revision}"', code="git.file", hint=hint)
    return data[: DEFINITION_STORED_BYTES_MAX + 1]


def _git(*arguments: str) -> bytes | None:
    """The output of git; None if it fails. Raises NotFoundError if git is not installed."""
    try:
        done = subprocess.run(  # noqa: S603 - no shell; the revision cannot be an option
            ["git", "--no-optional-locks", *arguments],  # noqa: S607 - the git that the user runs
            capture_output=True,
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=_SECONDS_MAX,
        )
    except FileNotFoundError:
        raise NotFoundError("git is not installed", code="git.missing", hint="name two files instead") from None
    except subprocess.TimeoutExpired:
        message = f"git did not answer within {_SECONDS_MAX} s"
        raise UnavailableError(message, code="git.timeout", hint="try again, or name two files") from None
    return done.stdout if done.returncode == 0 else None
