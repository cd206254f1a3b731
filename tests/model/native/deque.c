/* deque.h under an owner and thieves: every id leaves exactly once, and was in the taker's claimed_id before. */
#include "check.h"
#include "deque.h"

enum { CAPACITY = 64, IDS = 200000, THIEVES = 3 };

static il_deque *deque;
static uint64_t seen[IDS + 1], taken, stolen, claimed_ids[THIEVES + 1][8];

static void note(uint64_t id, const uint64_t *claimed_id)
{
    CHECK(id >= 1 && id <= IDS);
    CHECK(il_load(claimed_id) == id);
    CHECK(il_add(&seen[id], 1) == 0);
    il_add(&taken, 1);
}

static void *steal(void *mine)
{
    uint64_t *claimed_id = mine, id = 0;
    while (il_load(&taken) < IDS) {
        int result = il_deque_steal(deque, CAPACITY, claimed_id, &id);
        if (result == IL_DEQUE_DONE) {
            note(id, claimed_id);
            il_store(claimed_id, 0);
            il_add(&stolen, 1);
        } else {
            CHECK(il_load(claimed_id) == 0);
            sched_yield();
        }
    }
    return NULL;
}

int main(void)
{
    pthread_t thieves[THIEVES];
    uint64_t *claimed_id = claimed_ids[THIEVES], id = 0, next = 1, turn = 0;
    deque = zeroed(sizeof *deque + CAPACITY * 8);
    CHECK(il_deque_pop(deque, CAPACITY, claimed_id, &id) == IL_DEQUE_NONE);
    CHECK(il_deque_steal(deque, CAPACITY, claimed_id, &id) == IL_DEQUE_NONE);
    for (int each = 0; each < THIEVES; each++)
        CHECK(pthread_create(&thieves[each], NULL, steal, claimed_ids[each]) == 0);
    while (il_load(&taken) < IDS) {
        uint64_t pushes = mixed(turn++) % 5u;
        while (pushes-- && next <= IDS && il_deque_push(deque, CAPACITY, next) == IL_DEQUE_DONE) next++;
        if (mixed(turn * 3u) % 3u == 0 || next > IDS) {
            if (il_deque_pop(deque, CAPACITY, claimed_id, &id) == IL_DEQUE_DONE) {
                note(id, claimed_id);
                il_store(claimed_id, 0);
            } else {
                sched_yield();
            }
        }
    }
    for (int each = 0; each < THIEVES; each++) pthread_join(thieves[each], NULL);
    CHECK(il_load(&taken) == IDS);
    CHECK(il_deque_size(deque) == 0);

    /* A push to a full deque fails; an owner killed inside the pop of an empty one leaves bottom below top. */
    for (int each = 0; each < CAPACITY; each++) CHECK(il_deque_push(deque, CAPACITY, 7) == IL_DEQUE_DONE);
    CHECK(il_deque_push(deque, CAPACITY, 7) == IL_DEQUE_NONE);
    while (il_deque_steal(deque, CAPACITY, claimed_id, &id) == IL_DEQUE_DONE) continue;
    il_store(&deque->bottom, il_load(&deque->top) - 1u);
    CHECK(il_deque_size(deque) == 0);
    uint64_t stale = il_load(&deque->top);
    il_deque_reset(deque);
    CHECK(!il_cas(&deque->top, &stale, stale + 1u)); /* a thief that looked before the owner died */
    CHECK(il_deque_push(deque, CAPACITY, 9) == IL_DEQUE_DONE);
    CHECK(il_deque_pop(deque, CAPACITY, claimed_id, &id) == IL_DEQUE_DONE);
    CHECK(id == 9);
    printf("ok deque: %d ids, %llu stolen\n", IDS, (unsigned long long)il_load(&stolen));
    free(deque);
    return 0;
}
