/* slab.h under threads: a submitter, workers that steal, and workers that vanish at each point of a task's way and are
 * reaped. Every task ends once; a task that takes three workers with it is poisoned. */
#include "check.h"
#include "slab.h"

enum { SEATS = 4, PRIORITIES = 2, CAPACITY = 256, RANGE = 32, PAYLOAD = 64, RESULT = 64, TASKS = 20000 };

static unsigned char *area;
static uint64_t rings, stopped;

static il_pool pool_of(uint32_t me)
{
    il_pool pool = {.rings = &rings, .seat_count = SEATS, .priorities = PRIORITIES, .capacity = CAPACITY,
                    .deque_bytes = sizeof(il_deque) + 8u * CAPACITY, .range = RANGE, .payload_max = PAYLOAD,
                    .result_max = RESULT, .cell_bytes = sizeof(il_cell) + PAYLOAD + RESULT, .claims_max = 3, .me = me};
    pool.seats = area;
    pool.deques = pool.seats + SEATS * sizeof(il_seat);
    pool.cells = pool.deques + SEATS * PRIORITIES * pool.deque_bytes;
    return pool;
}

static size_t area_bytes(void)
{
    return SEATS * sizeof(il_seat) + SEATS * PRIORITIES * (sizeof(il_deque) + 8u * CAPACITY) +
           SEATS * RANGE * (sizeof(il_cell) + PAYLOAD + RESULT);
}

static void run(il_pool *pool, uint64_t id)
{
    il_cell *cell = il_pool_cell_of(pool, id);
    uint64_t number;
    CHECK(cell != NULL);
    CHECK(il_cell_payload_bytes(cell) == sizeof number);
    memcpy(&number, cell->bytes, sizeof number);
    number = mixed(number);
    memcpy(cell->bytes + pool->payload_max, &number, sizeof number);
    il_store_own(&cell->result_bytes, sizeof number);
    CHECK(il_pool_finish(pool, id, IL_DONE) == IL_POOL_OK);
}

static void *work(void *seat)
{
    il_pool pool = pool_of((uint32_t)(uintptr_t)seat);
    il_seat *line = il_pool_seat(&pool, pool.me);
    uint64_t id;
    while (!il_load(&stopped)) {
        int answer = il_pool_take(&pool, &id);
        if (answer == IL_POOL_OK) {
            run(&pool, id);
        } else if (answer == IL_POOL_NONE) {
            uint32_t seen = (uint32_t)il_load(&rings);
            il_store(&line->asleep, 1);
            if (!il_pool_waiting(&pool) && !il_load(&stopped)) il_futex_wait(il_low(&rings), seen, 1000000);
            il_store(&line->asleep, 0);
        }
    }
    return NULL;
}

/* A worker that vanishes after `steps`: 0 with an id in hand, 1 after the claim, 2 inside the pop of its own deque. */
static void vanish(il_pool *pool, unsigned steps)
{
    uint64_t id, *hand = &il_pool_seat(pool, pool->me)->hand;
    il_store(&il_pool_seat(pool, pool->me)->taken, 1);
    if (steps == 2) {
        uint64_t number = 1;
        if (il_pool_submit(pool, &number, sizeof number, 0, 1, &id) == IL_POOL_OK) {
            il_store(hand, id);
            il_add(&il_pool_deque(pool, pool->me, 0)->bottom, UINT64_MAX);
        }
        return;
    }
    if (il_pool_fetch(pool, (uint32_t)steps % PRIORITIES, &id) != IL_POOL_OK) return;
    if (steps == 1) (void)il_pool_claim(pool, id);
}

static uint64_t collected(il_pool *pool, uint64_t *poisoned)
{
    uint64_t index = 0, id, count = 0, number, result;
    uint32_t state;
    while (il_pool_ended(pool, &index, &id, &state) == IL_POOL_OK) {
        il_cell *cell = il_pool_cell_of(pool, id);
        if (state == IL_POISONED) {
            (*poisoned)++;
        } else {
            memcpy(&number, cell->bytes, sizeof number);
            memcpy(&result, cell->bytes + pool->payload_max, sizeof result);
            CHECK(result == mixed(number));
        }
        CHECK(il_pool_release(pool, id) == IL_POOL_OK);
        CHECK(il_pool_release(pool, id) == IL_POOL_NONE);
        count++;
    }
    return count;
}

static void storm(void)
{
    pthread_t workers[2];
    il_pool owner = pool_of(0), victim = pool_of(3);
    uint64_t submitted = 0, ended = 0, poisoned = 0, reaped = 0, id;
    for (uintptr_t seat = 1; seat <= 2; seat++)
        CHECK(pthread_create(&workers[seat - 1], NULL, work, (void *)seat) == 0);
    while (ended < TASKS) {
        while (submitted < TASKS) {
            uint64_t number = mixed(submitted);
            if (il_pool_submit(&owner, &number, sizeof number, submitted % PRIORITIES, 0, &id) != IL_POOL_OK) break;
            submitted++;
            il_pool_ring(&owner);
        }
        vanish(&victim, (unsigned)(ended % 3u));
        uint32_t found = 0, gone = 0;
        int answer = il_pool_reap(&owner, 3, &found, &gone);
        CHECK(answer == IL_POOL_OK || answer == IL_POOL_AGAIN);
        reaped += found;
        if (found) il_pool_ring(&owner);
        ended += collected(&owner, &poisoned);
        sched_yield();
    }
    il_store(&stopped, 1);
    for (int each = 0; each < 2; each++) pthread_join(workers[each], NULL);
    CHECK(ended == TASKS);
    CHECK(submitted == TASKS);
    CHECK(reaped > 0);
    printf("ok slab: %d tasks, %llu reaped, %llu poisoned\n", TASKS, (unsigned long long)reaped,
           (unsigned long long)poisoned);
}

static void one_by_one(void)
{
    il_pool owner = pool_of(0), worker = pool_of(1);
    uint64_t number = 5, id = 0, other = 0, poisoned = 0;
    uint32_t found = 0, ended = 0;
    CHECK(il_pool_take(&worker, &id) == IL_POOL_NONE);
    CHECK(il_pool_submit(&owner, &number, sizeof number, 1, 0, &id) == IL_POOL_OK);
    for (int claims = 1; claims <= 3; claims++) {
        CHECK(il_pool_take(&worker, &other) == IL_POOL_OK);
        CHECK(other == id);
        CHECK(il_pool_claim(&owner, id) == IL_POOL_NONE);
        found = ended = 0;
        CHECK(il_pool_reap(&owner, 1, &found, &ended) == IL_POOL_OK);
        CHECK(found == 1);
        CHECK(ended == (claims == 3));
    }
    CHECK(collected(&owner, &poisoned) == 1);
    CHECK(poisoned == 1);
    CHECK(il_pool_finish(&worker, id, IL_DONE) == IL_POOL_NONE);
    CHECK(il_pool_claim(&worker, id) == IL_POOL_NONE);
    for (int each = 0; each < RANGE; each++)
        CHECK(il_pool_submit(&owner, &number, sizeof number, 0, 0, &id) == IL_POOL_OK);
    CHECK(il_pool_submit(&owner, &number, sizeof number, 0, 0, &id) == IL_POOL_NONE);
    while (il_pool_take(&worker, &id) == IL_POOL_OK) run(&worker, id);
    CHECK(collected(&owner, &poisoned) == RANGE);
}

int main(void)
{
    area = zeroed(area_bytes());
    one_by_one();
    memset(area, 0, area_bytes());
    storm();
    free(area);
    return 0;
}
