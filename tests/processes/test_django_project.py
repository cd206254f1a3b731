"""A Django project with `interlock.contrib.django`: real processes, on SQLite and on PostgreSQL."""

from __future__ import annotations

import itertools
import shutil
import signal
import socket
from pathlib import Path
from typing import Any

import httpx
import pytest

from interlock.stores.sql.schema import newest_schema
from tests.support.django_project import DjangoProject, project_on_postgres, project_on_sqlite
from tests.support.eventually import PATIENCE_SECONDS, eventually_blocking
from tests.support.postgres_server import database_or_skip

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("django")]  # one worker migrates for all

ORDER = """
from decimal import Decimal
from django.db import connection, transaction
from interlock import ConflictError, NotFoundError, RejectedError, UsageError
from interlock.contrib.django.runtimes import close_runtimes, runtime
from shop.models import Order, Payment

def new_order():
    with transaction.atomic():
        order = Order.objects.create(amount=Decimal("19.90"))
        order.create_entity({"amount": order.amount})
    return order
"""

WSGI = """
from django.core.wsgi import get_wsgi_application

application = get_wsgi_application()
"""

ASGI = WSGI.replace("wsgi", "asgi")


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> str:
    """Which database the projects of a test use."""
    kind: str = request.param
    return kind


@pytest.fixture(scope="module")
def migrated(database: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[DjangoProject, str]:
    """The project of the page with its tables, and the address of its database: copied for each test."""
    folder, url = tmp_path_factory.mktemp("migrated"), ""
    if database == "sqlite":
        project = project_on_sqlite(folder)
    else:
        url = database_or_skip()
        project = project_on_postgres(folder, url)
    project.migrate()
    return project, url


@pytest.fixture
def unmigrated(database: str, tmp_path: Path) -> DjangoProject:
    """The project of the page, before its first `migrate`."""
    if database == "sqlite":
        return project_on_sqlite(tmp_path)
    return project_on_postgres(tmp_path, database_or_skip())


@pytest.fixture
def project(migrated: tuple[DjangoProject, str], tmp_path: Path) -> DjangoProject:
    """The project of the page, with its tables."""
    original, url = migrated
    shutil.copytree(original.folder, tmp_path, dirs_exist_ok=True)
    if not url:
        return DjangoProject(folder=tmp_path)
    return project_on_postgres(tmp_path, database_or_skip(like=url))


def test_without_migrate_the_error_names_the_command(unmigrated: DjangoProject) -> None:
    code = """
try:
    runtime()
except UsageError as error:
    answer([error.code, error.hint])
except NotFoundError as error:
    answer([error.code, error.hint])
"""
    found, hint = unmigrated.answer(ORDER + code)

    assert found in {"schema.older", "store.not_found"}
    assert "python manage.py migrate interlock" in hint


def test_the_tests_of_the_page_pass_and_leave_no_database(project: DjangoProject) -> None:
    ended = project.manage("test", "--noinput")

    assert (0, True) == (ended.returncode, "OK" in ended.stderr), ended.stderr


def test_migrate_again_changes_nothing_and_cannot_be_reversed(project: DjangoProject) -> None:
    again = project.manage("migrate", "--check")
    back = project.manage("migrate", "interlock", "zero")

    assert 0 == again.returncode
    assert back.returncode != 0
    assert "IrreversibleError" in back.stderr
    assert [1] == project.answer(ORDER + "answer([new_order().snapshot().version])")


def test_the_printed_statements_name_the_tables(project: DjangoProject) -> None:
    printed = project.manage("sqlmigrate", "interlock", "0001")

    assert 0 == printed.returncode
    assert "schema_version" in printed.stdout


def test_the_row_and_the_event_are_one_transaction(project: DjangoProject) -> None:
    code = """
order = new_order()
found = []
try:
    with transaction.atomic():
        Payment.objects.create(order=order, reference="p-1")
        order.send("payment.confirmed").expect()
        found.append(order.snapshot().configuration[0])   # as the transaction sees it
        found.append(runtime().state(order.entity).configuration[0])
        raise RuntimeError("the card was stolen")
except RuntimeError:
    pass
found += [Payment.objects.count(), order.snapshot().configuration[0]]
with transaction.atomic():
    Payment.objects.create(order=order, reference="p-1")
    order.send("payment.confirmed").expect()
found += [Payment.objects.count(), order.snapshot().configuration[0], runtime().verify(order.entity).problem]
answer(found)
"""
    assert ["paid", "unpaid", 0, "unpaid", 1, "paid", None] == project.answer(ORDER + code)


def test_a_send_without_a_transaction_or_a_saved_row_is_refused(project: DjangoProject) -> None:
    code = """
order = new_order()
found = []
for call in (
    lambda: order.send("payment.confirmed"),
    lambda: order.create_entity({"amount": Decimal(1)}),
    lambda: Order().entity,
    lambda: runtime("other"),
):
    try:
        call()
    except UsageError as error:
        found.append(error.code)
answer([found, order.snapshot().version])
"""
    codes = ["join.autocommit", "join.autocommit", "django.unsaved", "django.settings"]
    assert [codes, 1] == project.answer(ORDER + code)


def test_a_coroutine_is_told_to_use_a_thread(project: DjangoProject) -> None:
    code = """
import asyncio
from asgiref.sync import sync_to_async
from django.core.exceptions import SynchronousOnlyOperation
order = new_order()
async def view():
    found = []
    for call in (order.snapshot, runtime):
        try:
            call()
        except SynchronousOnlyOperation:
            found.append("refused")
    found.append((await sync_to_async(order.snapshot)()).version)
    return found
answer(asyncio.run(view()))
"""
    assert ["refused", "refused", 1] == project.answer(ORDER + code)


def test_two_requests_with_one_key_pay_once(project: DjangoProject) -> None:
    """Both threads send at the same time: one is applied; the other is its duplicate."""
    code = """
import threading
order = new_order()
barrier = threading.Barrier(2)
found = []
def pay():
    from django.test import Client
    barrier.wait()
    headers = {"Idempotency-Key": "k", "Host": "127.0.0.1"}
    response = Client().post(f"/orders/{order.pk}/payment", {"reference": "p"}, headers=headers)
    found.append((response.status_code, response.json().get("outcome")))
    connection.close()
threads = [threading.Thread(target=pay) for _ in range(2)]
for each in threads: each.start()
for each in threads: each.join()
answer([sorted(found), Payment.objects.count()])
"""
    assert [[[200, "applied"], [200, "duplicate"]], 1] == project.answer(ORDER + code)


def test_errors_of_a_send_become_responses(project: DjangoProject) -> None:
    code = """
from django.test import Client
client = Client(headers={"Host": "127.0.0.1"})
order = new_order()
def post(key):
    response = client.post(f"/orders/{order.pk}/payment", {"reference": "p"}, headers={"Idempotency-Key": key})
    return [response.status_code, response.json().get("code")]
row = Order.objects.create(amount=1)  # without its entity
missing = client.post(f"/orders/{row.pk}/payment", {"reference": "p"}, headers={"Idempotency-Key": "a"})
answer([post("a"), post("b"), post("x" * 300)[0], missing.status_code, Payment.objects.count()])
"""
    assert [[200, None], [422, "rejected.no_transition"], 400, 404, 1] == project.answer(ORDER + code)


def test_a_worker_runs_effects_and_ends_with_sigterm(project: DjangoProject) -> None:
    paid = """
order = new_order()
with transaction.atomic():
    Payment.objects.create(order=order, reference="p")
    order.send("payment.confirmed").expect()
answer(order.pk)
"""
    project.answer(ORDER + paid)
    with project.process("manage.py", "interlock_run") as worker:
        sent = "answer(Payment.objects.filter(receipt_sent=True).count())"
        eventually_blocking(lambda: project.answer(ORDER + sent) == 1, "the handler")
        worker.send_signal(signal.SIGTERM)
        code = worker.wait(PATIENCE_SECONDS)

    assert 0 == code, project.log()
    assert "stopped: 0 finished, 0 requeued, 0 still running" in project.log()


def test_workers_of_a_server_that_forks_open_their_own_runtime(project: DjangoProject) -> None:
    """The application is loaded before the fork, and both workers serve."""
    project.write("shop/wsgi.py", WSGI)
    port = free_port()
    words = ("--preload", "--workers", "2", "--bind", f"127.0.0.1:{port}", "--timeout", "600")
    with project.process("-m", "gunicorn", "shop.wsgi:application", *words), client_of(port) as client:
        pk = eventually_blocking(lambda: created(client), "the server")
        states = {client.get(f"/orders/{pk}").json()["state"] for _ in range(20)}
        answers = [
            client.post(f"/orders/{pk}/payment", data={"reference": "p"}, headers={"Idempotency-Key": "k"}).json()
            for _ in range(10)
        ]

    assert ({"unpaid"}, "applied") == (states, answers[0]["outcome"]), project.log()
    assert {"duplicate"} == {each["outcome"] for each in answers[1:]}


def test_an_asgi_server_uses_the_runtime_in_threads(project: DjangoProject) -> None:
    project.write("shop/asgi.py", ASGI)
    port = free_port()
    words = ("--port", str(port), "--lifespan", "off")
    with project.process("-m", "uvicorn", "shop.asgi:application", *words), client_of(port) as client:
        pk = eventually_blocking(lambda: created(client), "the server")
        state = client.get(f"/orders/{pk}").json()
        paid = client.post(f"/orders/{pk}/payment", data={"reference": "p"}, headers={"Idempotency-Key": "k"}).json()

    assert ({"state": "unpaid"}, {"outcome": "applied", "state": "paid"}) == (state, paid), project.log()


def test_the_reloader_opens_the_store_again(tmp_path: Path) -> None:
    """`runserver` replaces its process when a file changes; the new one uses the same SQLite file."""
    project = project_on_sqlite(tmp_path)
    project.migrate()
    port = free_port()
    with project.process("manage.py", "runserver", f"127.0.0.1:{port}"), client_of(port) as client:
        pk = eventually_blocking(lambda: created(client), "the server")
        text = (tmp_path / "shop" / "views.py").read_text(encoding="utf-8")
        edited = text.replace('{"state": ', '{"reloaded": True, "state": ')
        looks = itertools.count()

        def reloaded() -> dict[str, Any] | None:
            # Django notices only an edit after its first look at the files: save again, until it has.
            if next(looks) % 200 == 0:
                project.write("shop/views.py", edited)
            return new_answer(client, pk)

        found = eventually_blocking(reloaded, "the reloaded server")

    assert {"reloaded": True, "state": "unpaid"} == found


def test_check_reports_every_mistake_in_the_settings(tmp_path: Path) -> None:
    code = """
from django.core import checks
from django.test import override_settings
from shop.models import Order
GOOD = {"charts": ["shop.charts.order"]}
WRONG = [
    None,
    ["default"],
    {"default": "shop.charts.order"},
    {"default": {}},
    {"default": GOOD | {"chart": "shop.charts.order"}},
    {"default": GOOD | {"charts": "shop.charts.order"}},
    {"default": GOOD | {"charts": ["shop.charts.ordr"]}},
    {"default": GOOD | {"charts": ["shop.chart.order"]}},
    {"default": GOOD | {"charts": ["shop.charts.Path"]}},
    {"default": GOOD | {"handlers": ["shop.handler"]}},
    {"default": GOOD | {"database": "other"}},
    {"default": GOOD | {"tenant": 7}},
    {"other": GOOD},
]
found = []
for each in WRONG:
    with override_settings(INTERLOCK=each):
        found.append([each.id for each in checks.run_checks(tags=["interlock"])])
with override_settings(INTERLOCK={"default": GOOD}):
    good = [each.id for each in checks.run_checks(tags=["interlock"])]
answer([all("interlock.E001" in each for each in found), found[0], good])
"""
    all_reported, _, good = project_on_sqlite(tmp_path).answer(code)

    assert (True, []) == (all_reported, good)


def test_check_reports_a_model_with_a_chart_that_is_not_in_the_store(tmp_path: Path) -> None:
    project = project_on_sqlite(tmp_path)
    text = (tmp_path / "shop" / "models.py").read_text(encoding="utf-8")
    project.write("shop/models.py", text.replace("shop.charts.order", "shop.charts.other"))
    ended = project.manage("check")

    assert 1 == ended.returncode
    assert "interlock.E002" in ended.stderr


def test_check_warns_of_transactions_that_begin_without_the_write_lock(tmp_path: Path) -> None:
    project = project_on_sqlite(tmp_path)
    text = (tmp_path / "shop" / "settings.py").read_text(encoding="utf-8")
    project.write("shop/settings.py", text.replace('"transaction_mode": "IMMEDIATE"', ""))
    ended = project.manage("check")

    assert 0 == ended.returncode
    assert "interlock.W001" in ended.stderr


def test_a_test_database_in_memory_is_refused_with_the_setting(tmp_path: Path) -> None:
    project = project_on_sqlite(tmp_path)
    text = (tmp_path / "shop" / "settings.py").read_text(encoding="utf-8")
    project.write("shop/settings.py", text.replace('"TEST": {"NAME": BASE_DIR / "test.sqlite3"},', ""))
    project.manage("makemigrations", "shop")
    ended = project.manage("test")

    assert 1 == ended.returncode
    assert '["TEST"] = {"NAME"' in ended.stderr


def test_a_release_with_another_schema_has_a_migration_of_django() -> None:
    """Without a further migration, `migrate` would do nothing for a project that has the last one."""
    code = """
import importlib, pkgutil
from interlock.contrib.django import migrations
last = sorted(each.name for each in pkgutil.iter_modules(migrations.__path__))[-1]
operation = importlib.import_module(f"{migrations.__name__}.{last}").Migration.operations[-1]
answer([operation.sqlite, operation.postgres])
"""
    bare = DjangoProject(folder=Path.cwd(), environment={"DJANGO_SETTINGS_MODULE": "tests.support.django_bare"})

    assert [newest_schema("sqlite"), newest_schema("postgres")] == bare.answer(code)


def free_port() -> int:
    """A port of loopback that no server uses."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


def client_of(port: int) -> httpx.Client:
    """A client of a server on loopback."""
    return httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_SECONDS)


def created(client: httpx.Client) -> int | None:
    """The key of a new order; None while the server does not listen yet."""
    try:
        response = client.post("/orders", data={"amount": "19.90"})
    except httpx.TransportError:
        return None
    assert 201 == response.status_code, response.text
    key: int = response.json()["id"]
    return key


def new_answer(client: httpx.Client, pk: int) -> dict[str, Any] | None:
    """What the server answers once it has the new code; None before, and while Django ends the old process."""
    try:
        response = client.get(f"/orders/{pk}")
    except httpx.TransportError:
        return None
    if response.status_code != 200:
        return None
    found: dict[str, Any] = response.json()
    return found if "reloaded" in found else None
