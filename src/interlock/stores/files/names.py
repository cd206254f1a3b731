"""Names of the file store: an entity id becomes one safe directory name, and never two ids the same.

Rule 1: `[a-z0-9_-]` stays, every other byte is percent-encoded in lower case, capitals too: two ids never meet on a
file system that ignores case, and no id can name `.`, `..` or a path.
Rule 2: a name that would be too long for a file system is cut and ends with `~` and a hash; such an id cannot be
read back from its name.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from urllib.parse import unquote_to_bytes

from interlock.errors import UsageError
from interlock.model.limits import ENTITY_ID_BYTES_MAX

RESOURCES = "resources"
"""The directory of a root that holds the shards, and in them the entities."""
JOURNAL = "events.log"
SNAPSHOT = "state.json"
TEMPORARY = ".tmp-"
"""What follows the name of a file that is being written, before its random part."""
NEXT = ".next-"
"""The same, of a segment that is being made to follow the active one."""

NAME_BYTES_MAX = 240
"""Bytes of a directory name: common file systems take 255."""

_CUT_BYTES = 200
_CUT = re.compile(rf"[a-z0-9_%.-]{{{_CUT_BYTES}}}~[0-9a-f]{{32}}")
_SEALED = re.compile(r"events-(\d{20})\.log")
_UNSAFE = re.compile(rb"[^a-z0-9_-]")


def directory_name(entity: str, *, tenant: str = "") -> str:
    """The directory of an entity `kind/id`. Raises UsageError for an id that no store keeps."""
    kind, _, rest = entity.partition("/")
    try:
        size = len(entity.encode())
    except UnicodeEncodeError:
        raise UsageError("the entity id holds half a surrogate pair", code="entity.malformed") from None
    if not kind or not rest:
        raise UsageError(f"an entity is named `kind/id`, not {entity[:80]!r}", code="entity.malformed")
    if size > ENTITY_ID_BYTES_MAX:
        raise UsageError(f"the entity id has {size} bytes; {ENTITY_ID_BYTES_MAX} are allowed", code="entity.malformed")
    return _cut(".".join(_encoded(part) for part in (tenant, kind, rest) if part))


def tenant_folder(tenant: str) -> str:
    """The folder of a tenant, among others and beside months: no name of a tenant gives `2026-08`."""
    return _cut(f"tenant-{_encoded(tenant)}")


def is_cut(name: str) -> bool:
    """Whether the id cannot be read back from this name."""
    return "~" in name and _CUT.fullmatch(name) is not None


def kind_prefix(kind: str, *, tenant: str = "", beginning: str = "") -> str:
    """How the directory names of a kind begin, those that are cut too; of ids that begin so, if need be."""
    return ("".join(f"{_encoded(part)}." for part in (tenant, kind) if part) + _encoded(beginning))[:_CUT_BYTES]


def tenant_prefix(tenant: str) -> str:
    """How the directory names of a tenant begin, those that are cut too."""
    return f"{_encoded(tenant)}."[:_CUT_BYTES] if tenant else ""


def entity_named(name: str, *, tenant: str = "") -> str | None:
    """The entity of a directory name; None when the name is cut, another tenant's, or none of ours."""
    parts = name.split(".")
    if is_cut(name) or not name.isascii() or len(parts) != (3 if tenant else 2):
        return None
    kind, rest = (unquote_to_bytes(part).decode(errors="replace") for part in parts[-2:])
    entity = f"{kind}/{rest}"
    return entity if kind and rest and directory_name(entity, tenant=tenant) == name else None


def kind_named(name: str, *, tenant: str = "") -> str:
    """The kind that a name tells that was cut behind it; empty when it tells none, or is another tenant's."""
    prefix = tenant_prefix(tenant)
    part, dot, _ = name.removeprefix(prefix).partition(".")
    return _decoded(part) if dot and name.startswith(prefix) else ""


def tenant_named(name: str) -> str | None:
    """Whose entity a directory name tells, empty for nobody's; None when it tells nothing, or is none of ours.

    One that was cut tells it only where its third part has begun: before that, `a.b` may be a tenant's kind or a kind.
    """
    parts = name.split(".")
    if len(parts) == 2:
        return None if entity_named(name) is None else ""
    tenant = _decoded(parts[0]) if len(parts) == 3 and name.isascii() else ""
    return tenant if tenant and (is_cut(name) or entity_named(name, tenant=tenant) is not None) else None


def shard_name(name: str, digits: int) -> str:
    """The shard directory of an entity's directory."""
    return blake2b(name.encode(), digest_size=8).hexdigest()[:digits]


def shard_names(digits: int) -> list[str]:
    """All shard directories."""
    return [f"{number:0{digits}x}" for number in range(16**digits)]


def sealed_name(first: int) -> str:
    """The name of a sealed segment, by the version of its first record."""
    return f"events-{first:020d}.log"


def sealed_first(name: str) -> int | None:
    """The first version of a sealed segment, by its name; None when the name is no sealed segment's."""
    found = _SEALED.fullmatch(name)
    return None if found is None else int(found[1])


def is_leftover(name: str) -> bool:
    """Whether a file was being written by somebody who died."""
    return TEMPORARY in name or NEXT in name


def _cut(name: str) -> str:
    """The name, as long as a file system takes it."""
    if len(name) <= NAME_BYTES_MAX:
        return name
    return f"{name[:_CUT_BYTES]}~{blake2b(name.encode(), digest_size=16).hexdigest()}"


def _encoded(part: str) -> str:
    data = part.encode(errors="surrogatepass")  # half a pair, in what is only looked for: no name has it
    return _UNSAFE.sub(lambda found: b"%%%02x" % found[0][0], data).decode()


def _decoded(part: str) -> str:
    """What was encoded so; empty when nothing was."""
    found = unquote_to_bytes(part).decode(errors="replace")
    return found if _encoded(found) == part else ""
