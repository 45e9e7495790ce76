/*
 * umem_reclaim.c - the reclaim functions of caches, which strata calls where memory is short, and umem_reap for all of them.
 *
 * One that runs is marked with its thread: so it runs once at a time, is not entered again by what it does itself, and its cache stays until it is
 * done. Lock: `lock`, for the list and the marks; no function is called with it held. A mark keeps its entry in the list, so a walk goes on from
 * there.
 */
#include "umem_internal.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER; /* one that ran no longer does */
static struct umem_reclaimer *first;

static bool runs_here(const struct umem_reclaimer *reclaimer) { return reclaimer->runs && pthread_equal(reclaimer->thread, pthread_self()); }

/* Whose thread is not in the child runs no longer. */
static void before_fork(void) { pthread_mutex_lock(&lock); }
static void after_fork(void) { pthread_mutex_unlock(&lock); }
static void after_fork_child(void) {
    for (struct umem_reclaimer *reclaimer = first; reclaimer != NULL; reclaimer = reclaimer->next) reclaimer->runs = runs_here(reclaimer);
    ended = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    pthread_mutex_unlock(&lock);
}
static __attribute__((constructor)) void watch_forks(void) { pthread_atfork(before_fork, after_fork, after_fork_child); }

void umem_reclaimer_add(struct umem_reclaimer *reclaimer) {
    pthread_mutex_lock(&lock);
    reclaimer->next = first;
    if (first != NULL) first->link = &reclaimer->next;
    reclaimer->link = &first;
    first = reclaimer;
    pthread_mutex_unlock(&lock);
}

bool umem_reclaimer_remove(struct umem_reclaimer *reclaimer) {
    int state;
    pthread_mutex_lock(&lock);
    if (runs_here(reclaimer)) {
        pthread_mutex_unlock(&lock);
        return false;
    }
    reclaimer->function = NULL;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state); /* the wait would let a thread be cancelled, lock and all */
    while (reclaimer->runs) pthread_cond_wait(&ended, &lock);
    pthread_setcancelstate(state, NULL);
    *reclaimer->link = reclaimer->next;
    if (reclaimer->next != NULL) reclaimer->next->link = reclaimer->link;
    pthread_mutex_unlock(&lock);
    return true;
}

/* With the lock, which is free while the function runs. */
static void run(struct umem_reclaimer *reclaimer) {
    umem_reclaim_t *function = reclaimer->function;
    if (function == NULL || reclaimer->runs) return;
    reclaimer->runs = true;
    reclaimer->thread = pthread_self();
    pthread_mutex_unlock(&lock);
    function(reclaimer->data);
    pthread_mutex_lock(&lock);
    reclaimer->runs = false;
    pthread_cond_broadcast(&ended);
}

void umem_reclaim(struct umem_reclaimer *reclaimer) {
    pthread_mutex_lock(&lock);
    run(reclaimer);
    pthread_mutex_unlock(&lock);
}

/* Not out of such a function: where each one reaps, they would call each other in every order that there is. */
void umem_reclaim_all(void) {
    const struct umem_reclaimer *own;
    pthread_mutex_lock(&lock);
    for (own = first; own != NULL && !runs_here(own);) own = own->next;
    for (struct umem_reclaimer *reclaimer = first; reclaimer != NULL && own == NULL; reclaimer = reclaimer->next) run(reclaimer);
    pthread_mutex_unlock(&lock);
}
