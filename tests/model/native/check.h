/* What the harnesses share: a check that ends the process with a line, and aligned memory that starts as zeroes. */
#ifndef INTERLOCK_CHECK_H
#define INTERLOCK_CHECK_H

#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(claim)                                                         \
    do {                                                                     \
        if (!(claim)) {                                                      \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #claim); \
            exit(1);                                                         \
        }                                                                    \
    } while (0)

static inline void *zeroed(size_t bytes)
{
    size_t rounded = (bytes + 63u) & ~(size_t)63u;
    void *memory = aligned_alloc(64, rounded);
    CHECK(memory != NULL);
    memset(memory, 0, rounded);
    return memory;
}

/* A number that depends on nothing but its place in a sequence. */
static inline uint64_t mixed(uint64_t x)
{
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

#endif
