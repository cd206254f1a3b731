/* lanes.h under two threads: every message arrives once, whole and in order, through every wrap; the bell is not lost. */
#include "check.h"
#include "lanes.h"

enum { RING = 512, MESSAGES = 100000 };

static il_lane *lane;
static uint64_t asleep, rings;

static uint64_t length_of(uint64_t number) { return mixed(number) % (il_lane_payload_max(RING) + 1u); }

static void fill(unsigned char *payload, uint64_t number, uint64_t n)
{
    for (uint64_t each = 0; each < n; each++) payload[each] = (unsigned char)mixed(number * 1024u + each);
}

static void *produce(void *unused)
{
    (void)unused;
    unsigned char payload[RING];
    for (uint64_t number = 0; number < MESSAGES; number++) {
        uint64_t n = length_of(number);
        fill(payload, number, n);
        int answer;
        while ((answer = il_lane_push(lane, RING, payload, n)) == IL_LANE_FULL) sched_yield();
        CHECK(answer == IL_LANE_DONE);
        if (il_load(&asleep)) { /* step 1: publish, look, ring; never clear */
            il_add(&rings, 1);
            il_futex_wake(il_low(&rings));
        }
    }
    return NULL;
}

static uint64_t drained(uint64_t number)
{
    unsigned char expected[RING];
    uint64_t head, tail;
    const unsigned char *payload;
    uint32_t n;
    CHECK(il_lane_begin(lane, RING, &head, &tail) == IL_LANE_DONE);
    int answer;
    while ((answer = il_lane_next(lane, RING, &head, tail, &payload, &n)) == IL_LANE_DONE) {
        CHECK(n == length_of(number));
        fill(expected, number, n);
        CHECK(memcmp(expected, payload, n) == 0);
        number++;
    }
    CHECK(answer == IL_LANE_FULL);
    il_lane_finish(lane, head);
    return number;
}

/* The consumer's side of the bell, steps 2 to 4. */
static void consume(void)
{
    uint64_t number = 0, sleeps = 0, late = 0;
    while (number < MESSAGES) {
        uint64_t before = number;
        number = drained(number);
        if (number != before) continue;
        uint32_t seen = (uint32_t)il_load(&rings);
        il_store(&asleep, 1);
        if (!il_lane_waiting(lane)) {
            int answer = il_futex_wait(il_low(&rings), seen, 900000000);
            late += answer == ETIMEDOUT && il_lane_waiting(lane); /* it was published, and nobody rang */
            sleeps++;
        }
        il_store(&asleep, 0);
    }
    CHECK(late == 0);
    CHECK(!il_lane_waiting(lane));
    printf("ok lane: %d messages, %llu sleeps\n", MESSAGES, (unsigned long long)sleeps);
}

/* Answers that need no second thread: limits, and bytes that no producer wrote. */
static void refusals(void)
{
    unsigned char payload[RING] = {0};
    uint64_t head, tail;
    const unsigned char *found;
    uint32_t n;
    il_lane *one = zeroed(sizeof *one + RING);
    CHECK(il_lane_push(one, RING, payload, il_lane_payload_max(RING) + 1u) == IL_LANE_TOO_LARGE);
    for (uint64_t offset = 0; offset < RING; offset += 8) { /* the largest message fits wherever the ring stands */
        il_store(&one->tail, offset);
        il_store(&one->head, offset);
        il_store(&one->head_cached, offset);
        CHECK(il_lane_push(one, RING, payload, il_lane_payload_max(RING)) == IL_LANE_DONE);
        CHECK(il_lane_begin(one, RING, &head, &tail) == IL_LANE_DONE);
        CHECK(il_lane_next(one, RING, &head, tail, &found, &n) == IL_LANE_DONE);
        CHECK(n == il_lane_payload_max(RING));
        CHECK(il_lane_next(one, RING, &head, tail, &found, &n) == IL_LANE_FULL);
        il_lane_finish(one, head);
    }
    uint32_t lies[] = {RING, RING / 2 - 7, 0x7FFFFFFF, IL_LANE_SKIP - 1, IL_LANE_SKIP};
    for (size_t each = 0; each < sizeof lies / sizeof lies[0]; each++) {
        memset(one, 0, sizeof *one + RING);
        memcpy(one->ring, &lies[each], 4);
        il_store(&one->tail, 64);
        CHECK(il_lane_begin(one, RING, &head, &tail) == IL_LANE_DONE);
        CHECK(il_lane_next(one, RING, &head, tail, &found, &n) == IL_LANE_CORRUPT);
    }
    il_store(&one->tail, RING * 3);
    CHECK(il_lane_begin(one, RING, &head, &tail) == IL_LANE_CORRUPT);
    free(one);
}

int main(void)
{
    pthread_t producer;
    refusals();
    lane = zeroed(sizeof *lane + RING);
    CHECK(pthread_create(&producer, NULL, produce, NULL) == 0);
    consume();
    pthread_join(producer, NULL);
    free(lane);
    return 0;
}
