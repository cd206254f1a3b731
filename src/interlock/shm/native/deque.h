/* A work-stealing deque of u64 ids (Chase and Lev) with a fixed capacity, for processes that may be killed.
 *
 * Rule 1: only the owner pushes and pops, at `bottom`; thieves steal, at `top`; top only grows.
 * Rule 2: before an id leaves the deque it is stored in the taker's `claimed_id`, so that a recovery finds it if the
 *         taker is killed before its claim.
 * Rule 3: all operations that decide are sequentially consistent, as the proof of Chase and Lev requires.
 * Rule 4: the deque does not grow, so no buffer is replaced: a push to a full deque fails, and never waits.
 *
 * Positions are signed: an owner killed inside a pop of an empty deque leaves bottom one below top, and
 * `il_deque_reset` repairs it. This file does not include Python.h, so sanitizers compile it alone.
 */
#ifndef INTERLOCK_DEQUE_H
#define INTERLOCK_DEQUE_H

#include <stdint.h>

#include "core.h"

enum { IL_DEQUE_LOST = -1, IL_DEQUE_NONE = 0, IL_DEQUE_DONE = 1 };

typedef struct {
    uint64_t top;
    uint64_t top_unused[7];
    uint64_t bottom;
    uint64_t bottom_unused[7];
    uint64_t items[]; /* `capacity` of them, a power of two */
} il_deque;

_Static_assert(sizeof(il_deque) == 128, "a deque is two cache lines and its items");

/* The number of ids; exact only while no process changes the deque. */
static inline uint64_t il_deque_size(const il_deque *deque)
{
    int64_t top = (int64_t)il_load(&deque->top);
    int64_t bottom = (int64_t)il_load(&deque->bottom);
    return bottom > top ? (uint64_t)(bottom - top) : 0u;
}

/* Owner only. IL_DEQUE_NONE: full. The store of bottom publishes, and comes before the load of a sleeper's word. */
static inline int il_deque_push(il_deque *deque, uint64_t capacity, uint64_t id)
{
    int64_t bottom = (int64_t)il_load_own(&deque->bottom);
    int64_t top = (int64_t)il_load_acquire(&deque->top);
    if (bottom - top >= (int64_t)capacity) return IL_DEQUE_NONE;
    il_store_own(&deque->items[(uint64_t)bottom & (capacity - 1u)], id);
    il_store(&deque->bottom, (uint64_t)(bottom + 1));
    return IL_DEQUE_DONE;
}

/* Owner only. The newest id, stored in *claimed_id before it leaves. IL_DEQUE_NONE: empty, or a thief got the last. */
static inline int il_deque_pop(il_deque *deque, uint64_t capacity, uint64_t *claimed_id, uint64_t *id)
{
    int64_t bottom = (int64_t)il_load_own(&deque->bottom) - 1;
    int64_t top = (int64_t)il_load(&deque->top);
    if (top > bottom) return IL_DEQUE_NONE; /* top never decreases, so nothing has to be written */
    *id = il_load_own(&deque->items[(uint64_t)bottom & (capacity - 1u)]);
    il_store(claimed_id, *id);
    il_store(&deque->bottom, (uint64_t)bottom);
    top = (int64_t)il_load(&deque->top);
    if (top < bottom) return IL_DEQUE_DONE;
    int won = 0;
    if (top == bottom) {
        uint64_t expected = (uint64_t)top;
        won = il_cas(&deque->top, &expected, (uint64_t)(top + 1));
    }
    il_store(&deque->bottom, (uint64_t)(bottom + 1));
    if (won) return IL_DEQUE_DONE;
    il_store(claimed_id, 0u);
    return IL_DEQUE_NONE;
}

/* Any taker. The oldest id, stored in *claimed_id before it leaves. IL_DEQUE_LOST: another taker was faster. */
static inline int il_deque_steal(il_deque *deque, uint64_t capacity, uint64_t *claimed_id, uint64_t *id)
{
    int64_t top = (int64_t)il_load(&deque->top);
    int64_t bottom = (int64_t)il_load(&deque->bottom);
    if (top >= bottom) return IL_DEQUE_NONE;
    *id = il_load_own(&deque->items[(uint64_t)top & (capacity - 1u)]);
    il_store(claimed_id, *id);
    uint64_t expected = (uint64_t)top;
    if (il_cas(&deque->top, &expected, (uint64_t)(top + 1))) return IL_DEQUE_DONE;
    il_store(claimed_id, 0u);
    return IL_DEQUE_LOST;
}

/* Repairs an empty deque after the death of its owner; one with ids needs no repair. The caller holds the dead owner's
 * lock byte. Top moves first, by a swap: otherwise a thief that saw the old bottom could still take the position at
 * which the next owner pushes (tests/model, "bottom is set to top"). */
static inline void il_deque_reset(il_deque *deque)
{
    for (;;) { /* ends: a lost swap is a thief's, and no process pushes */
        uint64_t top = il_load(&deque->top), expected = top;
        if ((int64_t)top < (int64_t)il_load(&deque->bottom)) return;
        if (!il_cas(&deque->top, &expected, top + 1u)) continue;
        il_store(&deque->bottom, top + 1u);
        return;
    }
}

#endif
