/*
 * access.c - pages without access rights, and the signal of the thread that lacks them (SIGSEGV), which somebody of this process may serve.
 *
 * Our handler is put in front of the program's, which gets all that is not ours in the way that it asked for. It runs on the program's signal stack
 * where it has one. A program that sets its own handler later, without calling the one that it finds, takes ours away: then the signal is its own. No
 * locks. before is written once, before the handler is in place; a place among those who serve is taken once, and kept.
 */
#define _GNU_SOURCE 1
#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "platform/linux/linux.h"

typedef bool access_server(char *page, bool write);
#define SERVERS_MAX 2                       /* watches, and paged memory */
static access_server *servers[SERVERS_MAX]; /* atomic; the first ones are taken */
static struct sigaction before;
static uint32_t called_once; /* atomic: whether the program's, of those that are to be called once, has been */
static uint32_t installed;   /* atomic: whether ours is in place */
static bool installed_at_fork;

bool platform_protect(void *address, size_t bytes, enum platform_access access) {
    static const int rights[] = {
        [PLATFORM_ACCESS_NONE] = PROT_NONE, [PLATFORM_ACCESS_READ] = PROT_READ, [PLATFORM_ACCESS_ALL] = PROT_READ | PROT_WRITE};
    int saved = errno;
    bool ok = mprotect(address, bytes, rights[access]) == 0;
    errno = saved;
    return ok;
}

/* Where the system does not say, every fault counts as a read: a write then comes back. */
static bool is_write(void *context) {
#if defined(__x86_64__)
    return (((const ucontext_t *)context)->uc_mcontext.gregs[REG_ERR] & 2) != 0;
#else
    (void)context;
    return false;
#endif
}

/* Whether the program has a function for it, which is called this time: one that asked for that is called once. */
static bool calls_handler(void) {
    if (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN) return false; /* in one place with sa_sigaction */
    return (before.sa_flags & SA_RESETHAND) == 0 || __atomic_exchange_n(&called_once, 1, __ATOMIC_RELAXED) == 0;
}

/*
 * As though ours had never been there. What the handler wants blocked or not is so until ours returns, when the system gives the thread its mask
 * back. A default action is put back, so that the same access ends the process.
 */
static void pass_on(int number, siginfo_t *info, void *context) {
    const bool sent = info->si_code <= 0; /* by somebody: no access would bring it again */
    if (calls_handler()) {
        pthread_sigmask(SIG_BLOCK, &before.sa_mask, NULL);
        if ((before.sa_flags & SA_NODEFER) != 0 && sigismember(&before.sa_mask, number) == 0) platform_hear_access_faults();
        if ((before.sa_flags & SA_SIGINFO) != 0)
            before.sa_sigaction(number, info, context);
        else
            before.sa_handler(number);
    } else if (before.sa_handler != SIG_IGN || !sent) {
        struct sigaction ends = {.sa_handler = SIG_DFL};
        sigaction(number, &ends, NULL);
        if (sent) raise(number);
    }
}

/* The first that says that the page is its own. */
static bool serve_fault(char *page, bool write) {
    for (unsigned i = 0; i < SERVERS_MAX; i++) {
        access_server *serve = __atomic_load_n(&servers[i], __ATOMIC_ACQUIRE);
        if (serve != NULL && serve(page, write)) return true;
    }
    return false;
}

static void on_signal(int number, siginfo_t *info, void *context) {
    int saved = errno;
    char *page = (char *)align_down((uintptr_t)info->si_addr, platform_info()->page_bytes);
    bool served = info->si_code == SEGV_ACCERR && serve_fault(page, is_write(context));
    errno = saved;
    if (!served) pass_on(number, info, context);
}

static bool add_server(access_server *serve) {
    for (unsigned i = 0; i < SERVERS_MAX; i++) {
        access_server *taken = NULL;
        if (__atomic_compare_exchange_n(&servers[i], &taken, serve, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) || taken == serve) return true;
    }
    return false;
}

/* Of several at once each puts ours in place: none returns before it is, and what each finds before it is the same. */
bool platform_on_access_fault(bool (*serve)(char *page, bool write)) {
    if (!add_server(serve)) return false;
    if (__atomic_load_n(&installed, __ATOMIC_ACQUIRE) != 0) return true;
    struct sigaction ours = {.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART}, found;
    int saved = errno;
    ours.sa_sigaction = on_signal;
    sigemptyset(&ours.sa_mask);
    bool ok = sigaction(SIGSEGV, NULL, &found) == 0;
    if (ok && found.sa_sigaction != on_signal) {
        before = found;
        ok = sigaction(SIGSEGV, &ours, NULL) == 0;
    }
    if (ok) __atomic_store_n(&installed, 1, __ATOMIC_RELEASE);
    errno = saved;
    return ok;
}

void platform_hear_access_faults(void) {
    sigset_t fault;
    sigemptyset(&fault);
    sigaddset(&fault, SIGSEGV);
    pthread_sigmask(SIG_UNBLOCK, &fault, NULL);
}

/*
 * The system copies what signals do before it copies memory: what another thread puts in place in between, the child's memory says is, and is not. So
 * what was so before counts; the next who needs it looks.
 */
STRATA_SELDOM void platform_access_fork_prepare(void) { installed_at_fork = __atomic_load_n(&installed, __ATOMIC_ACQUIRE) != 0; }
STRATA_SELDOM void platform_access_fork_child(void) { __atomic_store_n(&installed, installed_at_fork, __ATOMIC_RELAXED); }
