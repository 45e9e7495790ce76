/*
 * api_batch_promises.c - batches whose promises are broken (strata/batch.h): one process a case. Builds with STRATA_LOCK_DEBUG look at each element
 * and end with exactly one line, which names function, element, value and what was promised; others take the caller's word, and the promise costs
 * nothing.
 *
 * What the arguments contradict themselves is refused by every build, and nothing is done.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <strata/batch.h>

#include "concurrency/concurrency.h"

static void alloc1(void *p) {
    void *ptrs[] = {NULL, NULL, p};
    size_t count = 3, size = 10;
    strata_batch_alloc1(NULL, ptrs, &count, &size, 0, 0, STRATA_BATCH_ALL_ALLOC);
}
static void realloc1(void *p) {
    void *ptrs[] = {p, NULL};
    size_t count = 2, size = 10;
    strata_batch_alloc1(NULL, ptrs, &count, &size, 0, 0, STRATA_BATCH_ALL_REALLOC);
}
static void free1(void *p) {
    void *ptrs[] = {p, NULL};
    size_t count = 2;
    strata_batch_alloc1(NULL, ptrs, &count, NULL, 0, 0, STRATA_BATCH_ALL_FREE);
}
static void by_elements2(void *p, size_t size, uintmax_t flags) {
    struct strata_batch_element2 element = {p, size}, *all[] = {NULL, &element};
    size_t count = 2;
    strata_batch_alloc2(NULL, all, &count, 0, 0, flags);
}
static void alloc2(void *p) { by_elements2(p, 10, STRATA_BATCH_ALL_ALLOC); }
static void realloc2(void *p) { by_elements2(p, 0, STRATA_BATCH_ALL_REALLOC); }
static void free2(void *p) { by_elements2(p, 10, STRATA_BATCH_ALL_FREE); }
/* The promise of the first element is that of all. */
static void by_elements5(void *p, size_t size, uintmax_t flags) {
    struct strata_batch_element5 good = {.flags = flags}, bad = {.ptr = p, .size = size}, *all[] = {&good, &bad};
    size_t count = 2;
    if (flags != STRATA_BATCH_ALL_ALLOC) good.ptr = strata_malloc(10);
    if (flags != STRATA_BATCH_ALL_FREE) good.size = 20;
    strata_batch_alloc5(NULL, all, &count);
}
static void alloc5(void *p) { by_elements5(p, 10, STRATA_BATCH_ALL_ALLOC); }
static void realloc5(void *p) { by_elements5(p, 0, STRATA_BATCH_ALL_REALLOC); }
static void free5(void *p) { by_elements5(p, 10, STRATA_BATCH_ALL_FREE); }

/* %p: the address of the block. */
static const struct broken {
    void (*body)(void *p);
    const char *line;
} all_broken[] = {
    {alloc1, "strata: strata_batch_alloc1(): element 2 has an address (ptr = %p; STRATA_BATCH_ALL_ALLOC promises NULL)\n"},
    {realloc1, "strata: strata_batch_alloc1(): element 1 has no address (ptr = NULL; STRATA_BATCH_ALL_REALLOC promises a block)\n"},
    {free1, "strata: strata_batch_alloc1(): element 1 has no address (ptr = NULL; STRATA_BATCH_ALL_FREE promises a block)\n"},
    {alloc2, "strata: strata_batch_alloc2(): element 1 has an address (ptr = %p; STRATA_BATCH_ALL_ALLOC promises NULL)\n"},
    {realloc2, "strata: strata_batch_alloc2(): element 1 has no size (size = 0; STRATA_BATCH_ALL_REALLOC promises one)\n"},
    {free2, "strata: strata_batch_alloc2(): element 1 has a size (size = 10; STRATA_BATCH_ALL_FREE promises 0)\n"},
    {alloc5, "strata: strata_batch_alloc5(): element 1 has an address (ptr = %p; STRATA_BATCH_ALL_ALLOC promises NULL)\n"},
    {realloc5, "strata: strata_batch_alloc5(): element 1 has no size (size = 0; STRATA_BATCH_ALL_REALLOC promises one)\n"},
    {free5, "strata: strata_batch_alloc5(): element 1 has a size (size = 10; STRATA_BATCH_ALL_FREE promises 0)\n"},
};

/* Runs the case in a child. Its status; what it has said is in text. */
static int run(const struct broken *broken, void *p, char *text, size_t text_bytes) {
    int ends[2], status = 0;
    EXPECT(pipe(ends) == 0);
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        broken->body(p);
        _exit(0);
    }
    close(ends[1]);
    size_t got = 0;
    for (ssize_t more; (more = read(ends[0], text + got, text_bytes - 1 - got)) > 0;) got += (size_t)more;
    text[got] = 0;
    close(ends[0]);
    EXPECT(waitpid(child, &status, 0) == child);
    return status;
}

int main(void) {
    void *p = strata_malloc(100);
    EXPECT(p != NULL);
    for (size_t i = 0; i < sizeof all_broken / sizeof all_broken[0]; i++) {
        char text[1024], wanted[256], shown[32];
        int status = run(&all_broken[i], p, text, sizeof text);
#ifdef STRATA_LOCK_DEBUG
        const char *line = all_broken[i].line, *place = strstr(line, "%p");
        snprintf(shown, sizeof shown, "%#lx", (unsigned long)(uintptr_t)p);
        snprintf(wanted, sizeof wanted, "%.*s%s%s", place != NULL ? (int)(place - line) : (int)strlen(line), line, place != NULL ? shown : "",
                 place != NULL ? place + 2 : "");
        if (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && strcmp(text, wanted) == 0) continue;
        fprintf(stderr, "case %zu: status %#x, said: %snot: %s", i, (unsigned)status, text, wanted);
        return 1;
#else
        (void)wanted, (void)shown;
        if (strstr(text, "promises") == NULL) continue;
        fprintf(stderr, "case %zu: status %#x, said: %s", i, (unsigned)status, text);
        return 1;
#endif
    }
    void *ptrs[] = {p};
    size_t count = 1, size = 10;
    int error = 0;
    EXPECT(strata_batch_alloc1(&error, ptrs, &count, &size, 0, 0, STRATA_BATCH_ALL_ALLOC | STRATA_BATCH_ALL_FREE) == ptrs);
    EXPECT(count == 0 && error == EINVAL && ptrs[0] == p && size == 10);
    strata_free(p);
    return 0;
}
