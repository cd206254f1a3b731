"""Names of the file store: each entity id has its own safe directory name.

Rule 1: `[a-z0-9_-]` is kept, every other byte is percent-encoded in lower case, capitals too: two ids have different
names also on a file system that ignores case, and no id gives `.`, `..` or a path.
Rule 2: a name that is too long for a file system is cut and ends with `~` and a hash; the id cannot be decoded from it.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from urllib.parse import unquote_to_bytes

from interlock.errors import UsageError
from interlock.model.limits import ENTITY_ID_BYTES_MAX

FORMAT_NEWEST = 1
"""The newest format of file stores that this release knows."""

FORMAT_FILE = "format.json"
FORMAT_BYTES_MAX = 4_096
"""Bytes of `format.json` that are read: it has a hundred."""

RESOURCES = "resources"
"""The directory of a root that contains the shards, and in them the entities."""
JOURNAL = "events.log"
SNAPSHOT = "state.json"
TEMPORARY = ".tmp-"
"""Follows the name of a file that is being written, before its random part."""
NEXT = ".next-"
"""Follows the name of a segment that is being written, before its random part."""
REMOVED = "#pruned"
"""Follows the name of an entity's directory whose files retention removes: `#` is in no name of an entity."""

NAME_BYTES_MAX = 240
"""Bytes of a directory name: common file systems allow 255."""

_CUT_BYTES = 200
_CUT = re.compile(rf"[a-z0-9_%.-]{{{_CUT_BYTES}}}~[0-9a-f]{{32}}")
_SEALED = re.compile(r"events-(\d{20})\.log")
_BASE = re.compile(r"base-(\d{20})\.json")
_UNSAFE = re.compile(rb"[^a-z0-9_-]")


def directory_name(entity: str, *, tenant: str = "") -> str:
    """The directory name of an entity `kind/id`. Raises UsageError for an invalid id."""
    kind, _, rest = entity.partition("/")
    try:
        size = len(entity.encode())
    except UnicodeEncodeError:
        raise UsageError("the entity id contains a lone surrogate", code="entity.malformed") from None
    if not kind or not rest:
        raise UsageError(f"expected an entity id such as `kind/id`, got {entity[:80]!r}", code="entity.malformed")
    if size > ENTITY_ID_BYTES_MAX:
        raise UsageError(f"the entity id has {size} bytes; {ENTITY_ID_BYTES_MAX} are allowed", code="entity.malformed")
    return _cut(".".join(_encode(part) for part in (tenant, kind, rest) if part))


def definition_folder(kind: str) -> str:
    """The folder of the definitions of a kind."""
    return _cut(_encode(kind))


def tenant_folder(tenant: str) -> str:
    """The folder of a tenant in an archive; it differs from the name of every month, such as `2026-08`."""
    return _cut(f"tenant-{_encode(tenant)}")


def is_cut(name: str) -> bool:
    """Whether this name was cut, so that the id cannot be decoded from it."""
    return "~" in name and _CUT.fullmatch(name) is not None


def kind_prefix(kind: str, *, tenant: str = "", id_prefix: str = "") -> str:
    """The common prefix of the directory names of a kind, or of those of its ids with a prefix; cut names included."""
    return ("".join(f"{_encode(part)}." for part in (tenant, kind) if part) + _encode(id_prefix))[:_CUT_BYTES]


def tenant_prefix(tenant: str) -> str:
    """The common prefix of the directory names of a tenant; cut names included."""
    return f"{_encode(tenant)}."[:_CUT_BYTES] if tenant else ""


def entity_of_name(name: str, *, tenant: str = "") -> str | None:
    """The entity of a directory name; None when the name is cut, another tenant's, or not that of an entity."""
    parts = name.split(".")
    if is_cut(name) or not name.isascii() or len(parts) != (3 if tenant else 2):
        return None
    kind, rest = (unquote_to_bytes(part).decode(errors="replace") for part in parts[-2:])
    entity = f"{kind}/{rest}"
    return entity if kind and rest and directory_name(entity, tenant=tenant) == name else None


def kind_of_name(name: str, *, tenant: str = "") -> str:
    """The kind in a cut directory name; empty when the kind itself was cut, or the name is another tenant's."""
    prefix = tenant_prefix(tenant)
    part, dot, _ = name.removeprefix(prefix).partition(".")
    return _decode(part) if dot and name.startswith(prefix) else ""


def tenant_of_name(name: str) -> str | None:
    """The tenant in a directory name, empty for none; None when it is unknown, or the name is not that of an entity.

    A cut name has it only if its third part has started: before that, `a.b` may be a tenant's kind or a kind.
    """
    parts = name.split(".")
    if len(parts) == 2:
        return None if entity_of_name(name) is None else ""
    tenant = _decode(parts[0]) if len(parts) == 3 and name.isascii() else ""
    return tenant if tenant and (is_cut(name) or entity_of_name(name, tenant=tenant) is not None) else None


def shard_name(name: str, digits: int) -> str:
    """The shard directory of an entity's directory."""
    return blake2b(name.encode(), digest_size=8).hexdigest()[:digits]


def shard_names(digits: int) -> list[str]:
    """All shard directories."""
    return [f"{number:0{digits}x}" for number in range(16**digits)]


def sealed_name(first: int) -> str:
    """The file name of a sealed segment whose first record has this version."""
    return f"events-{first:020d}.log"


def segment_first_version(name: str) -> int | None:
    """The first version of the sealed segment with this file name; None for any other name."""
    found = _SEALED.fullmatch(name)
    return None if found is None else int(found[1])


def base_name(version: int) -> str:
    """The file name of the snapshot of the version after which a compacted journal starts."""
    return f"base-{version:020d}.json"


def base_version(name: str) -> int | None:
    """The version of such a file name; None for any other name."""
    found = _BASE.fullmatch(name)
    return None if found is None else int(found[1])


def is_leftover(name: str) -> bool:
    """Whether a file is a temporary one, left by a writer that died."""
    return TEMPORARY in name or NEXT in name


def _cut(name: str) -> str:
    """The name, cut to what a file system allows."""
    if len(name) <= NAME_BYTES_MAX:
        return name
    return f"{name[:_CUT_BYTES]}~{blake2b(name.encode(), digest_size=16).hexdigest()}"


def _encode(part: str) -> str:
    data = part.encode(errors="surrogatepass")  # a lone surrogate in a search prefix: no name has it
    return _UNSAFE.sub(lambda found: b"%%%02x" % found[0][0], data).decode()


def _decode(part: str) -> str:
    """The decoded text; empty when this is not an encoding."""
    found = unquote_to_bytes(part).decode(errors="replace")
    return found if _encode(found) == part else ""
