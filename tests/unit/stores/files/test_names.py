"""Directory names of entities: safe, unique, and readable back where they are not cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.errors import UsageError
from interlock.stores.files.names import (
    NAME_BYTES_MAX,
    directory_name,
    entity_of_name,
    is_cut,
    kind_of_name,
    kind_prefix,
    shard_name,
    shard_names,
    tenant_folder,
    tenant_of_name,
    tenant_prefix,
)

HOSTILE = (
    "order/../../etc/passwd",
    "order/..",
    "order/.",
    "order/a/b",
    "order/a\0b",
    "order/~",
    "order/%2e",
    "order/é",
)
TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40)


@pytest.mark.parametrize("entity", HOSTILE)
def test_no_id_is_a_path(entity: str) -> None:
    """A name holds no separator, no NUL, and is neither `.` nor `..`."""
    name = directory_name(entity)

    assert set() == set(name) & {"/", "\0"}
    assert name.strip(".")
    assert entity == entity_of_name(name)


def test_capitals_are_told_apart_where_the_file_system_does_not() -> None:
    """Two ids that differ only in case have names that differ in other bytes."""
    names = {directory_name(entity).lower() for entity in ("order/a-1", "order/A-1", "ORDER/a-1")}

    assert 3 == len(names)


@given(TEXT.filter(lambda text: "/" not in text), TEXT)
def test_names_are_decoded(kind: str, rest: str) -> None:
    """A name that is not cut gives the id, whatever it is."""
    entity = f"{kind}/{rest}"
    try:
        name = directory_name(entity)
    except UsageError:
        return

    assert is_cut(name) or entity == entity_of_name(name)
    assert name.startswith(kind_prefix(kind))


def test_a_long_name_is_cut_and_stays_unique() -> None:
    """The name of an id that is too long ends with a hash of the whole."""
    first, second = (directory_name(f"order/{'Ä' * 90}{end}") for end in "ab")

    assert (233, True, None) == (len(first), is_cut(first), entity_of_name(first))
    assert first != second


@pytest.mark.parametrize("entity", ["", "order", "/x", "order/", "order/" + "x" * 300, "order/\ud800"])
def test_invalid_ids_are_refused(entity: str) -> None:
    """Empty parts, too many bytes, a lone surrogate."""
    with pytest.raises(UsageError) as caught:
        directory_name(entity)

    assert "entity.malformed" == caught.value.code


def test_a_tenant_comes_first_and_is_not_another_s_kind() -> None:
    """The same id of two tenants has two names, and each store decodes its own only."""
    name = directory_name("order/1", tenant="acme")

    assert "acme.order.1" == name
    assert ("order/1", None, None) == (
        entity_of_name(name, tenant="acme"),
        entity_of_name(name),
        entity_of_name("order.1", tenant="acme"),
    )


@pytest.mark.parametrize("tenant", ["acme", "ü" * 60, "ü" * 100])
def test_names_of_a_tenant_start_with_its_prefix(tenant: str) -> None:
    """Cut names too, whether cut in the name of the tenant or after it."""
    name = directory_name("order/1", tenant=tenant)

    assert (True, True) == (name.startswith(tenant_prefix(tenant)), len(name) <= NAME_BYTES_MAX)


@given(TEXT, TEXT.filter(lambda text: "/" not in text), TEXT, st.sampled_from(["", "acme", "Ü.~/1"]))
def test_names_start_as_their_ids_do(prefix: str, kind: str, rest: str, tenant: str) -> None:
    """Cut names too, whether cut before the end of the prefix or after it."""
    try:
        name = directory_name(f"{kind}/{prefix}{rest}", tenant=tenant)
    except UsageError:
        return

    assert name.startswith(kind_prefix(kind, tenant=tenant, id_prefix=prefix))


def test_a_prefix_with_a_lone_surrogate_matches_nothing() -> None:
    """No id has one."""
    assert not directory_name("order/1").startswith(kind_prefix("order", id_prefix="\ud800"))


@given(TEXT | st.just(""), TEXT.filter(lambda text: "/" not in text), TEXT)
def test_a_name_gives_its_tenant_or_nothing(tenant: str, kind: str, rest: str) -> None:
    """Never another's; and always, when it is not cut."""
    try:
        name = directory_name(f"{kind}/{rest}", tenant=tenant)
    except UsageError:
        return

    assert tenant_of_name(name) in ((tenant, None) if is_cut(name) else (tenant,))


@pytest.mark.parametrize(
    ("tenant", "kind", "told"),
    [
        ("Ü.~/1", "order", ("Ü.~/1", "order")),
        ("", "order", (None, "order")),
        ("acme", "ä" * 35, (None, "")),
        ("ä" * 60, "order", (None, "")),
    ],
)
def test_a_cut_name_gives_the_parts_before_the_cut(tenant: str, kind: str, told: tuple[str | None, str]) -> None:
    """A tenant only if the third part has started: two parts may be a kind and its id."""
    name = directory_name(f"{kind}/{'ö' * 60}", tenant=tenant)

    assert (True, *told) == (is_cut(name), tenant_of_name(name), kind_of_name(name, tenant=tenant))


def test_a_cut_name_of_another_tenant_gives_no_kind() -> None:
    """The part in the place of the kind is a tenant's."""
    assert "" == kind_of_name(directory_name(f"order/{'ö' * 60}", tenant="acme"), tenant="other")


@given(tenant=TEXT, other=TEXT)
def test_the_folder_of_a_tenant_is_one_safe_name_of_its_own(tenant: str, other: str) -> None:
    """Also on a file system that ignores case, and it differs from every month."""
    name = tenant_folder(tenant)

    assert set() == set(name) & {"/", "\0", "."}
    assert (tenant == other) == (name.casefold() == tenant_folder(other).casefold())
    assert (True, True) == (name.startswith("tenant-"), len(name) <= NAME_BYTES_MAX)


@pytest.mark.parametrize("name", ["lost+found", ".", "order.", "order.%zz", "order.A", "a.b.c", "a.1~", "a.\udcff"])
def test_foreign_names_are_not_entities(name: str) -> None:
    """An editor's copy, bytes that are not text."""
    assert (None, False) == (entity_of_name(name), is_cut(name))


@pytest.mark.parametrize(
    "name", ["lost+found", "a.b.c.d", "A.order.1", ".order.1", "%zz.order.1", "a.b.\udcff", "a.b.1~"]
)
def test_foreign_names_have_no_tenant(name: str) -> None:
    """Nothing is guessed from files of other programs."""
    assert tenant_of_name(name) is None


def test_every_shard_has_a_directory() -> None:
    """The shard of a name is one of those that are created."""
    assert shard_name("order.1", 2) in shard_names(2)
    assert 256 == len(shard_names(2))
    assert "" == shard_name("order.1", 0)
