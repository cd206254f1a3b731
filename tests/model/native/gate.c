/* core.h under threads: a gate and slot counts that are entered, left and drained; the close happens once, outside. */
#include "check.h"
#include "core.h"

enum { WORKERS = 4, ROUNDS = 60 };

static uint64_t gate, state, counts[WORKERS][8];
static uint64_t inside, closed, refused;

static void *through_the_gate(void *unused)
{
    (void)unused;
    for (;;) {
        enum il_result result = il_gate_enter(&gate);
        if (result == IL_REFUSED) {
            if (IL_PHASE(il_load(&gate)) >= IL_DRAINING) return NULL;
            sched_yield();
            continue;
        }
        CHECK(result == IL_ENTERED);
        il_add(&inside, 1);
        CHECK(IL_PHASE(il_load(&gate)) != IL_CLOSED);
        il_add(&inside, UINT64_MAX);
        result = il_gate_exit(&gate);
        if (result == IL_LAST_EXIT) il_add(&closed, 1);
        else CHECK(result == IL_EXITED);
    }
}

static void scan(void)
{
    if (IL_PHASE(il_load(&state)) != IL_DRAINING) return;
    if (il_lifecycle_find_occupied(counts[0], WORKERS, 0) != WORKERS) return;
    uint64_t seen = IL_WORD(IL_DRAINING, 0);
    if (il_cas(&state, &seen, IL_WORD(IL_CLOSED, 0))) {
        CHECK(il_load(&inside) == 0);
        il_add(&closed, 1);
        il_futex_wake(il_high(&state));
    }
}

static void *on_a_slot(void *slot)
{
    uint64_t *count = slot;
    for (;;) {
        enum il_result result = il_lifecycle_enter(&state, count);
        if (result != IL_ENTERED) {
            if (result == IL_LAST_EXIT) scan();
            if (IL_PHASE(il_load(&state)) >= IL_DRAINING) return NULL;
            il_add(&refused, 1);
            sched_yield();
            continue;
        }
        il_add(&inside, 1);
        CHECK(IL_PHASE(il_load(&state)) != IL_CLOSED);
        il_add(&inside, UINT64_MAX);
        if (il_lifecycle_exit(&state, count) == IL_LAST_EXIT) scan();
    }
}

int main(void)
{
    pthread_t threads[WORKERS];
    for (int round = 0; round < ROUNDS; round++) {
        il_store(&gate, 0);
        il_store(&closed, 0);
        for (int each = 0; each < WORKERS; each++)
            CHECK(pthread_create(&threads[each], NULL, through_the_gate, NULL) == 0);
        CHECK(il_start(&gate, IL_RUNNING) == 1);
        CHECK(il_start(&gate, IL_RUNNING) == 0);
        for (int each = 0; each < round % 7; each++) sched_yield();
        if (il_gate_drain(&gate) == IL_CLOSED) il_add(&closed, 1);
        while (IL_PHASE(il_load(&gate)) != IL_CLOSED)
            il_futex_wait(il_high(&gate), IL_DRAINING, 50000000);
        for (int each = 0; each < WORKERS; each++) pthread_join(threads[each], NULL);
        CHECK(il_load(&closed) == 1);
        CHECK(il_gate_exit(&gate) == IL_NOT_INSIDE);

        il_store(&state, 0);
        il_store(&closed, 0);
        for (int each = 0; each < WORKERS; each++)
            CHECK(pthread_create(&threads[each], NULL, on_a_slot, counts[each]) == 0);
        CHECK(il_start(&state, IL_RUNNING) == 1);
        for (int each = 0; each < round % 7; each++) sched_yield();
        CHECK(il_lifecycle_drain(&state) == 1);
        scan();
        while (IL_PHASE(il_load(&state)) != IL_CLOSED)
            il_futex_wait(il_high(&state), IL_DRAINING, 50000000);
        for (int each = 0; each < WORKERS; each++) pthread_join(threads[each], NULL);
        CHECK(il_load(&closed) == 1);
        CHECK(il_lifecycle_exit(&state, counts[0]) == IL_NOT_INSIDE);
    }
    printf("ok gate and slots: %d rounds of %d threads\n", ROUNDS, WORKERS);
    return 0;
}
