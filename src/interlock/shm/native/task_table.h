/* The table of tasks, and the members of a pool that submit, run and steal them.
 *
 * Rule 1: a task's word changes only by compare-and-swap: FREE -> QUEUED(member) -> CLAIMED(member) -> DONE -> FREE
 *         with the next generation. So a task is claimed once, however often its id is in a deque.
 * Rule 2: each member allocates from its own range of cells; there is no shared free list that a kill could corrupt.
 * Rule 3: between a deque and the claim, an id is in the taker's claimed_id word.
 * Rule 4: the process that holds the lock byte of a dead member may recover it. A recovery may be killed and repeated:
 *         each of its steps either changes nothing or adds one more task to a deque.
 * Rule 5: the payload stays as submitted until the task is done: results have their own bytes.
 *
 * word  = state | member << 8 | claims << 24 | generation << 32; id = index | generation << 32; generation is never 0,
 *         so that no id is 0. meta = payload bytes << 32 | detached << 8 | priority.
 * A member is a line {claimed_id, asleep, in_use, term}; it is not a slot of the region, because one process may be in
 * several pools. This file does not include Python.h, so sanitizers compile it alone.
 */
#ifndef INTERLOCK_TASK_TABLE_H
#define INTERLOCK_TASK_TABLE_H

#include <stdint.h>
#include <string.h>

#include "core.h"
#include "deque.h"

#define IL_PRIORITIES_MAX 8u
#define IL_SKIPS_MAX 8u
#define IL_MEMBERS_MAX 4096u
#define IL_STEAL_ROUNDS 2u

enum { IL_FREE = 0, IL_QUEUED = 1, IL_CLAIMED = 2, IL_DONE = 3, IL_FAILED = 4, IL_POISONED = 5 };
enum { IL_TABLE_RETRY = -1, IL_TABLE_NONE = 0, IL_TABLE_OK = 1 };

typedef struct {
    uint64_t claimed_id; /* the id that is between a deque and its claim */
    uint64_t asleep;     /* 1: wake me; only this member writes it */
    uint64_t in_use;     /* 1: a process joined as this member, and it was not recovered since */
    uint64_t term;       /* the number of owners that the pool has had; of the owner's member only */
    uint64_t unused[4];
} il_member;

typedef struct {
    uint64_t word;
    uint64_t meta;
    uint64_t result_bytes;
    uint64_t unused[5];
    unsigned char bytes[]; /* the payload, then the result */
} il_cell;

_Static_assert(sizeof(il_member) == 64, "a member is a cache line");
_Static_assert(sizeof(il_cell) == 64, "a cell is a cache line and its bytes");

/* The addresses of the table in this process. Computed from the sizes, never stored in the region. */
typedef struct {
    uint64_t *wakeups; /* the word that idle workers sleep on */
    unsigned char *members, *deques, *cells;
    uint32_t member_count, priorities;
    uint64_t capacity, deque_bytes;
    uint64_t range, cell_bytes, payload_max, result_max;
    uint32_t claims_max, self;
    uint32_t skips[IL_PRIORITIES_MAX]; /* per process: the members need not agree */
    uint64_t cursor;                   /* where the search for a FREE cell continues */
    uint64_t random;                   /* xorshift state for the first victim */
} il_task_table;

static inline il_member *il_table_member(const il_task_table *table, uint32_t member)
{
    return (il_member *)(table->members + (uint64_t)member * sizeof(il_member));
}

static inline il_deque *il_table_deque(const il_task_table *table, uint32_t member, uint32_t priority)
{
    return (il_deque *)(table->deques + ((uint64_t)member * table->priorities + priority) * table->deque_bytes);
}

static inline il_cell *il_table_cell(const il_task_table *table, uint64_t index)
{
    return (il_cell *)(table->cells + index * table->cell_bytes);
}

static inline uint64_t il_table_cell_count(const il_task_table *table)
{
    return (uint64_t)table->member_count * table->range;
}

static inline uint64_t il_word(uint32_t state, uint32_t member, uint32_t claims, uint32_t generation)
{
    return (uint64_t)state | (uint64_t)member << 8 | (uint64_t)claims << 24 | (uint64_t)generation << 32;
}
static inline uint32_t il_word_state(uint64_t word) { return (uint32_t)(word & 0xFFu); }
static inline uint32_t il_word_member(uint64_t word) { return (uint32_t)(word >> 8 & 0xFFFFu); }
static inline uint32_t il_word_claims(uint64_t word) { return (uint32_t)(word >> 24 & 0xFFu); }
static inline uint32_t il_word_generation(uint64_t word) { return (uint32_t)(word >> 32); }

static inline uint64_t il_id(uint64_t index, uint32_t generation) { return index | (uint64_t)generation << 32; }
static inline uint64_t il_id_index(uint64_t id) { return id & 0xFFFFFFFFu; }
static inline uint32_t il_id_generation(uint64_t id) { return (uint32_t)(id >> 32); }

/* The cell of an id, or NULL if the id is not one of this pool. */
static inline il_cell *il_table_cell_of(const il_task_table *table, uint64_t id)
{
    uint64_t index = il_id_index(id);
    return index < il_table_cell_count(table) && il_id_generation(id) ? il_table_cell(table, index) : NULL;
}

static inline uint32_t il_cell_priority(const il_task_table *table, const il_cell *cell)
{
    uint32_t priority = (uint32_t)(il_load_own(&cell->meta) & 0xFFu);
    return priority < table->priorities ? priority : table->priorities - 1u; /* of a stale id: any priority is right */
}

static inline int il_cell_detached(const il_cell *cell) { return (int)(il_load_own(&cell->meta) >> 8 & 1u); }
static inline uint64_t il_cell_payload_bytes(const il_cell *cell) { return il_load_own(&cell->meta) >> 32; }

/* A FREE cell of this member's range, or NULL. No other member allocates there, so it stays FREE until it is queued. */
static inline il_cell *il_table_allocate(il_task_table *table, uint64_t *index)
{
    for (uint64_t checked = 0; checked < table->range; checked++) {
        *index = (uint64_t)table->self * table->range + table->cursor;
        table->cursor = table->cursor + 1u < table->range ? table->cursor + 1u : 0u;
        il_cell *cell = il_table_cell(table, *index);
        if (il_word_state(il_load(&cell->word)) == IL_FREE) return cell;
    }
    return NULL;
}

/* Submits a task. IL_TABLE_NONE: no free cell, or the deque is full. The caller wakes a worker after IL_TABLE_OK. */
static inline int il_table_submit(il_task_table *table, const void *payload, uint64_t n, uint32_t priority,
                                  int detached, uint64_t *id)
{
    uint64_t index = 0;
    il_deque *deque = il_table_deque(table, table->self, priority);
    if (il_deque_size(deque) >= table->capacity) return IL_TABLE_NONE; /* only this member pushes: it stays so */
    il_cell *cell = il_table_allocate(table, &index);
    if (cell == NULL) return IL_TABLE_NONE;
    uint64_t word = il_load(&cell->word);
    uint32_t generation = il_word_generation(word) ? il_word_generation(word) : 1u;
    il_store_own(&cell->meta, n << 32 | (uint64_t)(detached != 0) << 8 | priority);
    il_store_own(&cell->result_bytes, 0u);
    if (n) memcpy(cell->bytes, payload, n);
    if (!il_cas(&cell->word, &word, il_word(IL_QUEUED, table->self, 0u, generation)))
        return IL_TABLE_NONE; /* only a second process as this member could have changed it */
    *id = il_id(index, generation);
    il_deque_push(deque, table->capacity, *id);
    return IL_TABLE_OK;
}

/* QUEUED -> CLAIMED(self). IL_TABLE_NONE: a stale or duplicate id, to be dropped. */
static inline int il_table_claim_id(il_task_table *table, uint64_t id)
{
    il_cell *cell = il_table_cell_of(table, id);
    if (cell == NULL) return IL_TABLE_NONE;
    uint64_t word = il_load(&cell->word);
    while (il_word_state(word) == IL_QUEUED && il_word_generation(word) == il_id_generation(id)) {
        uint64_t claimed = il_word(IL_CLAIMED, table->self, il_word_claims(word) + 1u, il_id_generation(id));
        if (il_cas(&cell->word, &word, claimed)) return IL_TABLE_OK;
    }
    return IL_TABLE_NONE;
}

static inline uint32_t il_table_random(il_task_table *table)
{
    uint64_t x = table->random ? table->random : 0x9E3779B97F4A7C15u + table->self;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    table->random = x;
    return (uint32_t)(x >> 32);
}

/* One id of a priority: from the own deque, else stolen from other members, two rounds from a random first one. */
static inline int il_table_fetch(il_task_table *table, uint32_t priority, uint64_t *id)
{
    uint64_t *claimed_id = &il_table_member(table, table->self)->claimed_id;
    if (il_deque_pop(il_table_deque(table, table->self, priority), table->capacity, claimed_id, id) == IL_DEQUE_DONE)
        return IL_TABLE_OK;
    uint32_t first = il_table_random(table) % table->member_count;
    for (uint32_t turn = 0; turn < IL_STEAL_ROUNDS * table->member_count; turn++) {
        uint32_t victim = (first + turn) % table->member_count;
        if (victim == table->self) continue;
        if (il_deque_steal(il_table_deque(table, victim, priority), table->capacity, claimed_id, id) == IL_DEQUE_DONE)
            return IL_TABLE_OK;
    }
    return IL_TABLE_NONE;
}

static inline int il_table_priority_has_queued(const il_task_table *table, uint32_t priority)
{
    for (uint32_t member = 0; member < table->member_count; member++)
        if (il_deque_size(il_table_deque(table, member, priority))) return 1;
    return 0;
}

/* Whether any deque has an id: the second check of a worker that is about to sleep. */
static inline int il_table_has_queued(const il_task_table *table)
{
    for (uint32_t priority = 0; priority < table->priorities; priority++)
        if (il_table_priority_has_queued(table, priority)) return 1;
    return 0;
}

/* The priority to serve: the one with the most skips if it has IL_SKIPS_MAX or more, else the most urgent one. The
 * skips of every other waiting priority increase by one. Returns the number of priorities if none waits. */
static inline uint32_t il_table_choose_priority(il_task_table *table)
{
    uint32_t chosen = table->priorities, oldest = table->priorities;
    int waiting[IL_PRIORITIES_MAX] = {0};
    for (uint32_t each = 0; each < table->priorities; each++) {
        waiting[each] = il_table_priority_has_queued(table, each);
        if (!waiting[each]) {
            table->skips[each] = 0u;
            continue;
        }
        if (chosen == table->priorities) chosen = each;
        if (table->skips[each] >= IL_SKIPS_MAX &&
            (oldest == table->priorities || table->skips[each] > table->skips[oldest]))
            oldest = each;
    }
    if (oldest != table->priorities) chosen = oldest;
    for (uint32_t each = 0; each < table->priorities; each++)
        if (each == chosen) table->skips[each] = 0u;
        else if (waiting[each]) table->skips[each]++;
    return chosen;
}

/* Claims a task. IL_TABLE_NONE: there is none. Stale ids are dropped: each round removes an id from some deque, so the
 * loop ends. */
static inline int il_table_claim(il_task_table *table, uint64_t *id)
{
    uint64_t *claimed_id = &il_table_member(table, table->self)->claimed_id;
    for (;;) {
        uint32_t priority = il_table_choose_priority(table);
        if (priority == table->priorities) return IL_TABLE_NONE;
        if (il_table_fetch(table, priority, id) != IL_TABLE_OK) return IL_TABLE_RETRY; /* other members were faster */
        int claimed = il_table_claim_id(table, *id);
        il_store(claimed_id, 0u);
        if (claimed == IL_TABLE_OK) return IL_TABLE_OK;
    }
}

/* FREE with the next generation. Generation 0 is skipped: ids are never 0. */
static inline uint64_t il_word_free(uint64_t word)
{
    uint32_t generation = il_word_generation(word) + 1u;
    return il_word(IL_FREE, 0u, 0u, generation ? generation : 1u);
}

/* CLAIMED(self) -> DONE or FAILED, after the result was written; a detached task becomes FREE immediately.
 * IL_TABLE_NONE: this member has not claimed the task. */
static inline int il_table_finish(il_task_table *table, uint64_t id, uint32_t state)
{
    il_cell *cell = il_table_cell_of(table, id);
    if (cell == NULL) return IL_TABLE_NONE;
    uint64_t word = il_load(&cell->word);
    if (il_word_state(word) != IL_CLAIMED || il_word_member(word) != table->self ||
        il_word_generation(word) != il_id_generation(id))
        return IL_TABLE_NONE;
    uint64_t next = il_cell_detached(cell) ? il_word_free(word)
                                           : il_word(state, table->self, il_word_claims(word), il_id_generation(id));
    return il_cas(&cell->word, &word, next) ? IL_TABLE_OK : IL_TABLE_NONE;
}

static inline int il_state_finished(uint32_t state) { return state >= IL_DONE && state <= IL_POISONED; }

/* Frees a cell after its result was read. IL_TABLE_NONE: the task has not finished, or was released before. */
static inline int il_table_release(il_task_table *table, uint64_t id)
{
    il_cell *cell = il_table_cell_of(table, id);
    if (cell == NULL) return IL_TABLE_NONE;
    uint64_t word = il_load(&cell->word);
    if (!il_state_finished(il_word_state(word)) || il_word_generation(word) != il_id_generation(id))
        return IL_TABLE_NONE;
    return il_cas(&cell->word, &word, il_word_free(word)) ? IL_TABLE_OK : IL_TABLE_NONE;
}

/* The next finished task of this member's range at or after *index, which moves past it. IL_TABLE_NONE: no more. */
static inline int il_table_next_finished(const il_task_table *table, uint64_t *index, uint64_t *id, uint32_t *state)
{
    uint64_t base = (uint64_t)table->self * table->range;
    while (*index < table->range) {
        uint64_t at = base + (*index)++;
        uint64_t word = il_load(&il_table_cell(table, at)->word);
        if (!il_state_finished(il_word_state(word))) continue;
        *id = il_id(at, il_word_generation(word));
        *state = il_word_state(word);
        return IL_TABLE_OK;
    }
    return IL_TABLE_NONE;
}

/* Pushes an id to this member's deque if its task is still QUEUED. IL_TABLE_RETRY: the deque is full. */
static inline int il_table_requeue(il_task_table *table, uint64_t id)
{
    il_cell *cell = il_table_cell_of(table, id);
    if (cell == NULL) return IL_TABLE_OK;
    uint64_t word = il_load(&cell->word);
    if (il_word_state(word) != IL_QUEUED || il_word_generation(word) != il_id_generation(id)) return IL_TABLE_OK;
    il_deque *deque = il_table_deque(table, table->self, il_cell_priority(table, cell));
    return il_deque_push(deque, table->capacity, id) == IL_DEQUE_DONE ? IL_TABLE_OK : IL_TABLE_RETRY;
}

/* Recovers one task that the dead member had claimed: it is queued again, or given up after claims_max claims.
 * *given_up counts the latter, whose submitters must be notified. */
static inline int il_table_recover_claimed(il_task_table *table, il_cell *cell, uint64_t index, uint64_t word,
                                           uint32_t *given_up)
{
    uint32_t generation = il_word_generation(word), claims = il_word_claims(word);
    if (claims >= table->claims_max) {
        uint64_t next = il_cell_detached(cell) ? il_word_free(word)
                                               : il_word(IL_POISONED, il_word_member(word), claims, generation);
        if (il_cas(&cell->word, &word, next)) (*given_up)++;
        return IL_TABLE_OK;
    }
    /* Check the space first, then swap: a QUEUED task in no deque would wait for the next recovery. Its id is in this
     * member's claimed_id meanwhile: if this process is killed before the push, and the submitter is alive, only a
     * recovery of that word finds the task. */
    il_deque *deque = il_table_deque(table, table->self, il_cell_priority(table, cell));
    if (il_deque_size(deque) >= table->capacity) return IL_TABLE_RETRY;
    uint64_t *claimed_id = &il_table_member(table, table->self)->claimed_id;
    il_store(claimed_id, il_id(index, generation));
    if (il_cas(&cell->word, &word, il_word(IL_QUEUED, table->self, claims, generation)))
        il_deque_push(deque, table->capacity, il_id(index, generation));
    il_store(claimed_id, 0u);
    return IL_TABLE_OK;
}

/* Recovers a dead member whose lock byte the caller holds. *found counts its tasks. IL_TABLE_RETRY: the deques of this
 * member are full; no task is lost, call again when some of them have run. */
static inline int il_table_recover(il_task_table *table, uint32_t dead, uint32_t *found, uint32_t *given_up)
{
    uint64_t first = (uint64_t)dead * table->range, end = first + table->range, id = 0;
    il_member *member = il_table_member(table, dead);
    uint64_t *claimed_id = &il_table_member(table, table->self)->claimed_id;
    for (uint32_t priority = 0; priority < table->priorities; priority++) {
        il_deque *deque = il_table_deque(table, dead, priority);
        if (dead == table->self) { /* this process replaces the dead one: only it moves bottom, and the ids may stay */
            il_deque_reset(deque);
            continue;
        }
        il_deque *own = il_table_deque(table, table->self, priority);
        while (il_deque_size(deque)) { /* ends: no process pushes to the deque of a dead member */
            if (il_deque_size(own) >= table->capacity) return IL_TABLE_RETRY;
            if (il_deque_steal(deque, table->capacity, claimed_id, &id) != IL_DEQUE_DONE) continue;
            int in_range = il_id_index(id) >= first && il_id_index(id) < end; /* requeued with its cell, below */
            if (!in_range && il_table_requeue(table, id) != IL_TABLE_OK) return IL_TABLE_RETRY;
            il_store(claimed_id, 0u);
        }
        il_deque_reset(deque);
    }
    /* After the deques: an id that is pushed to a deque before its repair would be invisible. */
    if (il_table_requeue(table, il_load(&member->claimed_id)) != IL_TABLE_OK) return IL_TABLE_RETRY;
    for (uint64_t index = 0; index < il_table_cell_count(table); index++) {
        il_cell *cell = il_table_cell(table, index);
        uint64_t word = il_load(&cell->word);
        uint32_t state = il_word_state(word);
        int status = IL_TABLE_OK, in_range = index >= first && index < end;
        if (state == IL_CLAIMED && il_word_member(word) == dead) {
            status = il_table_recover_claimed(table, cell, index, word, given_up);
            if (status == IL_TABLE_OK) (*found)++;
        } else if (in_range && state == IL_QUEUED) {
            status = il_table_requeue(table, il_id(index, il_word_generation(word)));
            if (status == IL_TABLE_OK) (*found)++;
        } else if (in_range && il_state_finished(state)) {
            il_cas(&cell->word, &word, il_word_free(word)); /* its submitter is dead and will not read the result */
        }
        if (status != IL_TABLE_OK) return status;
    }
    il_store(&member->claimed_id, 0u);
    il_store(&member->asleep, 0u);
    il_store(&member->in_use, 0u); /* last: if this process is killed before, another one recovers */
    return IL_TABLE_OK;
}

/* Whether another member sleeps (step 1 of the notifier). */
static inline int il_table_has_sleeper(const il_task_table *table)
{
    for (uint32_t member = 0; member < table->member_count; member++)
        if (member != table->self && il_load(&il_table_member(table, member)->asleep)) return 1;
    return 0;
}

/* Wakes one sleeping worker for one task. The word changes first, so that a worker that is about to sleep does not.
 * Returns 1 if a worker slept. */
static inline int il_table_wake_worker(const il_task_table *table)
{
    if (!il_table_has_sleeper(table)) return 0;
    il_add(table->wakeups, 1u);
#if defined(__linux__)
    syscall(SYS_futex, il_low(table->wakeups), FUTEX_WAKE, 1, NULL, NULL, 0);
#endif
    return 1;
}

#endif
