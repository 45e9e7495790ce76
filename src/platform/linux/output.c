/*
 * output.c - what leaves the process, and what it brings along: standard error, files, the environment, its number, its end.
 *
 * System calls only, no stdio, no locks: all of it works in a signal handler, in a half-started process, and in one that is falling
 * apart.
 */
#define _GNU_SOURCE 1
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "platform/linux/linux.h"

#define FILE_MODE 0644
#define STATUS_OF_SIGABRT 134 /* what a shell shows for a process that SIGABRT ended */
/* The waits double: all together some second. */
#define FULL_WAIT_MIN_NS UINT64_C(1000000)
#define FULL_WAIT_MAX_NS UINT64_C(512000000)

static int kept_error = -1;

static void doze(uint64_t ns) {
    struct platform_event never = {0};
    platform_event_wait(&never, ns);
}

/*
 * Where nobody reads any more, or files may be no longer, that is no reason to end the program, nor to end it by another signal than its own.
 * Standard error may be full and not wait for its reader (O_NONBLOCK, which whoever shares it may have set): it is tried again, for a second without
 * progress.
 */
static STRATA_COLD bool write_all(int file, const char *bytes, size_t count) {
    struct linux_held_signals held;
    ssize_t written = 1;
    uint64_t wait_ns = FULL_WAIT_MIN_NS;
    linux_signals_hold(&held);
    while (count != 0) {
        written = linux_write(file, bytes, count);
        if (written > 0) {
            bytes += written;
            count -= (size_t)written;
            wait_ns = FULL_WAIT_MIN_NS;
        } else if (written < 0 && errno == EAGAIN && wait_ns <= FULL_WAIT_MAX_NS && (file == STDERR_FILENO || file == kept_error)) {
            doze(wait_ns);
            wait_ns *= 2;
        } else if (written == 0 || errno != EINTR) {
            break;
        }
    }
    linux_signals_drop(&held, written < 0);
    return count == 0;
}

STRATA_COLD void platform_write_error(const char *text, size_t bytes) {
    int saved = errno;
    write_all(STDERR_FILENO, text, bytes);
    errno = saved;
}

STRATA_COLD void platform_die(void) {
    sigset_t abort_only;
    sigemptyset(&abort_only);
    sigaddset(&abort_only, SIGABRT);
    sigprocmask(SIG_UNBLOCK, &abort_only, NULL); /* of this thread: on Linux the same as pthread_sigmask */
    /* As abort() does: the program's handler first, which may report the crash, then the default, which ends the process. */
    syscall(SYS_tgkill, syscall(SYS_getpid), syscall(SYS_gettid), SIGABRT);
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = SIG_DFL;
    sigaction(SIGABRT, &action, NULL);
    syscall(SYS_tgkill, syscall(SYS_getpid), syscall(SYS_gettid), SIGABRT);
    /* The first process of a PID namespace survives its own signals. */
    _exit(STATUS_OF_SIGABRT);
}

void platform_exit(int status) { _exit(status); }

/* Device and inode tell whether the number is still our duplicate: the program may have closed it and have its own there. */
static uint64_t kept_device, kept_inode;

void platform_error_keep(void) {
    int saved = errno;
    kept_error = linux_duplicate(STDERR_FILENO);
    if (kept_error >= 0 && !linux_file_identify(kept_error, &kept_device, &kept_inode)) {
        linux_close(kept_error);
        kept_error = -1;
    }
    errno = saved;
}

STRATA_COLD int platform_error_file(void) {
    int saved = errno, file = -1;
    if (fcntl(STDERR_FILENO, F_GETFD) >= 0)
        file = STDERR_FILENO;
    else if (linux_file_is(kept_error, kept_device, kept_inode))
        file = kept_error;
    errno = saved;
    return file;
}

/*
 * Before the C library is set up (a preinit function, a resolver of indirect functions) it has no environment yet; the kernel has
 * it. A value that exceeds the buffer is cut, which the reader of options then complains about.
 */
static STRATA_SELDOM const char *getenv_of_kernel(const char *name, size_t length) {
    static char value[4096];
    int saved = errno, file = linux_open("/proc/self/environ", O_RDONLY | O_CLOEXEC, 0);
    if (file < 0) {
        errno = saved;
        return NULL;
    }
    char chunk[512];
    size_t matched = 0, kept = 0; /* matched: bytes of "NAME=" seen at the start of this entry; SIZE_MAX: it is another one */
    bool found = false, done = false;
    for (ssize_t count; !done && (count = linux_read(file, chunk, sizeof chunk)) > 0;) {
        for (ssize_t i = 0; i < count && !done; i++) {
            if (chunk[i] == 0) {
                done = found;
                matched = 0;
            } else if (found) {
                if (kept < sizeof value - 1) value[kept++] = chunk[i];
            } else if (matched != SIZE_MAX) {
                if (matched == length && chunk[i] == '=')
                    found = true;
                else
                    matched = matched < length && chunk[i] == name[matched] ? matched + 1 : SIZE_MAX;
            }
        }
    }
    linux_close(file);
    errno = saved;
    value[kept] = 0;
    return found ? value : NULL;
}

/* What the C library's environ is going to be: libstrata.so is initialised first, before the library that sets it. */
static char **early_environ STRATA_USUAL_DATA;

#ifdef __GLIBC__ /* others pass no arguments to constructors */
__attribute__((constructor(101))) static void note_environ(int argc, char **argv, char **envp) {
    (void)argc;
    (void)argv;
    if (environ == NULL) early_environ = envp;
}
#endif

/* By the byte: the C library's string functions would bring a window of its code into processes that use them for nothing else. */
const char *platform_getenv(const char *name) {
    char **entries = environ != NULL ? environ : early_environ;
    if (entries == NULL) return getenv_of_kernel(name, strlen(name));
    for (char **entry = entries; *entry != NULL; entry++) {
        const char *c = *entry, *n = name;
        for (; *n != 0 && *c == *n; n++) c++;
        if (*n == 0 && *c == '=') return c + 1;
    }
    return NULL;
}

STRATA_COLD int platform_file_create(const char *path) {
    int saved = errno;
    int flags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY | (platform_info()->secure ? O_NOFOLLOW : 0);
    int file = linux_open(path, flags, FILE_MODE);
    /* Where the program has closed a standard stream, its later output must not end in our file. */
    if (file >= 0 && file <= STDERR_FILENO) {
        int low = file;
        file = fcntl(low, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
        linux_close(low);
    }
    errno = saved;
    return file < 0 ? -1 : file;
}

bool platform_file_write(int file, const char *bytes, size_t count) {
    int saved = errno;
    bool ok = write_all(file, bytes, count);
    errno = saved;
    return ok;
}

void platform_file_close(int file) {
    int saved = errno;
    linux_close(file);
    errno = saved;
}

/* From the kernel, not from a cache of the C library, which a raw clone leaves stale. */
unsigned platform_process_id(void) { return (unsigned)syscall(SYS_getpid); }
