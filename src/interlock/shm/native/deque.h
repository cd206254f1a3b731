/* A work-stealing deque of u64 ids (Chase and Lev) with a fixed capacity, for processes that may be killed.
 *
 * Rule 1: only the owner pushes and pops, at `bottom`; anybody steals, at `top`; top only grows.
 * Rule 2: before an id leaves the deque it stands in the taker's `hand`, so that a kill between leaving and claiming
 *         hides nothing from the one who reaps.
 * Rule 3: all operations that decide are sequentially consistent; the proof of Chase and Lev needs no more.
 * Rule 4: no growth, hence no swapped buffer: a full deque answers, never waits.
 *
 * Positions are signed: an owner killed inside a pop of an empty deque leaves bottom one below top, and `il_deque_reset`
 * repairs it. No Python.h: sanitizers compile this alone.
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

/* How many ids seem to be there; exact only while nobody moves. */
static inline uint64_t il_deque_size(const il_deque *deque)
{
    int64_t top = (int64_t)il_load(&deque->top);
    int64_t bottom = (int64_t)il_load(&deque->bottom);
    return bottom > top ? (uint64_t)(bottom - top) : 0u;
}

/* Owner. IL_DEQUE_NONE: full. The store of bottom publishes, and is ordered before the look at a sleeper's word. */
static inline int il_deque_push(il_deque *deque, uint64_t capacity, uint64_t id)
{
    int64_t bottom = (int64_t)il_load_own(&deque->bottom);
    int64_t top = (int64_t)il_load_acquire(&deque->top);
    if (bottom - top >= (int64_t)capacity) return IL_DEQUE_NONE;
    il_store_own(&deque->items[(uint64_t)bottom & (capacity - 1u)], id);
    il_store(&deque->bottom, (uint64_t)(bottom + 1));
    return IL_DEQUE_DONE;
}

/* Owner. The newest id, which is in *hand before it leaves; IL_DEQUE_NONE: empty, or a thief had the last one. */
static inline int il_deque_pop(il_deque *deque, uint64_t capacity, uint64_t *hand, uint64_t *id)
{
    int64_t bottom = (int64_t)il_load_own(&deque->bottom) - 1;
    int64_t top = (int64_t)il_load(&deque->top);
    if (top > bottom) return IL_DEQUE_NONE; /* top never falls: no need to disturb the thieves */
    *id = il_load_own(&deque->items[(uint64_t)bottom & (capacity - 1u)]);
    il_store(hand, *id);
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
    il_store(hand, 0u);
    return IL_DEQUE_NONE;
}

/* Anybody. The oldest id, which is in *hand before it leaves; IL_DEQUE_LOST: another thief was quicker. */
static inline int il_deque_steal(il_deque *deque, uint64_t capacity, uint64_t *hand, uint64_t *id)
{
    int64_t top = (int64_t)il_load(&deque->top);
    int64_t bottom = (int64_t)il_load(&deque->bottom);
    if (top >= bottom) return IL_DEQUE_NONE;
    *id = il_load_own(&deque->items[(uint64_t)top & (capacity - 1u)]);
    il_store(hand, *id);
    uint64_t expected = (uint64_t)top;
    if (il_cas(&deque->top, &expected, (uint64_t)(top + 1))) return IL_DEQUE_DONE;
    il_store(hand, 0u);
    return IL_DEQUE_LOST;
}

/* Whoever holds the dead owner's lock byte: a deque that lists nothing is sound again; one that lists something is.
 * Top moves first, by a swap: a thief that saw the bottom from before the death would else still take the place that
 * the next owner pushes on (tests/model, "bottom is set to top"). */
static inline void il_deque_reset(il_deque *deque)
{
    for (;;) { /* ends: a lost swap is a thief's, and nobody pushes */
        uint64_t top = il_load(&deque->top), expected = top;
        if ((int64_t)top < (int64_t)il_load(&deque->bottom)) return;
        if (!il_cas(&deque->top, &expected, top + 1u)) continue;
        il_store(&deque->bottom, top + 1u);
        return;
    }
}

#endif
