/* Atomic words, futexes, the gate and the slot counts: the algorithms of the shared memory, without Python.
 *
 * Rule 1: this file does not include Python.h, so sanitizers and harnesses compile it alone.
 * Rule 2: every operation on a shared word is sequentially consistent; enter and drain depend on it.
 * Rule 3: a futex wait is bounded, shared between processes, and sleeps on one 32-bit half of a word.
 * Rule 4: one load is used for the test and as the expected value; a lost swap continues with the value it returned.
 *
 * fallback.py and permits.py have the same functions in Python. The numbers of steps (E1, X2, ...) are those of
 * docs/internals/shared-memory.md.
 */
#ifndef INTERLOCK_CORE_H
#define INTERLOCK_CORE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* syscall() */
#endif

#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#if !defined(__GNUC__) && !defined(__clang__)
#error "the C core needs the __atomic builtins of GCC or Clang; the fallback runs without it"
#endif
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the layout of a region is little-endian; the fallback refuses this machine as well"
#endif
_Static_assert(__GCC_ATOMIC_LLONG_LOCK_FREE == 2, "64-bit atomics must be lock-free to be shared between processes");
_Static_assert(__GCC_ATOMIC_INT_LOCK_FREE == 2, "32-bit atomics must be lock-free to be shared between processes");
_Static_assert(sizeof(uint64_t) == 8 && sizeof(uint32_t) == 4, "words have the sizes of the layout");

#define IL_LINE 64u /* bytes of a cache line: different writers use different lines */

/* ---- Words ------------------------------------------------------------------------------------------------- */

static inline uint64_t il_load(const uint64_t *word) { return __atomic_load_n(word, __ATOMIC_SEQ_CST); }

static inline uint64_t il_load_acquire(const uint64_t *word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }

/* For a word that only the caller writes, which needs no order. */
static inline uint64_t il_load_own(const uint64_t *word) { return __atomic_load_n(word, __ATOMIC_RELAXED); }

static inline void il_store(uint64_t *word, uint64_t value) { __atomic_store_n(word, value, __ATOMIC_SEQ_CST); }

static inline void il_store_release(uint64_t *word, uint64_t value) { __atomic_store_n(word, value, __ATOMIC_RELEASE); }

static inline void il_store_own(uint64_t *word, uint64_t value) { __atomic_store_n(word, value, __ATOMIC_RELAXED); }

/* Compares and swaps. If the word is not *expected, *expected becomes its value. */
static inline int il_cas(uint64_t *word, uint64_t *expected, uint64_t desired)
{
    return __atomic_compare_exchange_n(word, expected, desired, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

/* Adds modulo 2^64 and returns the previous value. */
static inline uint64_t il_add(uint64_t *word, uint64_t delta)
{
    return __atomic_fetch_add(word, delta, __ATOMIC_SEQ_CST);
}

static inline uint32_t il_load32(const uint32_t *half) { return __atomic_load_n(half, __ATOMIC_SEQ_CST); }

static inline void il_store32(uint32_t *half, uint32_t value) { __atomic_store_n(half, value, __ATOMIC_SEQ_CST); }

/* ---- Futex ------------------------------------------------------------------------------------------------- */

#define IL_WAIT_NS_MAX 1000000000ll /* a second: the process that should wake the caller may have died */

/* Sleeps while *half is `expected`, at most `timeout_ns` and at most IL_WAIT_NS_MAX.
 * Returns 0, EAGAIN (another value), EINTR or ETIMEDOUT; after each of them the caller loads again. */
static inline int il_futex_wait(uint32_t *half, uint32_t expected, int64_t timeout_ns)
{
    if (timeout_ns <= 0)
        return ETIMEDOUT;
    if (timeout_ns > IL_WAIT_NS_MAX)
        timeout_ns = IL_WAIT_NS_MAX;
#if defined(__linux__)
    struct timespec timeout = {timeout_ns / 1000000000ll, timeout_ns % 1000000000ll};
    if (syscall(SYS_futex, half, FUTEX_WAIT, expected, &timeout, NULL, 0) == 0)
        return 0;
    return errno;
#else
    /* Without futexes: bounded polling, a millisecond at a time. Never called in an event loop. */
    struct timespec interval = {0, timeout_ns < 1000000 ? (long)timeout_ns : 1000000};
    if (il_load32(half) != expected)
        return EAGAIN;
    if (nanosleep(&interval, NULL) != 0)
        return errno;
    return timeout_ns <= 1000000 ? ETIMEDOUT : 0;
#endif
}

/* Wakes every sleeper on this half. */
static inline void il_futex_wake(uint32_t *half)
{
#if defined(__linux__)
    syscall(SYS_futex, half, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
#else
    (void)half;
#endif
}

/* The half of a word that waiters sleep on: the phase, so that changes of the count do not wake them. */
static inline uint32_t *il_high(uint64_t *word) { return (uint32_t *)word + 1; }

static inline uint32_t *il_low(uint64_t *word) { return (uint32_t *)word; }

/* ---- Phases ------------------------------------------------------------------------------------------------ */

enum il_phase { IL_INIT = 0, IL_RUNNING = 1, IL_DRAINING = 2, IL_CLOSING = 3, IL_CLOSED = 4 };

#define IL_PHASE(word) ((uint32_t)((word) >> 32))
#define IL_COUNT(word) ((uint32_t)(word))
#define IL_WORD(phase, low) (((uint64_t)(phase) << 32) | (uint64_t)(low))
#define IL_COUNT_MAX 0xFFFFFFFEull

/* Results of enter and exit. */
enum il_result {
    IL_REFUSED = 0,    /* not running */
    IL_ENTERED = 1,    /* inside */
    IL_FULL = 2,       /* the count is at its maximum */
    IL_LAST_EXIT = 3,  /* refused or exited, and the caller closes: a gate is closed, a lifecycle needs a scan */
    IL_EXITED = 4,     /* exited; others are inside, or the phase is not DRAINING */
    IL_NOT_INSIDE = 5  /* the count is zero: an exit without an enter; nothing was changed */
};

/* Moves INIT to `phase` (start: RUNNING, abort: CLOSED) and wakes all. Returns 1 if this call did. */
static inline int il_start(uint64_t *word, enum il_phase phase)
{
    uint64_t seen = IL_WORD(IL_INIT, 0);
    if (!il_cas(word, &seen, IL_WORD(phase, 0)))
        return 0;
    il_futex_wake(il_high(word));
    return 1;
}

/* ---- Gate: phase << 32 | permits, one word ---------------------------------------------------------------------- */

static inline enum il_result il_gate_enter(uint64_t *word)
{
    uint64_t seen = il_load(word);
    while (IL_PHASE(seen) == IL_RUNNING) {
        if (IL_COUNT(seen) >= IL_COUNT_MAX)
            return IL_FULL;
        if (il_cas(word, &seen, seen + 1))
            return IL_ENTERED;
    }
    return IL_REFUSED;
}

/* IL_LAST_EXIT: this call moved DRAINING to CLOSED. */
static inline enum il_result il_gate_exit(uint64_t *word)
{
    uint64_t seen = il_load(word);
    for (;;) {
        if (IL_COUNT(seen) == 0)
            return IL_NOT_INSIDE;
        uint64_t next = seen - 1;
        if (next == IL_WORD(IL_DRAINING, 0))
            next = IL_WORD(IL_CLOSED, 0);
        if (il_cas(word, &seen, next)) {
            if (IL_PHASE(next) != IL_CLOSED)
                return IL_EXITED;
            il_futex_wake(il_high(word));
            return IL_LAST_EXIT;
        }
    }
}

/* Returns the phase to which this call moved the gate, DRAINING or CLOSED; INIT if it was not running. */
static inline enum il_phase il_gate_drain(uint64_t *word)
{
    uint64_t seen = il_load(word);
    while (IL_PHASE(seen) == IL_RUNNING) {
        enum il_phase phase = IL_COUNT(seen) == 0 ? IL_CLOSED : IL_DRAINING;
        if (il_cas(word, &seen, IL_WORD(phase, IL_COUNT(seen)))) {
            il_futex_wake(il_high(word));
            return phase;
        }
    }
    return IL_INIT;
}

/* ---- Lifecycle: a state word, and one count per process on its own line ------------------------------------- */

/* X2, X3: decrements the own count, by a swap that never goes below zero. IL_LAST_EXIT: the caller runs the scan. */
static inline enum il_result il_lifecycle_exit(uint64_t *state, uint64_t *count)
{
    uint64_t seen = il_load(count);
    do {
        if (seen == 0)
            return IL_NOT_INSIDE;
    } while (!il_cas(count, &seen, seen - 1));
    if (seen == 1 && IL_PHASE(il_load(state)) == IL_DRAINING)
        return IL_LAST_EXIT;
    return IL_EXITED;
}

/* E1 to E3. IL_LAST_EXIT: refused, and the caller runs the scan, because its temporary count may have hidden zero. */
static inline enum il_result il_lifecycle_enter(uint64_t *state, uint64_t *count)
{
    if (IL_PHASE(il_load(state)) != IL_RUNNING)
        return IL_REFUSED;
    if (il_add(count, 1) >= IL_COUNT_MAX) {
        (void)il_lifecycle_exit(state, count);
        return IL_FULL;
    }
    if (IL_PHASE(il_load(state)) == IL_RUNNING)
        return IL_ENTERED;
    return il_lifecycle_exit(state, count) == IL_LAST_EXIT ? IL_LAST_EXIT : IL_REFUSED;
}

/* D1, D2. Returns 1 if this call moved RUNNING to DRAINING. */
static inline int il_lifecycle_drain(uint64_t *state)
{
    uint64_t seen = IL_WORD(IL_RUNNING, 0);
    if (!il_cas(state, &seen, IL_WORD(IL_DRAINING, 0)))
        return 0;
    il_futex_wake(il_high(state));
    return 1;
}

/* The part of C2 that reads memory: the first slot at or after `from` whose count is not zero; `slots` if there is
 * none. `counts` is the count of slot 0; the lines of slots are IL_LINE bytes apart. */
static inline uint32_t il_lifecycle_find_occupied(const uint64_t *counts, uint32_t slots, uint32_t from)
{
    uint32_t slot = from;
    while (slot < slots && il_load(counts + (size_t)slot * (IL_LINE / sizeof(uint64_t))) == 0)
        slot++;
    return slot;
}

#endif
