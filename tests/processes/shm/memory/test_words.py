"""Words: sequentially consistent in every mode, between threads and between processes."""

import signal
import struct
import threading
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.errors import UsageError
from interlock.shm.memory.region import MemoryRegion
from interlock.shm.memory.words import WORD_MAX
from tests.processes.shm.processes import Child, Line, Work
from tests.processes.shm.queues import working_modes
from tests.support.eventually import PATIENCE_SECONDS

Start = Callable[[Work], Child]
values = st.one_of(st.integers(0, 3), st.integers(0, WORD_MAX), st.just(WORD_MAX))
deltas = st.integers(-(2**70), 2**70)
operations = st.lists(
    st.one_of(
        st.tuples(st.just("store"), values),
        st.tuples(st.just("swap"), values, values),
        st.tuples(st.just("add"), deltas),
        st.tuples(st.just("load")),
    ),
    max_size=20,
)


@given(sequence=operations)
def test_a_word_behaves_like_an_integer_in_every_mode(sequence: list[tuple[object, ...]]) -> None:
    """Operations in sequence are those of an integer modulo 2**64."""
    for mode in working_modes():
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("INTERLOCK_SHM", mode)
            with MemoryRegion.create(slots=1, areas_bytes=4096) as region:
                word, model = region.word("w"), 0
                for name, *arguments in sequence:
                    given = [int(str(each)) for each in arguments]
                    if name == "store":
                        word.store(*given)
                        model = given[0]
                    elif name == "swap":
                        assert (model == given[0]) == word.swap(*given)
                        model = given[1] if model == given[0] else model
                    elif name == "add":
                        assert model == word.add(*given)
                        model = (model + given[0]) % 2**64

                    assert model == word.load()


@pytest.mark.parametrize("value", [-1, 2**64, 2**100])
def test_a_value_that_does_not_fit_is_refused(shared: MemoryRegion, value: int) -> None:
    """The word is unchanged."""
    word = shared.word("w", initial=5)
    for call in (lambda: word.store(value), lambda: word.swap(5, value), lambda: word.swap(value, 5)):
        with pytest.raises(UsageError):
            call()

    assert 5 == word.load()


@pytest.mark.parametrize("offset", [-8, 1, 4, 2**40])
def test_offsets_outside_the_region_or_unaligned_are_refused(shared: MemoryRegion, offset: int) -> None:
    words = shared.words
    calls: list[Callable[[], object]] = [
        lambda: words.load(offset),
        lambda: words.store(offset, 1),
        lambda: words.swap(offset, 0, 1),
        lambda: words.add(offset, 1),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="outside the region"):
            call()
    if offset % 4:
        with pytest.raises(ValueError, match="outside the region"):
            words.wait(offset, 0, 0.0)
        with pytest.raises(ValueError, match="outside the region"):
            words.wake(offset)


@pytest.mark.parametrize("wrong", [-1, 2**64])
def test_operations_refuse_values_beyond_a_word(shared: MemoryRegion, wrong: int) -> None:
    """In the C core and in the fallback."""
    with pytest.raises(OverflowError):
        shared.words.store(64, wrong)
    with pytest.raises(OverflowError):
        shared.words.swap(64, 0, wrong)


def test_the_halves_of_a_word_are_little_endian(shared: MemoryRegion) -> None:
    """Waiters sleep on the high half, at offset 4."""
    shared.words.store(64, 0x1122334455667788)

    assert (0x55667788, 0x11223344) == struct.unpack_from("<II", shared.buffer, 64)


def test_no_addition_of_a_process_is_lost(child: Start, shared: MemoryRegion) -> None:
    word = shared.word("hits")
    rounds = 1000

    def work(line: Line) -> None:
        for _ in range(rounds):
            word.add(1)

    started = [child(work) for _ in range(3)]
    for _ in range(rounds):
        word.add(1)

    assert [0, 0, 0] == [each.wait() for each in started]
    assert 4 * rounds == word.load()


def test_no_swap_of_a_thread_is_lost(shared: MemoryRegion) -> None:
    word = shared.word("hits")

    def work() -> None:
        for _ in range(300):
            while not word.swap(seen := word.load(), seen + 1):
                pass

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert 1200 == word.load()


def test_a_waiter_is_woken_by_another_process(child: Start, shared: MemoryRegion) -> None:
    word = shared.word("shared")

    def work(line: Line) -> None:
        line.send(word.wait_change(0, timeout=PATIENCE_SECONDS))

    started = child(work)
    word.store(7)
    word.wake()

    assert 7 == started.receive()


def test_a_wait_ends_at_its_timeout(shared: MemoryRegion) -> None:
    word = shared.word("shared", initial=3)

    assert 3 == word.wait_change(3, timeout=0.01)
    assert 3 == word.wait_change(3, timeout=0)
    assert 3 == word.wait_change(2, timeout=PATIENCE_SECONDS)


def test_a_signal_is_handled_while_waiting(shared: MemoryRegion) -> None:
    """The exception of the handler is raised by the wait."""

    class Interrupted(Exception):
        pass

    def interrupt(number: int, frame: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGUSR1, interrupt)
    main = threading.get_ident()
    timer = threading.Timer(0.05, lambda: signal.pthread_kill(main, signal.SIGUSR1))
    timer.start()
    try:
        with pytest.raises(Interrupted):
            shared.word("shared").wait_change(0, timeout=PATIENCE_SECONDS)
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)


def test_other_threads_run_while_one_waits(shared: MemoryRegion) -> None:
    """A wait releases the GIL."""
    word = shared.word("shared")

    def ring() -> None:
        word.store(1)
        word.wake()

    threading.Thread(target=ring).start()

    assert 1 == word.wait_change(0, timeout=PATIENCE_SECONDS)
