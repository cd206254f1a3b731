/* Rings: single-producer, single-consumer byte rings that survive SIGKILL at any instruction.
 *
 * Rule 1: the only visible step of a push is the store of `tail`; a producer killed before it has published nothing.
 * Rule 2: bytes are overwritten only after the consumer has stored a `head` beyond them; a push to a full ring fails,
 *         and never waits.
 * Rule 3: a message is contiguous; a skip mark skips the end of the ring if it is too short.
 * Rule 4: the producer's cached head may be old, never wrong: positions only grow.
 *
 * A message is a u32 length, a u32 zero and the payload, padded to 8 bytes. Positions are byte counts since the ring
 * was created; they wrap after 2^64 bytes. The size is a power of two, and a message with its header fills at most half
 * of it, so it fits into an empty ring at any position. This file does not include Python.h, so sanitizers compile it
 * alone.
 */
#ifndef INTERLOCK_RING_H
#define INTERLOCK_RING_H

#include <stdint.h>
#include <string.h>

#include "core.h"

#define IL_RING_SKIP 0xFFFFFFFFu
#define IL_RING_HEADER 8u
#define IL_RING_BYTES_MIN 64u

enum { IL_RING_TOO_LARGE = -2, IL_RING_CORRUPT = -1, IL_RING_FULL = 0, IL_RING_DONE = 1 };

typedef struct {
    uint64_t tail;        /* published by the producer */
    uint64_t head_cached; /* the head that the producer loaded last */
    uint64_t producer_unused[6];
    uint64_t head; /* published by the consumer */
    uint64_t consumer_unused[7];
    unsigned char data[]; /* `bytes` of them, a power of two */
} il_ring;

_Static_assert(sizeof(il_ring) == 128, "a ring is two cache lines and its bytes");

/* The bytes that a payload of n bytes needs in the ring. */
static inline uint64_t il_ring_need(uint64_t n) { return IL_RING_HEADER + ((n + 7u) & ~(uint64_t)7u); }

/* The largest payload for a ring of `bytes`. */
static inline uint64_t il_ring_payload_max(uint64_t bytes) { return bytes / 2u - IL_RING_HEADER; }

static inline void il_ring_write_length(il_ring *ring, uint64_t at, uint32_t length)
{
    uint32_t words[2] = {length, 0u};
    memcpy(ring->data + at, words, sizeof words);
}

/* P1 to P3. The caller notifies (P4) after IL_RING_DONE. */
static inline int il_ring_push(il_ring *ring, uint64_t bytes, const void *payload, uint64_t n)
{
    if (n > il_ring_payload_max(bytes)) return IL_RING_TOO_LARGE;
    uint64_t tail = il_load_own(&ring->tail);
    uint64_t at = tail & (bytes - 1u);
    uint64_t need = il_ring_need(n);
    uint64_t skip = need > bytes - at ? bytes - at : 0u;
    uint64_t head = il_load_own(&ring->head_cached);
    if (tail + skip + need - head > bytes) {
        head = il_load_acquire(&ring->head);
        il_store_own(&ring->head_cached, head);
        if (tail - head > bytes) return IL_RING_CORRUPT;
        if (tail + skip + need - head > bytes) return IL_RING_FULL;
    }
    if (skip) {
        il_ring_write_length(ring, at, IL_RING_SKIP);
        at = 0u;
    }
    il_ring_write_length(ring, at, (uint32_t)n);
    if (n) memcpy(ring->data + at + IL_RING_HEADER, payload, n);
    il_store(&ring->tail, tail + skip + need);
    return IL_RING_DONE;
}

/* Whether a message is published and not yet received. The loads are sequentially consistent: the consumer's check
 * after it armed the notifier must not pass the store that armed it. */
static inline int il_ring_has_messages(const il_ring *ring) { return il_load(&ring->tail) != il_load(&ring->head); }

/* The range that a consumer may read now: from *head to *tail. IL_RING_CORRUPT: the positions are invalid. */
static inline int il_ring_readable(il_ring *ring, uint64_t bytes, uint64_t *head, uint64_t *tail)
{
    *head = il_load_own(&ring->head);
    *tail = il_load_acquire(&ring->tail); /* once per batch: a cached tail would not be faster */
    if (*tail - *head > bytes || (*head & 7u) || (*tail & 7u)) return IL_RING_CORRUPT;
    return IL_RING_DONE;
}

/* The next message at *head, which moves past it. IL_RING_FULL: there is no message before tail. */
static inline int il_ring_next(const il_ring *ring, uint64_t bytes, uint64_t *head, uint64_t tail,
                               const unsigned char **payload, uint32_t *n)
{
    uint32_t length = IL_RING_SKIP;
    uint64_t at = 0u;
    for (int rounds = 0; length == IL_RING_SKIP; rounds++) { /* a skip is followed by a message: two rounds at most */
        if (*head == tail) return rounds ? IL_RING_CORRUPT : IL_RING_FULL;
        if (rounds == 2) return IL_RING_CORRUPT;
        at = *head & (bytes - 1u);
        memcpy(&length, ring->data + at, sizeof length);
        if (length == IL_RING_SKIP) {
            if (tail - *head < bytes - at) return IL_RING_CORRUPT;
            *head += bytes - at;
        }
    }
    uint64_t need = il_ring_need(length);
    if (need > bytes / 2u || need > tail - *head || need > bytes - at) return IL_RING_CORRUPT;
    *payload = ring->data + at + IL_RING_HEADER;
    *n = length;
    *head += need;
    return IL_RING_DONE;
}

/* Allows the producer to overwrite everything before head, which has been copied. */
static inline void il_ring_release(il_ring *ring, uint64_t head) { il_store_release(&ring->head, head); }

#endif
