/* Lanes: single-producer, single-consumer byte rings that survive SIGKILL at any instruction.
 *
 * Rule 1: the only visible act of a push is the store of `tail`; a producer killed before it has said nothing.
 * Rule 2: nothing is overwritten before the consumer has stored a `head` beyond it; a full lane answers, never waits.
 * Rule 3: a message lies in one piece; what is left at the end of the ring is passed over by a skip mark.
 * Rule 4: the producer's cached head may be stale, never wrong: positions only grow.
 *
 * A message is a u32 length, a u32 zero and the payload, padded to 8 bytes. Positions are byte counts since the lane
 * was made; they wrap after 2^64 bytes. The ring is a power of two, and a message with its header fills at most half
 * of it, so that it fits into an empty ring wherever the ring stands. No Python.h: sanitizers compile this alone.
 */
#ifndef INTERLOCK_LANES_H
#define INTERLOCK_LANES_H

#include <stdint.h>
#include <string.h>

#include "core.h"

#define IL_LANE_SKIP 0xFFFFFFFFu
#define IL_LANE_HEADER 8u
#define IL_LANE_RING_MIN 64u

enum { IL_LANE_TOO_LARGE = -2, IL_LANE_CORRUPT = -1, IL_LANE_FULL = 0, IL_LANE_DONE = 1 };

typedef struct {
    uint64_t tail;        /* published by the producer */
    uint64_t head_cached; /* the producer's last sight of head */
    uint64_t producer_unused[6];
    uint64_t head; /* published by the consumer */
    uint64_t consumer_unused[7];
    unsigned char ring[]; /* `bytes` of them, a power of two */
} il_lane;

_Static_assert(sizeof(il_lane) == 128, "a lane is two cache lines and its ring");

/* The bytes that a payload of n bytes takes in the ring. */
static inline uint64_t il_lane_need(uint64_t n) { return IL_LANE_HEADER + ((n + 7u) & ~(uint64_t)7u); }

/* The largest payload that a ring of `bytes` takes. */
static inline uint64_t il_lane_payload_max(uint64_t bytes) { return bytes / 2u - IL_LANE_HEADER; }

static inline void il_lane_mark(il_lane *lane, uint64_t at, uint32_t length)
{
    uint32_t words[2] = {length, 0u};
    memcpy(lane->ring + at, words, sizeof words);
}

/* P1 to P3. The caller rings the bell (P4) after IL_LANE_DONE. */
static inline int il_lane_push(il_lane *lane, uint64_t bytes, const void *payload, uint64_t n)
{
    if (n > il_lane_payload_max(bytes)) return IL_LANE_TOO_LARGE;
    uint64_t tail = il_load_own(&lane->tail);
    uint64_t at = tail & (bytes - 1u);
    uint64_t need = il_lane_need(n);
    uint64_t skip = need > bytes - at ? bytes - at : 0u;
    uint64_t head = il_load_own(&lane->head_cached);
    if (tail + skip + need - head > bytes) {
        head = il_load_acquire(&lane->head);
        il_store_own(&lane->head_cached, head);
        if (tail - head > bytes) return IL_LANE_CORRUPT;
        if (tail + skip + need - head > bytes) return IL_LANE_FULL;
    }
    if (skip) {
        il_lane_mark(lane, at, IL_LANE_SKIP);
        at = 0u;
    }
    il_lane_mark(lane, at, (uint32_t)n);
    if (n) memcpy(lane->ring + at + IL_LANE_HEADER, payload, n);
    il_store(&lane->tail, tail + skip + need);
    return IL_LANE_DONE;
}

/* Whether something is published and not yet taken. The loads are sequentially consistent: the consumer's second look
 * after arming the bell must not pass the store that armed it. */
static inline int il_lane_waiting(const il_lane *lane) { return il_load(&lane->tail) != il_load(&lane->head); }

/* What a consumer may read now: from *head to *tail. IL_LANE_CORRUPT: positions that no lane can have. */
static inline int il_lane_begin(il_lane *lane, uint64_t bytes, uint64_t *head, uint64_t *tail)
{
    *head = il_load_own(&lane->head);
    *tail = il_load_acquire(&lane->tail); /* once per batch: a cached one would save nothing */
    if (*tail - *head > bytes || (*head & 7u) || (*tail & 7u)) return IL_LANE_CORRUPT;
    return IL_LANE_DONE;
}

/* The next message at *head, which moves past it. IL_LANE_FULL: there is none before tail. */
static inline int il_lane_next(const il_lane *lane, uint64_t bytes, uint64_t *head, uint64_t tail,
                               const unsigned char **payload, uint32_t *n)
{
    uint32_t length = IL_LANE_SKIP;
    uint64_t at = 0u;
    for (int rounds = 0; length == IL_LANE_SKIP; rounds++) { /* a skip is followed by a message: two rounds at most */
        if (*head == tail) return rounds ? IL_LANE_CORRUPT : IL_LANE_FULL;
        if (rounds == 2) return IL_LANE_CORRUPT;
        at = *head & (bytes - 1u);
        memcpy(&length, lane->ring + at, sizeof length);
        if (length == IL_LANE_SKIP) {
            if (tail - *head < bytes - at) return IL_LANE_CORRUPT;
            *head += bytes - at;
        }
    }
    uint64_t need = il_lane_need(length);
    if (need > bytes / 2u || need > tail - *head || need > bytes - at) return IL_LANE_CORRUPT;
    *payload = lane->ring + at + IL_LANE_HEADER;
    *n = length;
    *head += need;
    return IL_LANE_DONE;
}

/* Everything before head has been copied out: the producer may overwrite it. */
static inline void il_lane_finish(il_lane *lane, uint64_t head) { il_store_release(&lane->head, head); }

#endif
