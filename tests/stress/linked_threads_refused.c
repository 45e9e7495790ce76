/*
 * linked_threads_refused.c - two threads at once want what a thread of strata's serves, while the system refuses threads.
 *
 * Protects: who finds a start under way is told how that ends, and not success while nobody serves, and waits for no thread that never comes; later
 * requests try for themselves. linked_threads_refused server, reader: watches, without the
 * thread that serves them, or the one that reads faults; pressure: handlers for shortage. pthread_create is the program's own, as the system's can't
 * be made to fail at will.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <strata/page.h>
#include <strata/page_watch.h>
#include <strata/pressure.h>

#include "concurrency/concurrency.h"

enum { BYTES = 1 << 16, REFUSAL_US = 300000, LEAD_US = 100000, END_S = 20 };

typedef int create_function(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *), void *argument);
static uint32_t made, refused_from = UINT32_MAX;

create_function pthread_create;
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *), void *argument) {
    create_function *real = (create_function *)(uintptr_t)dlsym(RTLD_NEXT, "pthread_create");
    if (__atomic_fetch_add(&made, 1, __ATOMIC_RELAXED) < __atomic_load_n(&refused_from, __ATOMIC_RELAXED))
        return real(thread, attributes, body, argument);
    usleep(REFUSAL_US); /* so long that the other thread comes meanwhile */
    return EAGAIN;
}

static uint32_t told;
static void tell(const struct strata_watch_event *event, void *argument) {
    (void)event, (void)argument;
    __atomic_fetch_add(&told, 1, __ATOMIC_RELAXED);
}
static void give(void *argument, size_t wanted_bytes, enum strata_cache_need need) { (void)argument, (void)wanted_bytes, (void)need; }

/* A watch that has begun serves: a write comes to its end, and is told. */
static void watch(void) {
    void *block;
    struct strata_watch *begun = NULL;
    EXPECT(strata_page_alloc(BYTES, STRATA_PAGE_ZEROED, &block) == STRATA_PAGE_OK);
    enum strata_watch_status status = strata_page_watch(block, BYTES, STRATA_WATCH_WRITES, tell, NULL, &begun);
    EXPECT(status == STRATA_WATCH_OK || status == STRATA_WATCH_NO_MEMORY);
    if (status != STRATA_WATCH_OK) return;
    uint32_t before = __atomic_load_n(&told, __ATOMIC_RELAXED);
    *(volatile char *)block = 1;
    EXPECT(__atomic_load_n(&told, __ATOMIC_RELAXED) > before);
}
static unsigned registered;
static void want_handler(void) {
    struct strata_pressure *registration;
    enum strata_pressure_status status = strata_pressure_register("refused", give, NULL, &registration);
    EXPECT(status == STRATA_PRESSURE_OK || status == STRATA_PRESSURE_NO_THREAD);
    registered += status == STRATA_PRESSURE_OK;
}

static void (*want)(void);
static void *second(void *unused) {
    usleep(LEAD_US);
    want();
    return unused;
}

int main(int argc, char **argv) {
    EXPECT(argc > 1);
    alarm(END_S);
    bool pressure = strcmp(argv[1], "pressure") == 0;
    want = pressure ? want_handler : watch;
    pthread_t other;
    __atomic_store_n(&refused_from, strcmp(argv[1], "reader") == 0 ? 2 : 1, __ATOMIC_RELAXED); /* the first one is `other` */
    EXPECT(pthread_create(&other, NULL, second, NULL) == 0);
    want();
    EXPECT(pthread_join(other, NULL) == 0);
    EXPECT(registered == 0);
    __atomic_store_n(&refused_from, UINT32_MAX, __ATOMIC_RELAXED);
    want();
    EXPECT(!pressure || registered == 1);
    puts("refused, and served later");
    return 0;
}
