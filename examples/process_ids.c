/*
 * process_ids.c - numbers for processes: each as long unused as possible before somebody gets it again.
 *
 *     cc process_ids.c -o process_ids $(pkg-config --cflags --libs strata)
 *     ./process_ids
 *
 * A process that has ended may still be known to others by its number. With next fit an arena goes through all its numbers before it comes back
 * to one that was freed, so that a stale number names nobody rather than a stranger. Numbers below FIRST belong to the system's own processes,
 * which ask for theirs by name: a segment of one integer inside [number, number + 1).
 */
#include <stdio.h>
#include <stdlib.h>

#include <strata/arena.h>

#define FIRST 300
#define END 4096
#define ALIVE 50      /* processes at a time */
#define STARTS 100000 /* processes in all */

static void fail(const char *what, enum strata_arena_status status) {
    fprintf(stderr, "process_ids: %s: %s\n", what, strata_arena_status_text(status));
    exit(EXIT_FAILURE);
}

int main(void) {
    static unsigned long ended_at[END]; /* by number: how many processes had been started when its last owner ended */
    uint64_t alive[ALIVE] = {0}, id;
    unsigned long soonest = STARTS, reused = 0;
    struct strata_arena *ids, *system_ids;

    enum strata_arena_status status = strata_arena_create("process ids", FIRST, END - FIRST, 1, STRATA_ARENA_NEXT_FIT, &ids);
    if (status != STRATA_ARENA_OK) fail("creating the arena", status);
    for (unsigned long started = 1; started <= STARTS; started++) {
        uint64_t *slot = &alive[started % ALIVE]; /* the oldest makes room */
        if (*slot != 0) {
            status = strata_arena_free(ids, *slot, 1);
            if (status != STRATA_ARENA_OK) fail("ending a process", status);
            ended_at[*slot] = started;
        }
        status = strata_arena_alloc(ids, 1, 0, slot);
        if (status != STRATA_ARENA_OK) fail("starting a process", status);
        if (ended_at[*slot] == 0) continue;
        reused++;
        if (started - ended_at[*slot] < soonest) soonest = started - ended_at[*slot];
    }
    printf("%d processes, %lu with a number that had been used, after %lu others at least\n", STARTS, reused, soonest);

    /* Whoever wants one number, and no other, gets that or an error. */
    status = strata_arena_create("system ids", 0, FIRST, 1, STRATA_ARENA_INSTANT_FIT, &system_ids);
    if (status != STRATA_ARENA_OK) fail("creating the second arena", status);
    status = strata_arena_xalloc(system_ids, 1, 0, 0, 0, 1, 2, 0, &id);
    if (status != STRATA_ARENA_OK || id != 1) fail("taking number 1", status);
    status = strata_arena_xalloc(system_ids, 1, 0, 0, 0, 1, 2, 0, &id);
    printf("number 1 a second time: %s\n", strata_arena_status_text(status));
    if (status != STRATA_ARENA_NO_SPACE) return EXIT_FAILURE;
    /* Ending a process twice is noticed, and harms nobody. */
    status = strata_arena_xfree(system_ids, 1, 1);
    if (status != STRATA_ARENA_OK) fail("giving number 1 back", status);
    status = strata_arena_xfree(system_ids, 1, 1);
    printf("number 1 given back twice: %s\n", strata_arena_status_text(status));

    const char *broken = strata_arena_check(ids);
    if (broken != NULL) {
        fprintf(stderr, "process_ids: %s\n", broken);
        return EXIT_FAILURE;
    }
    for (unsigned i = 0; i < ALIVE; i++) strata_arena_free(ids, alive[i], 1);
    if (strata_arena_destroy(ids) != STRATA_ARENA_OK || strata_arena_destroy(system_ids) != STRATA_ARENA_OK) return EXIT_FAILURE;
    /* All the numbers that nobody has come first: those of END - FIRST that are not alive. */
    return status == STRATA_ARENA_NOT_ALLOCATED && soonest >= END - FIRST - ALIVE ? EXIT_SUCCESS : EXIT_FAILURE;
}
