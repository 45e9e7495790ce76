/*
 * only_first_fork.c - a fork during another thread's very first allocation leaves the child a heap that works.
 *
 * Where strata is malloc, the start of the process has long allocated. Beside another malloc this thread may be the first ever to call
 * strata, so that a heap built by that call would hold its lock while no fork handler is registered yet. To make sure that the fork
 * falls there, this program brings its own mmap, which waits for the fork if it is called from that first allocation.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <strata/malloc.h>

#define WAIT_MS_MAX 500 /* a fork that waits for a lock of the allocation must get it at last */
#define CHILD_SECONDS_MAX 20

static atomic_bool waiting_wanted, inside, forked, allocated;

/* Also called where ThreadSanitizer does not stand yet. */
__attribute__((no_sanitize("thread"))) void *mmap(void *address, size_t bytes, int protection, int flags, int file, off_t offset) {
    if (atomic_exchange(&waiting_wanted, false)) {
        atomic_store(&inside, true);
        for (unsigned ms = 0; ms < WAIT_MS_MAX && !atomic_load(&forked); ms++) usleep(1000);
    }
    return (void *)syscall(SYS_mmap, address, bytes, protection, flags, file, offset);
}

static void *allocate_first(void *unused) {
    atomic_store(&waiting_wanted, true);
    void *block = strata_malloc(100);
    atomic_store(&waiting_wanted, false);
    atomic_store(&allocated, true);
    strata_free(block);
    return block == NULL ? unused : &allocated;
}

int main(void) {
    pthread_t thread;
    void *result;
    int status;
    if (pthread_create(&thread, NULL, allocate_first, NULL) != 0) return 2;
    while (!atomic_load(&inside) && !atomic_load(&allocated)) sched_yield();
    pid_t child = fork();
    if (child == 0) {
        alarm(CHILD_SECONDS_MAX); /* ends a child that waits for a lock for ever */
        void *block = strata_malloc(100);
        strata_free(block);
        syscall(SYS_exit_group, block == NULL); /* _exit would have ThreadSanitizer miss the thread that stayed with the parent */
    }
    atomic_store(&forked, true);
    if (child < 0 || waitpid(child, &status, 0) != child) return 2;
    pthread_join(thread, &result);
    if (status != 0) fprintf(stderr, "the child ended with status 0x%x\n", status);
    if (result == NULL) fprintf(stderr, "the first allocation failed\n");
    return status != 0 || result == NULL;
}
