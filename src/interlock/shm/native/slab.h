/* The slab of tasks and the seats of those who submit, run and steal them.
 *
 * Rule 1: a task's word moves only by compare-and-swap: FREE -> QUEUED(seat) -> CLAIMED(seat) -> DONE -> FREE of the
 *         next generation. A claim is therefore exact, however often an id is listed.
 * Rule 2: each seat allocates from its own range of cells only; there is no shared free list that a kill could tear.
 * Rule 3: an id on its way from a deque to a claim stands in the taker's hand word.
 * Rule 4: whoever holds the lock byte of a dead seat may reap it, and reaping may itself be killed and repeated:
 *         every step of it either changes nothing or leaves one more task listed.
 * Rule 5: the payload stays as submitted until the task is done: results have bytes of their own.
 *
 * word  = state | seat << 8 | claims << 24 | generation << 32; id = index | generation << 32; generation is never 0,
 *         so that no id is 0. meta = payload bytes << 32 | detached << 8 | priority.
 * A seat is a line {hand, asleep, taken, term}; it is no slot of the region, because one process may have several pools.
 * No Python.h: sanitizers compile this alone.
 */
#ifndef INTERLOCK_SLAB_H
#define INTERLOCK_SLAB_H

#include <stdint.h>
#include <string.h>

#include "core.h"
#include "deque.h"

#define IL_PRIORITIES_MAX 8u
#define IL_SKIPS_MAX 8u
#define IL_SEATS_MAX 4096u
#define IL_STEAL_ROUNDS 2u

enum { IL_FREE = 0, IL_QUEUED = 1, IL_CLAIMED = 2, IL_DONE = 3, IL_FAILED = 4, IL_POISONED = 5 };
enum { IL_POOL_AGAIN = -1, IL_POOL_NONE = 0, IL_POOL_OK = 1 };

typedef struct {
    uint64_t hand;   /* the id that is between a deque and its claim */
    uint64_t asleep; /* 1: ring me; only the seat's owner writes it */
    uint64_t taken;  /* 1: somebody sat here and nobody has reaped since */
    uint64_t term;   /* which owner of the pool this is; on the owner's seat only */
    uint64_t unused[4];
} il_seat;

typedef struct {
    uint64_t word;
    uint64_t meta;
    uint64_t result_bytes;
    uint64_t unused[5];
    unsigned char bytes[]; /* the payload, then the result */
} il_cell;

_Static_assert(sizeof(il_seat) == 64, "a seat is a cache line");
_Static_assert(sizeof(il_cell) == 64, "a cell is a cache line and its bytes");

/* Where everything stands in this process. Built from the area's head, never stored in it. */
typedef struct {
    uint64_t *rings; /* the word that idle workers sleep on */
    unsigned char *seats, *deques, *cells;
    uint32_t seat_count, priorities;
    uint64_t capacity, deque_bytes;
    uint64_t range, cell_bytes, payload_max, result_max;
    uint32_t claims_max, me;
    uint32_t skips[IL_PRIORITIES_MAX]; /* this process's own: ageing needs no agreement */
    uint64_t cursor;                   /* where the search for a FREE cell goes on */
    uint64_t chance;                   /* xorshift state for the first victim */
} il_pool;

static inline il_seat *il_pool_seat(const il_pool *pool, uint32_t seat)
{
    return (il_seat *)(pool->seats + (uint64_t)seat * sizeof(il_seat));
}

static inline il_deque *il_pool_deque(const il_pool *pool, uint32_t seat, uint32_t priority)
{
    return (il_deque *)(pool->deques + ((uint64_t)seat * pool->priorities + priority) * pool->deque_bytes);
}

static inline il_cell *il_pool_cell(const il_pool *pool, uint64_t index)
{
    return (il_cell *)(pool->cells + index * pool->cell_bytes);
}

static inline uint64_t il_pool_cell_count(const il_pool *pool) { return (uint64_t)pool->seat_count * pool->range; }

static inline uint64_t il_word(uint32_t state, uint32_t seat, uint32_t claims, uint32_t generation)
{
    return (uint64_t)state | (uint64_t)seat << 8 | (uint64_t)claims << 24 | (uint64_t)generation << 32;
}
static inline uint32_t il_word_state(uint64_t word) { return (uint32_t)(word & 0xFFu); }
static inline uint32_t il_word_seat(uint64_t word) { return (uint32_t)(word >> 8 & 0xFFFFu); }
static inline uint32_t il_word_claims(uint64_t word) { return (uint32_t)(word >> 24 & 0xFFu); }
static inline uint32_t il_word_generation(uint64_t word) { return (uint32_t)(word >> 32); }

static inline uint64_t il_id(uint64_t index, uint32_t generation) { return index | (uint64_t)generation << 32; }
static inline uint64_t il_id_index(uint64_t id) { return id & 0xFFFFFFFFu; }
static inline uint32_t il_id_generation(uint64_t id) { return (uint32_t)(id >> 32); }

/* The cell of an id, or NULL when the id cannot be one of this pool. */
static inline il_cell *il_pool_cell_of(const il_pool *pool, uint64_t id)
{
    uint64_t index = il_id_index(id);
    return index < il_pool_cell_count(pool) && il_id_generation(id) ? il_pool_cell(pool, index) : NULL;
}

static inline uint32_t il_cell_priority(const il_pool *pool, const il_cell *cell)
{
    uint32_t priority = (uint32_t)(il_load_own(&cell->meta) & 0xFFu);
    return priority < pool->priorities ? priority : pool->priorities - 1u; /* of a stale id: any will do */
}

static inline int il_cell_detached(const il_cell *cell) { return (int)(il_load_own(&cell->meta) >> 8 & 1u); }
static inline uint64_t il_cell_payload_bytes(const il_cell *cell) { return il_load_own(&cell->meta) >> 32; }

/* A FREE cell of mine, or NULL. Nobody else allocates in my range, so it stays mine until it is queued. */
static inline il_cell *il_pool_allocate(il_pool *pool, uint64_t *index)
{
    for (uint64_t looked = 0; looked < pool->range; looked++) {
        *index = (uint64_t)pool->me * pool->range + pool->cursor;
        pool->cursor = pool->cursor + 1u < pool->range ? pool->cursor + 1u : 0u;
        il_cell *cell = il_pool_cell(pool, *index);
        if (il_word_state(il_load(&cell->word)) == IL_FREE) return cell;
    }
    return NULL;
}

/* Submit. IL_POOL_NONE: no free cell, or my deque is full. The caller rings after IL_POOL_OK. */
static inline int il_pool_submit(il_pool *pool, const void *payload, uint64_t n, uint32_t priority, int detached,
                                 uint64_t *id)
{
    uint64_t index = 0;
    il_deque *deque = il_pool_deque(pool, pool->me, priority);
    if (il_deque_size(deque) >= pool->capacity) return IL_POOL_NONE; /* only I push: it cannot fill up meanwhile */
    il_cell *cell = il_pool_allocate(pool, &index);
    if (cell == NULL) return IL_POOL_NONE;
    uint64_t word = il_load(&cell->word);
    uint32_t generation = il_word_generation(word) ? il_word_generation(word) : 1u;
    il_store_own(&cell->meta, n << 32 | (uint64_t)(detached != 0) << 8 | priority);
    il_store_own(&cell->result_bytes, 0u);
    if (n) memcpy(cell->bytes, payload, n);
    if (!il_cas(&cell->word, &word, il_word(IL_QUEUED, pool->me, 0u, generation)))
        return IL_POOL_NONE; /* only a second owner of this seat could have moved it */
    *id = il_id(index, generation);
    il_deque_push(deque, pool->capacity, *id);
    return IL_POOL_OK;
}

/* QUEUED -> CLAIMED(me). IL_POOL_NONE: a stale or doubled id, to be dropped. */
static inline int il_pool_claim(il_pool *pool, uint64_t id)
{
    il_cell *cell = il_pool_cell_of(pool, id);
    if (cell == NULL) return IL_POOL_NONE;
    uint64_t word = il_load(&cell->word);
    while (il_word_state(word) == IL_QUEUED && il_word_generation(word) == il_id_generation(id)) {
        uint64_t claimed = il_word(IL_CLAIMED, pool->me, il_word_claims(word) + 1u, il_id_generation(id));
        if (il_cas(&cell->word, &word, claimed)) return IL_POOL_OK;
    }
    return IL_POOL_NONE;
}

static inline uint32_t il_pool_chance(il_pool *pool)
{
    uint64_t x = pool->chance ? pool->chance : 0x9E3779B97F4A7C15u + pool->me;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    pool->chance = x;
    return (uint32_t)(x >> 32);
}

/* One id of a priority: mine, else from a victim; a random first one, two rounds. */
static inline int il_pool_fetch(il_pool *pool, uint32_t priority, uint64_t *id)
{
    uint64_t *hand = &il_pool_seat(pool, pool->me)->hand;
    if (il_deque_pop(il_pool_deque(pool, pool->me, priority), pool->capacity, hand, id) == IL_DEQUE_DONE)
        return IL_POOL_OK;
    uint32_t first = il_pool_chance(pool) % pool->seat_count;
    for (uint32_t turn = 0; turn < IL_STEAL_ROUNDS * pool->seat_count; turn++) {
        uint32_t victim = (first + turn) % pool->seat_count;
        if (victim == pool->me) continue;
        if (il_deque_steal(il_pool_deque(pool, victim, priority), pool->capacity, hand, id) == IL_DEQUE_DONE)
            return IL_POOL_OK;
    }
    return IL_POOL_NONE;
}

static inline int il_pool_priority_waiting(const il_pool *pool, uint32_t priority)
{
    for (uint32_t seat = 0; seat < pool->seat_count; seat++)
        if (il_deque_size(il_pool_deque(pool, seat, priority))) return 1;
    return 0;
}

/* Whether any deque seems to hold an id: the second look after arming. */
static inline int il_pool_waiting(const il_pool *pool)
{
    for (uint32_t priority = 0; priority < pool->priorities; priority++)
        if (il_pool_priority_waiting(pool, priority)) return 1;
    return 0;
}

/* Which priority is served next: the most passed over when it has IL_SKIPS_MAX skips, else the most urgent. Every
 * other one that waits gains a skip. Returns the number of priorities when nothing waits. */
static inline uint32_t il_pool_choose(il_pool *pool)
{
    uint32_t chosen = pool->priorities, aged = pool->priorities;
    int waiting[IL_PRIORITIES_MAX] = {0};
    for (uint32_t each = 0; each < pool->priorities; each++) {
        waiting[each] = il_pool_priority_waiting(pool, each);
        if (!waiting[each]) {
            pool->skips[each] = 0u;
            continue;
        }
        if (chosen == pool->priorities) chosen = each;
        if (pool->skips[each] >= IL_SKIPS_MAX && (aged == pool->priorities || pool->skips[each] > pool->skips[aged]))
            aged = each;
    }
    if (aged != pool->priorities) chosen = aged;
    for (uint32_t each = 0; each < pool->priorities; each++)
        if (each == chosen) pool->skips[each] = 0u;
        else if (waiting[each]) pool->skips[each]++;
    return chosen;
}

/* Run, first half: a claimed task. IL_POOL_NONE: nothing to do. Stale ids are dropped on the way: each attempt takes
 * an id out of some deque, so the loop ends when the deques do. */
static inline int il_pool_take(il_pool *pool, uint64_t *id)
{
    uint64_t *hand = &il_pool_seat(pool, pool->me)->hand;
    for (;;) {
        uint32_t priority = il_pool_choose(pool);
        if (priority == pool->priorities) return IL_POOL_NONE;
        if (il_pool_fetch(pool, priority, id) != IL_POOL_OK) return IL_POOL_AGAIN; /* others were quicker */
        int claimed = il_pool_claim(pool, *id);
        il_store(hand, 0u);
        if (claimed == IL_POOL_OK) return IL_POOL_OK;
    }
}

/* FREE of the next generation. Generation 0 is passed over: ids are never 0. */
static inline uint64_t il_word_next(uint64_t word)
{
    uint32_t generation = il_word_generation(word) + 1u;
    return il_word(IL_FREE, 0u, 0u, generation ? generation : 1u);
}

/* Run, second half: CLAIMED(me) -> DONE or FAILED, with the result already written; a detached task is FREE at once.
 * IL_POOL_NONE: the task is not mine. */
static inline int il_pool_finish(il_pool *pool, uint64_t id, uint32_t state)
{
    il_cell *cell = il_pool_cell_of(pool, id);
    if (cell == NULL) return IL_POOL_NONE;
    uint64_t word = il_load(&cell->word);
    if (il_word_state(word) != IL_CLAIMED || il_word_seat(word) != pool->me ||
        il_word_generation(word) != il_id_generation(id))
        return IL_POOL_NONE;
    uint64_t next = il_cell_detached(cell) ? il_word_next(word)
                                           : il_word(state, pool->me, il_word_claims(word), il_id_generation(id));
    return il_cas(&cell->word, &word, next) ? IL_POOL_OK : IL_POOL_NONE;
}

static inline int il_state_ended(uint32_t state) { return state >= IL_DONE && state <= IL_POISONED; }

/* The submitter has read the result. IL_POOL_NONE: the task has not ended, or was released before. */
static inline int il_pool_release(il_pool *pool, uint64_t id)
{
    il_cell *cell = il_pool_cell_of(pool, id);
    if (cell == NULL) return IL_POOL_NONE;
    uint64_t word = il_load(&cell->word);
    if (!il_state_ended(il_word_state(word)) || il_word_generation(word) != il_id_generation(id)) return IL_POOL_NONE;
    return il_cas(&cell->word, &word, il_word_next(word)) ? IL_POOL_OK : IL_POOL_NONE;
}

/* The next ended task of my range at or after *index, which moves past it. IL_POOL_NONE: no more. */
static inline int il_pool_ended(const il_pool *pool, uint64_t *index, uint64_t *id, uint32_t *state)
{
    uint64_t base = (uint64_t)pool->me * pool->range;
    while (*index < pool->range) {
        uint64_t at = base + (*index)++;
        uint64_t word = il_load(&il_pool_cell(pool, at)->word);
        if (!il_state_ended(il_word_state(word))) continue;
        *id = il_id(at, il_word_generation(word));
        *state = il_word_state(word);
        return IL_POOL_OK;
    }
    return IL_POOL_NONE;
}

/* Lists an id on my deque if its task is still QUEUED. IL_POOL_AGAIN: my deque is full. */
static inline int il_pool_relist(il_pool *pool, uint64_t id)
{
    il_cell *cell = il_pool_cell_of(pool, id);
    if (cell == NULL) return IL_POOL_OK;
    uint64_t word = il_load(&cell->word);
    if (il_word_state(word) != IL_QUEUED || il_word_generation(word) != il_id_generation(id)) return IL_POOL_OK;
    il_deque *deque = il_pool_deque(pool, pool->me, il_cell_priority(pool, cell));
    return il_deque_push(deque, pool->capacity, id) == IL_DEQUE_DONE ? IL_POOL_OK : IL_POOL_AGAIN;
}

/* One task that the dead seat had claimed: queued again, or given up after claims_max claims. *ended counts the
 * latter, whose submitters want a ring. */
static inline int il_pool_reap_claimed(il_pool *pool, il_cell *cell, uint64_t index, uint64_t word, uint32_t *ended)
{
    uint32_t generation = il_word_generation(word), claims = il_word_claims(word);
    if (claims >= pool->claims_max) {
        uint64_t next = il_cell_detached(cell) ? il_word_next(word)
                                               : il_word(IL_POISONED, il_word_seat(word), claims, generation);
        if (il_cas(&cell->word, &word, next)) (*ended)++;
        return IL_POOL_OK;
    }
    /* First room, then the swap: a task that is QUEUED but nowhere listed would wait for the next reaping. In my hand
     * meanwhile: if I am killed in between, and its home is alive, no sweep would find it. */
    il_deque *deque = il_pool_deque(pool, pool->me, il_cell_priority(pool, cell));
    if (il_deque_size(deque) >= pool->capacity) return IL_POOL_AGAIN;
    uint64_t *hand = &il_pool_seat(pool, pool->me)->hand;
    il_store(hand, il_id(index, generation));
    if (il_cas(&cell->word, &word, il_word(IL_QUEUED, pool->me, claims, generation)))
        il_deque_push(deque, pool->capacity, il_id(index, generation));
    il_store(hand, 0u);
    return IL_POOL_OK;
}

/* Reap a dead seat whose lock byte the caller holds. *found counts what was listed again. IL_POOL_AGAIN: my deques
 * are full; nothing is lost, call again when some of it has run. */
static inline int il_pool_reap(il_pool *pool, uint32_t dead, uint32_t *found, uint32_t *ended)
{
    uint64_t first = (uint64_t)dead * pool->range, end = first + pool->range, id = 0;
    il_seat *seat = il_pool_seat(pool, dead);
    uint64_t *hand = &il_pool_seat(pool, pool->me)->hand;
    for (uint32_t priority = 0; priority < pool->priorities; priority++) {
        il_deque *deque = il_pool_deque(pool, dead, priority);
        if (dead == pool->me) { /* a newcomer on this seat: nobody else moves bottom, and what is listed may stay */
            il_deque_reset(deque);
            continue;
        }
        il_deque *mine = il_pool_deque(pool, pool->me, priority);
        while (il_deque_size(deque)) { /* ends: nobody pushes on a dead seat's deque */
            if (il_deque_size(mine) >= pool->capacity) return IL_POOL_AGAIN;
            if (il_deque_steal(deque, pool->capacity, hand, &id) != IL_DEQUE_DONE) continue;
            int listed = il_id_index(id) >= first && il_id_index(id) < end; /* by the sweep below */
            if (!listed && il_pool_relist(pool, id) != IL_POOL_OK) return IL_POOL_AGAIN;
            il_store(hand, 0u);
        }
        il_deque_reset(deque);
    }
    /* After the deques: what a newcomer pushes on its own before they are sound would be invisible. */
    if (il_pool_relist(pool, il_load(&seat->hand)) != IL_POOL_OK) return IL_POOL_AGAIN;
    for (uint64_t index = 0; index < il_pool_cell_count(pool); index++) {
        il_cell *cell = il_pool_cell(pool, index);
        uint64_t word = il_load(&cell->word);
        uint32_t state = il_word_state(word);
        int status = IL_POOL_OK, in_range = index >= first && index < end;
        if (state == IL_CLAIMED && il_word_seat(word) == dead) {
            status = il_pool_reap_claimed(pool, cell, index, word, ended);
            if (status == IL_POOL_OK) (*found)++;
        } else if (in_range && state == IL_QUEUED) {
            status = il_pool_relist(pool, il_id(index, il_word_generation(word)));
            if (status == IL_POOL_OK) (*found)++;
        } else if (in_range && il_state_ended(state)) {
            il_cas(&cell->word, &word, il_word_next(word)); /* its submitter is gone: nobody will read it */
        }
        if (status != IL_POOL_OK) return status;
    }
    il_store(&seat->hand, 0u);
    il_store(&seat->asleep, 0u);
    il_store(&seat->taken, 0u); /* last: a reaper killed before this is followed by another */
    return IL_POOL_OK;
}

/* Whether a seat of others sleeps: the look of doorbell step 1. */
static inline int il_pool_sleeper(const il_pool *pool)
{
    for (uint32_t seat = 0; seat < pool->seat_count; seat++)
        if (seat != pool->me && il_load(&il_pool_seat(pool, seat)->asleep)) return 1;
    return 0;
}

/* Doorbell step 1 towards the workers: one sleeper wakes for one task. The word changes first, so that a worker that
 * is about to sleep does not. 1 when somebody was asleep. */
static inline int il_pool_ring(const il_pool *pool)
{
    if (!il_pool_sleeper(pool)) return 0;
    il_add(pool->rings, 1u);
#if defined(__linux__)
    syscall(SYS_futex, il_low(pool->rings), FUTEX_WAKE, 1, NULL, NULL, 0);
#endif
    return 1;
}

#endif
