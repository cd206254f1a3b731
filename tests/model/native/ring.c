/* ring.h under two threads: every message arrives once, whole and in order, through every wrap; no notification is lost. */
#include "check.h"
#include "ring.h"

enum { RING = 512, MESSAGES = 100000 };

static il_ring *ring;
static uint64_t asleep, notifications;

static uint64_t length_of(uint64_t number) { return mixed(number) % (il_ring_payload_max(RING) + 1u); }

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
        int result;
        while ((result = il_ring_push(ring, RING, payload, n)) == IL_RING_FULL) sched_yield();
        CHECK(result == IL_RING_DONE);
        if (il_load(&asleep)) { /* step 1: publish, check, notify; never clear */
            il_add(&notifications, 1);
            il_futex_wake(il_low(&notifications));
        }
    }
    return NULL;
}

static uint64_t drain(uint64_t number)
{
    unsigned char expected[RING];
    uint64_t head, tail;
    const unsigned char *payload;
    uint32_t n;
    CHECK(il_ring_readable(ring, RING, &head, &tail) == IL_RING_DONE);
    int result;
    while ((result = il_ring_next(ring, RING, &head, tail, &payload, &n)) == IL_RING_DONE) {
        CHECK(n == length_of(number));
        fill(expected, number, n);
        CHECK(memcmp(expected, payload, n) == 0);
        number++;
    }
    CHECK(result == IL_RING_FULL);
    il_ring_release(ring, head);
    return number;
}

/* The consumer of the notifier, steps 2 to 4. */
static void consume(void)
{
    uint64_t number = 0, sleeps = 0, late = 0;
    while (number < MESSAGES) {
        uint64_t before = number;
        number = drain(number);
        if (number != before) continue;
        uint32_t seen = (uint32_t)il_load(&notifications);
        il_store(&asleep, 1);
        if (!il_ring_has_messages(ring)) {
            int result = il_futex_wait(il_low(&notifications), seen, 900000000);
            late += result == ETIMEDOUT && il_ring_has_messages(ring); /* published without a notification */
            sleeps++;
        }
        il_store(&asleep, 0);
    }
    CHECK(late == 0);
    CHECK(!il_ring_has_messages(ring));
    printf("ok ring: %d messages, %llu sleeps\n", MESSAGES, (unsigned long long)sleeps);
}

/* Results that need no second thread: limits, and invalid bytes. */
static void refusals(void)
{
    unsigned char payload[RING] = {0};
    uint64_t head, tail;
    const unsigned char *found;
    uint32_t n;
    il_ring *one = zeroed(sizeof *one + RING);
    CHECK(il_ring_push(one, RING, payload, il_ring_payload_max(RING) + 1u) == IL_RING_TOO_LARGE);
    for (uint64_t offset = 0; offset < RING; offset += 8) { /* the largest message fits at any position */
        il_store(&one->tail, offset);
        il_store(&one->head, offset);
        il_store(&one->head_cached, offset);
        CHECK(il_ring_push(one, RING, payload, il_ring_payload_max(RING)) == IL_RING_DONE);
        CHECK(il_ring_readable(one, RING, &head, &tail) == IL_RING_DONE);
        CHECK(il_ring_next(one, RING, &head, tail, &found, &n) == IL_RING_DONE);
        CHECK(n == il_ring_payload_max(RING));
        CHECK(il_ring_next(one, RING, &head, tail, &found, &n) == IL_RING_FULL);
        il_ring_release(one, head);
    }
    uint32_t invalid[] = {RING, RING / 2 - 7, 0x7FFFFFFF, IL_RING_SKIP - 1, IL_RING_SKIP};
    for (size_t each = 0; each < sizeof invalid / sizeof invalid[0]; each++) {
        memset(one, 0, sizeof *one + RING);
        memcpy(one->data, &invalid[each], 4);
        il_store(&one->tail, 64);
        CHECK(il_ring_readable(one, RING, &head, &tail) == IL_RING_DONE);
        CHECK(il_ring_next(one, RING, &head, tail, &found, &n) == IL_RING_CORRUPT);
    }
    il_store(&one->tail, RING * 3);
    CHECK(il_ring_readable(one, RING, &head, &tail) == IL_RING_CORRUPT);
    free(one);
}

int main(void)
{
    pthread_t producer;
    refusals();
    ring = zeroed(sizeof *ring + RING);
    CHECK(pthread_create(&producer, NULL, produce, NULL) == 0);
    consume();
    pthread_join(producer, NULL);
    free(ring);
    return 0;
}
