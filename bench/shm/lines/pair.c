/* The limit of enter and exit: the functions of core.h in a loop, without Python. `pair gate|life COUNT` prints the
 * nanoseconds of CPU of one pair. */
#include "core.h" /* first: it asks the system's headers for what C11 alone does not have */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Alignas(64) uint64_t word[8], count[8];

static double now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return 1e9 * (double)time.tv_sec + (double)time.tv_nsec;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    long pairs = atol(argv[2]), wrong = 0;
    int gate = strcmp(argv[1], "gate") == 0;
    il_start(word, IL_RUNNING);
    double start = now_ns();
    if (gate)
        for (long each = 0; each < pairs; each++)
            wrong += il_gate_enter(word) != IL_ENTERED || il_gate_exit(word) != IL_EXITED;
    else
        for (long each = 0; each < pairs; each++)
            wrong += il_lifecycle_enter(word, count) != IL_ENTERED || il_lifecycle_exit(word, count) != IL_EXITED;
    printf("%.3f\n", (now_ns() - start) / (double)pairs);
    return wrong == 0 && il_load(word) == IL_WORD(IL_RUNNING, 0) && il_load(count) == 0 ? 0 : 1;
}
