/* task_table.h under threads: a submitter, workers that steal, and workers that stop at each step of a task and are
 * recovered. Every task finishes once; a task whose workers stop three times is poisoned. */
#include "check.h"
#include "task_table.h"

enum { MEMBERS = 4, PRIORITIES = 2, CAPACITY = 256, RANGE = 32, PAYLOAD = 64, RESULT = 64, TASKS = 20000 };

static unsigned char *area;
static uint64_t wakeups, stopped;

static il_task_table open_table(uint32_t member)
{
    il_task_table table = {.wakeups = &wakeups, .member_count = MEMBERS, .priorities = PRIORITIES, .capacity = CAPACITY,
                    .deque_bytes = sizeof(il_deque) + 8u * CAPACITY, .range = RANGE, .payload_max = PAYLOAD,
                    .result_max = RESULT, .cell_bytes = sizeof(il_cell) + PAYLOAD + RESULT, .claims_max = 3, .self = member};
    table.members = area;
    table.deques = table.members + MEMBERS * sizeof(il_member);
    table.cells = table.deques + MEMBERS * PRIORITIES * table.deque_bytes;
    return table;
}

static size_t area_bytes(void)
{
    return MEMBERS * sizeof(il_member) + MEMBERS * PRIORITIES * (sizeof(il_deque) + 8u * CAPACITY) +
           MEMBERS * RANGE * (sizeof(il_cell) + PAYLOAD + RESULT);
}

static void run(il_task_table *table, uint64_t id)
{
    il_cell *cell = il_table_cell_of(table, id);
    uint64_t number;
    CHECK(cell != NULL);
    CHECK(il_cell_payload_bytes(cell) == sizeof number);
    memcpy(&number, cell->bytes, sizeof number);
    number = mixed(number);
    memcpy(cell->bytes + table->payload_max, &number, sizeof number);
    il_store_own(&cell->result_bytes, sizeof number);
    CHECK(il_table_finish(table, id, IL_DONE) == IL_TABLE_OK);
}

static void *work(void *member)
{
    il_task_table table = open_table((uint32_t)(uintptr_t)member);
    il_member *line = il_table_member(&table, table.self);
    uint64_t id;
    while (!il_load(&stopped)) {
        int result = il_table_claim(&table, &id);
        if (result == IL_TABLE_OK) {
            run(&table, id);
        } else if (result == IL_TABLE_NONE) {
            uint32_t seen = (uint32_t)il_load(&wakeups);
            il_store(&line->asleep, 1);
            if (!il_table_has_queued(&table) && !il_load(&stopped)) il_futex_wait(il_low(&wakeups), seen, 1000000);
            il_store(&line->asleep, 0);
        }
    }
    return NULL;
}

/* A worker that stops after `steps`: 0 with an id in claimed_id, 1 after the claim, 2 inside the pop of its own deque. */
static void stop_inside(il_task_table *table, unsigned steps)
{
    uint64_t id, *claimed_id = &il_table_member(table, table->self)->claimed_id;
    il_store(&il_table_member(table, table->self)->in_use, 1);
    if (steps == 2) {
        uint64_t number = 1;
        if (il_table_submit(table, &number, sizeof number, 0, 1, &id) == IL_TABLE_OK) {
            il_store(claimed_id, id);
            il_add(&il_table_deque(table, table->self, 0)->bottom, UINT64_MAX);
        }
        return;
    }
    if (il_table_fetch(table, (uint32_t)steps % PRIORITIES, &id) != IL_TABLE_OK) return;
    if (steps == 1) (void)il_table_claim_id(table, id);
}

static uint64_t collect(il_task_table *table, uint64_t *poisoned)
{
    uint64_t index = 0, id, count = 0, number, result;
    uint32_t state;
    while (il_table_next_finished(table, &index, &id, &state) == IL_TABLE_OK) {
        il_cell *cell = il_table_cell_of(table, id);
        if (state == IL_POISONED) {
            (*poisoned)++;
        } else {
            memcpy(&number, cell->bytes, sizeof number);
            memcpy(&result, cell->bytes + table->payload_max, sizeof result);
            CHECK(result == mixed(number));
        }
        CHECK(il_table_release(table, id) == IL_TABLE_OK);
        CHECK(il_table_release(table, id) == IL_TABLE_NONE);
        count++;
    }
    return count;
}

static void storm(void)
{
    pthread_t workers[2];
    il_task_table owner = open_table(0), victim = open_table(3);
    uint64_t submitted = 0, ended = 0, poisoned = 0, recovered = 0, id;
    for (uintptr_t member = 1; member <= 2; member++)
        CHECK(pthread_create(&workers[member - 1], NULL, work, (void *)member) == 0);
    while (ended < TASKS) {
        while (submitted < TASKS) {
            uint64_t number = mixed(submitted);
            if (il_table_submit(&owner, &number, sizeof number, submitted % PRIORITIES, 0, &id) != IL_TABLE_OK) break;
            submitted++;
            il_table_wake_worker(&owner);
        }
        stop_inside(&victim, (unsigned)(ended % 3u));
        uint32_t found = 0, given_up = 0;
        int result = il_table_recover(&owner, 3, &found, &given_up);
        CHECK(result == IL_TABLE_OK || result == IL_TABLE_RETRY);
        recovered += found;
        if (found) il_table_wake_worker(&owner);
        ended += collect(&owner, &poisoned);
        sched_yield();
    }
    il_store(&stopped, 1);
    for (int each = 0; each < 2; each++) pthread_join(workers[each], NULL);
    CHECK(ended == TASKS);
    CHECK(submitted == TASKS);
    CHECK(recovered > 0);
    printf("ok task table: %d tasks, %llu recovered, %llu poisoned\n", TASKS, (unsigned long long)recovered,
           (unsigned long long)poisoned);
}

static void one_by_one(void)
{
    il_task_table owner = open_table(0), worker = open_table(1);
    uint64_t number = 5, id = 0, other = 0, poisoned = 0;
    uint32_t found = 0, ended = 0;
    CHECK(il_table_claim(&worker, &id) == IL_TABLE_NONE);
    CHECK(il_table_submit(&owner, &number, sizeof number, 1, 0, &id) == IL_TABLE_OK);
    for (int claims = 1; claims <= 3; claims++) {
        CHECK(il_table_claim(&worker, &other) == IL_TABLE_OK);
        CHECK(other == id);
        CHECK(il_table_claim_id(&owner, id) == IL_TABLE_NONE);
        found = ended = 0;
        CHECK(il_table_recover(&owner, 1, &found, &ended) == IL_TABLE_OK);
        CHECK(found == 1);
        CHECK(ended == (claims == 3));
    }
    CHECK(collect(&owner, &poisoned) == 1);
    CHECK(poisoned == 1);
    CHECK(il_table_finish(&worker, id, IL_DONE) == IL_TABLE_NONE);
    CHECK(il_table_claim_id(&worker, id) == IL_TABLE_NONE);
    for (int each = 0; each < RANGE; each++)
        CHECK(il_table_submit(&owner, &number, sizeof number, 0, 0, &id) == IL_TABLE_OK);
    CHECK(il_table_submit(&owner, &number, sizeof number, 0, 0, &id) == IL_TABLE_NONE);
    while (il_table_claim(&worker, &id) == IL_TABLE_OK) run(&worker, id);
    CHECK(collect(&owner, &poisoned) == RANGE);
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
