"""Gates and lifecycles have the same operations: one suite for both, in every mode."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from interlock.errors import RejectedError, UnavailableError, UsageError
from interlock.shm.lifecycle.gate import Gate
from interlock.shm.lifecycle.lifecycle import Lifecycle
from interlock.shm.lifecycle.permits import COUNT_MAX, Phase
from interlock.shm.memory.region import MemoryRegion
from tests.processes.shm.processes import Child, Line, Work
from tests.support.eventually import PATIENCE_SECONDS

Start = Callable[[Work], Child]


@pytest.fixture(params=[Gate, Lifecycle])
def life(request: pytest.FixtureRequest, shared: MemoryRegion) -> Gate | Lifecycle:
    """A gate and a lifecycle, in each mode."""
    made: Gate | Lifecycle = request.param(shared)
    return made


def phase_of(life: Gate | Lifecycle) -> Phase:
    """Return the phase; a function, because type checkers assume that attributes do not change."""
    return life.phase


def test_a_lifecycle_moves_forward_once(life: Gate | Lifecycle) -> None:
    """INIT, RUNNING, CLOSED; one call makes each move."""
    assert Phase.INIT is phase_of(life)
    assert life.start()
    assert not life.start()
    assert not life.abort()
    assert Phase.RUNNING is phase_of(life)
    assert life.drain().wait().closed
    assert Phase.CLOSED is phase_of(life)
    assert not life.start()
    assert not life.drain().started
    assert life.drain().wait().closed


def test_enter_is_refused_before_the_start_and_after_the_drain(life: Gate | Lifecycle) -> None:
    """`try_enter` returns None, `enter` raises."""
    assert life.try_enter() is None
    with pytest.raises(RejectedError) as early:
        life.enter()
    life.start()
    permit = life.enter()
    life.drain()
    assert life.try_enter() is None
    with pytest.raises(RejectedError) as late:
        life.enter()
    life.exit(permit)

    assert "gate.not_running" == early.value.code == late.value.code
    assert "start it first" in str(early.value)
    assert "draining" in str(late.value)


def test_the_last_exit_closes_and_returns_true(life: Gate | Lifecycle) -> None:
    life.start()
    permits = [life.enter() for _ in range(3)]
    assert life.drain().started
    answers = [life.exit(permit) for permit in permits]

    assert [False, False, True] == answers
    assert Phase.CLOSED is phase_of(life)
    assert 0 == life.permits


def test_a_drain_without_permits_closes_immediately(life: Gate | Lifecycle) -> None:
    life.start()
    drain = life.drain()

    assert drain.started
    assert Phase.CLOSED is phase_of(life)
    assert drain.wait().closed


def test_exits_before_the_drain_close_nothing(life: Gate | Lifecycle) -> None:
    life.start()
    for _ in range(3):
        assert not life.exit(life.enter())

    assert Phase.RUNNING is phase_of(life)


def test_an_aborted_lifecycle_is_closed(life: Gate | Lifecycle) -> None:
    assert life.abort()
    assert not life.start()
    assert life.try_enter() is None

    assert life.wait_closed(timeout=0)
    assert life.drain().wait().closed


def test_a_drain_before_the_start_returns_immediately(life: Gate | Lifecycle) -> None:
    """The report says that it is not closed."""
    report = life.drain(timeout=PATIENCE_SECONDS).wait()

    assert (False, Phase.INIT) == (report.closed, report.phase)
    assert life.start()


def test_a_permit_is_valid_for_one_exit(life: Gate | Lifecycle) -> None:
    """The second exit raises, and the count is unchanged."""
    life.start()
    used, other = life.enter(), life.enter()
    life.exit(used)
    with pytest.raises(UsageError) as caught:
        life.exit(used)
    with pytest.raises(UsageError):
        used.__exit__(None, None, None)

    assert "permit.used" == caught.value.code
    assert (True, False) == (used.used, other.used)
    assert 1 == life.permits
    life.drain()
    assert life.exit(other)


def test_a_permit_of_another_lifecycle_is_refused(shared: MemoryRegion, life: Gate | Lifecycle) -> None:
    """Also an object that is not a permit."""
    other = Gate(shared, "other")
    other.start()
    life.start()
    permit = life.enter()
    for wrong in (other.enter(), None, 1):
        with pytest.raises(UsageError) as caught:
            life.exit(wrong)  # type: ignore[arg-type]  # the point of the test
        assert "permit.foreign" == caught.value.code

    assert 1 == life.permits == other.permits
    life.exit(permit)


def test_a_with_block_returns_its_permit(life: Gate | Lifecycle) -> None:
    """Also if the block raises."""
    life.start()
    with life.enter() as permit:
        assert 1 == life.permits
        assert not permit.used
    with pytest.raises(ZeroDivisionError), life.enter():
        raise ZeroDivisionError

    assert 0 == life.permits
    assert permit.used


async def test_an_async_with_block_returns_its_permit(life: Gate | Lifecycle) -> None:
    life.start()
    async with life.enter() as permit:
        assert 1 == life.permits
        assert not permit.used
    with pytest.raises(ZeroDivisionError):
        async with life.enter():
            raise ZeroDivisionError

    assert 0 == life.permits


def test_unchecked_enter_and_exit_count_without_permits(life: Gate | Lifecycle) -> None:
    """An exit without an enter still raises."""
    enter, leave = life.enter_unchecked, life.exit_unchecked
    assert not enter()
    life.start()
    assert enter()
    assert 1 == life.permits
    assert not leave()
    with pytest.raises(UsageError) as caught:
        leave()

    assert "exit.not_inside" == caught.value.code
    assert 0 == life.permits


def test_a_permit_identifies_its_process(shared: MemoryRegion, life: Gate | Lifecycle) -> None:
    """Epoch, slot, generation and process."""
    life.start()
    with life.enter() as permit:
        expected = (life.slot, life.generation) if isinstance(life, Lifecycle) else (0, 0)

        assert (shared.epoch, *expected) == (permit.epoch, permit.slot, permit.generation)
        assert permit.pid > 0
        assert "used" not in repr(permit)
    assert "used" in repr(permit)


def test_a_full_count_refuses(shared: MemoryRegion, life: Gate | Lifecycle) -> None:
    """The count never overflows into the phase."""
    life.start()
    count = shared.slot_line(0) if isinstance(life, Lifecycle) else shared.area("gate.main", 64)
    words = shared.words
    words.store(count, words.load(count) + COUNT_MAX)
    with pytest.raises(UnavailableError) as caught:
        life.enter()

    assert "gate.full" == caught.value.code
    assert COUNT_MAX == life.permits
    assert Phase.RUNNING is phase_of(life)


def test_a_wait_ends_at_its_timeout(life: Gate | Lifecycle) -> None:
    life.start()
    permit = life.enter()

    assert not life.wait_closed(timeout=0.01)
    report = life.drain(timeout=0.01).wait()
    assert (False, Phase.DRAINING, 1) == (report.closed, report.phase, report.permits)
    assert life.exit(permit)


@pytest.mark.parametrize("timeout", [-1, float("nan"), float("inf")])
def test_an_invalid_timeout_is_refused(life: Gate | Lifecycle, timeout: float) -> None:
    """Before the phase changes."""
    life.start()
    with pytest.raises(UsageError):
        life.drain(timeout=timeout)
    with pytest.raises(UsageError):
        life.wait_closed(timeout=timeout)

    assert Phase.RUNNING is phase_of(life)


def test_waiters_in_threads_are_woken(life: Gate | Lifecycle) -> None:
    """All of them, by the last exit."""
    life.start()
    permit = life.enter()
    answers: list[bool] = []
    threads = [
        threading.Thread(target=lambda: answers.append(life.wait_closed(timeout=PATIENCE_SECONDS))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    life.drain()
    life.exit(permit)
    for thread in threads:
        thread.join()

    assert [True, True, True] == answers


async def test_a_wait_in_an_event_loop_does_not_block_it(life: Gate | Lifecycle) -> None:
    life.start()
    permit = life.enter()
    drain = asyncio.ensure_future(life.drain(timeout=PATIENCE_SECONDS))
    closed = asyncio.create_task(life.closed())
    ticks = 0
    while life.phase is not Phase.DRAINING or ticks < 3:
        await asyncio.sleep(0)
        ticks += 1
    assert not drain.done()
    life.exit(permit)
    report = await drain
    await closed

    assert report.closed


async def test_blocking_waits_are_refused_in_an_event_loop(life: Gate | Lifecycle) -> None:
    life.start()
    with pytest.raises(UsageError) as caught:
        life.wait_closed(timeout=1)
    permit = life.enter()
    drain = life.drain()
    with pytest.raises(UsageError):
        drain.wait()
    life.exit(permit)

    assert "wait.in_loop" == caught.value.code
    assert "await" in str(caught.value)


async def test_a_cancelled_wait_ends_its_thread(life: Gate | Lifecycle) -> None:
    life.start()
    waiting = asyncio.create_task(life.closed())
    await asyncio.sleep(0)  # the task and its thread start
    assert [thread for thread in threading.enumerate() if thread.name == "interlock-closed"]
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    for thread in threading.enumerate():
        if thread.name == "interlock-closed":
            await asyncio.to_thread(thread.join, PATIENCE_SECONDS)
            assert not thread.is_alive()

    assert life.enter().slot == 0


async def test_an_error_in_the_waiting_thread_is_raised_by_the_await(
    life: Gate | Lifecycle, monkeypatch: pytest.MonkeyPatch
) -> None:

    def broken() -> None:
        raise UnavailableError("the lock is held")

    life.start()
    monkeypatch.setattr(life._wait, "_try_close", broken)

    with pytest.raises(UnavailableError):
        await life.closed()


async def test_a_drain_in_a_loop_ends_at_its_timeout(life: Gate | Lifecycle) -> None:
    life.start()
    permit = life.enter()
    report = await life.drain(timeout=0.02)

    assert (False, 1) == (report.closed, report.permits)
    life.exit(permit)
    assert (await life.drain()).closed


def test_a_forked_child_cannot_return_its_parents_permit(child: Start, life: Gate | Lifecycle) -> None:
    life.start()
    permit = life.enter()

    def work(line: Line) -> None:
        for leave in (lambda: life.exit(permit), lambda: permit.__exit__(None, None, None)):
            with pytest.raises(UsageError) as caught:
                leave()
            line.send(caught.value.code)

    started = child(work)

    assert ["permit.forked", "permit.forked"] == [started.receive(), started.receive()]
    assert 0 == started.wait()
    assert 1 == life.permits
    life.drain()
    assert life.exit(permit)


def test_a_gate_is_shared_by_name_and_inherited_by_fork(child: Start, mode: str) -> None:
    with MemoryRegion.create("checkout") as region:
        gate = Gate(region)
        gate.start()

        def inherits(line: Line) -> None:
            with gate.enter():
                line.send(gate.permits)
                line.recv()

        def attaches(line: Line) -> None:
            with Gate(MemoryRegion.attach("checkout")).enter():
                line.send(gate.permits)
                line.recv()

        one = child(inherits)
        assert 1 == one.receive()
        two = child(attaches)
        assert 2 == two.receive()
        drain = gate.drain(timeout=PATIENCE_SECONDS)
        one.send()
        two.send()

        assert drain.wait().closed
        assert Phase.INIT is Gate(region, "another").phase


def test_processes_close_a_lifecycle_exactly_once(child: Start, mode: str) -> None:
    """Three processes exit at the same time."""
    with MemoryRegion.create("checkout") as region:
        inside = region.word("inside")
        for number in range(5):
            gate = Gate(region, str(number))
            gate.start()

            def work(line: Line, gate: Gate = gate) -> None:
                permit = gate.enter()
                inside.add(1)
                line.send("inside")
                line.recv()
                inside.add(-1)
                line.send(gate.exit(permit))

            started = [child(work) for _ in range(3)]
            for each in started:
                assert "inside" == each.receive()
            drain = gate.drain(timeout=PATIENCE_SECONDS)
            for each in started:
                each.send()

            assert drain.wait().closed
            assert 0 == inside.load()
            assert [False, False, True] == sorted(each.receive() for each in started)


def test_entering_takes_no_arguments(life: Gate | Lifecycle) -> None:
    """In every mode; the count is unchanged."""
    life.start()
    for call in (life.enter, life.try_enter, life.enter_unchecked, life.exit_unchecked):
        with pytest.raises(TypeError, match="argument"):
            call(1)  # type: ignore[call-arg]  # that is the point

    assert 0 == life.permits
