/*
 * pressure.c - waits until the system says that memory is short, through files that can be polled.
 *
 *   PSI          a trigger of the process's own version 2 group, else of the whole system: some tasks stalled for 150 ms of 2 s,
 *                all of them for 100 ms (2 s is the shortest window that the unprivileged may ask for). The system waits for a grace period
 *                (RCU), some 5 to 20 ms, when a trigger is closed, so when a process ends: the files are opened at once, as that may be forbidden
 *                later, and triggers written to them TRIGGERS_AFTER_NS later. A file without one costs nothing, and can't be polled
 *   EVENTS       memory.events of version 2 groups: how often memory.high and memory.max were hit
 *   LEVEL        memory.pressure_level of version 1 groups, announced through an eventfd
 *   THRESHOLD    memory.usage_in_bytes of version 1 groups with a limit, on crossing 7/8 and 15/16 of it, announced the same way. Without
 *                swap the kernel finds nothing to reclaim in anonymous memory, so that it kills without a word about pressure.
 *
 * Groups above the process's own are watched where they have a limit. Reports are at least REPORT_INTERVAL_NS apart, as a group at its
 * limit has new events all the time, and reclaim must have had its effect before the next report means anything.
 *
 * The files belong to a process that does not know of them and may close them all, as daemons do, and have its own under the
 * same numbers. So each is identified by device and inode before we write to it, read from it or close it; what isn't ours any more
 * is forgotten. All eventfds share one inode: each is known by the number that the kernel gives it (Linux 5.2), and without that
 * we have none. They get high numbers, as programs count on getting low ones. A waker's message goes over a socket pair: unlike a pipe
 * it raises no signal when the other end is gone, and unlike an eventfd it can be identified without reading a file.
 *
 * All but wake_file is used by the maintenance thread only (and by a forked child that has no such thread). Wakers read wake_file by
 * atomics; the worst that a change between two of its fields does is that it looks like a foreign file, at a time when nobody polls. No locks.
 */
#define _GNU_SOURCE 1
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "platform/linux/cgroup.h"
#include "platform/linux/event.h"
#include "platform/linux/linux.h"

#define PROCESS "/proc/thread-self" /* /proc/self is empty once the first thread has ended */
#define SYSTEM_PSI "/proc/pressure/memory"
#define PSI_SOME "some 150000 2000000"
#define PSI_FULL "full 100000 2000000"

#define TRIGGERS_AFTER_NS UINT64_C(5000000000)

#define SOURCES_MAX 16
#define REPORT_INTERVAL_NS UINT64_C(200000000)
#define NS_PER_MS UINT64_C(1000000)
/* The longest sleep: bounds how late a wake is when the program takes our files away in the instant before we sleep on them. */
#define POLL_MS_MAX 60000
#define REOPENS_MAX 4 /* after the program has closed our files */

/* A file number, and what the file behind it must be to be ours. */
struct own_file {
    int number; /* -1: none */
    dev_t device;
    ino_t inode;
    uint64_t event; /* of an eventfd: its number among all of the system, plus 1 */
};

enum source_kind { SOURCE_PSI, SOURCE_EVENTS, SOURCE_LEVEL /* and THRESHOLD: eventfds */ };

static struct source {
    enum source_kind kind;
    enum platform_pressure pressure; /* of PSI and LEVEL */
    struct own_file file;
    const char *trigger; /* of PSI: what is still to be written; NULL: it is */
    uint64_t high;       /* of EVENTS: what was last seen */
    uint64_t urgent;
} sources[SOURCES_MAX];
static unsigned source_count;

static struct own_file poll_file = {.number = -1};
static struct own_file wake_file = {.number = -1}; /* number: atomic, written last */
static uint64_t quiet_until_ns;
static uint64_t triggers_due_ns; /* when they are to be set; 0: they are, or nothing is watched */
static unsigned reopens;

/* ------------------------------------------------------------------ files that are ours */

/* Files without an inode of their own: eventfd, epoll, signalfd, ... */
static bool is_anonymous(const struct stat *status) { return (status->st_mode & S_IFMT) == 0; }

/* 0: no eventfd, or a kernel that doesn't tell. */
static uint64_t eventfd_number(int number) {
    static const char key[] = "eventfd-id:";
    char text[512];
    format_text(text, sizeof text, PROCESS "/fdinfo/%d", number);
    int file = linux_open(text, O_RDONLY | O_CLOEXEC, 0);
    ssize_t length = file < 0 ? -1 : linux_read(file, text, sizeof text - 1);
    if (file >= 0) linux_close(file);
    text[length < 0 ? 0 : length] = 0;
    const char *found = strstr(text, key);
    return found == NULL ? 0 : linux_number(found + sizeof key - 1) + 1;
}

/* Takes over an open file and moves it to a high number; closes it on failure. */
static struct own_file own_file(int number) {
    struct own_file file = {.number = -1};
    struct stat status;
    if (number < 0) return file;
    int high = fcntl(number, F_DUPFD_CLOEXEC, FILE_NUMBER_BEYOND);
    if (high < 0) high = fcntl(number, F_DUPFD_CLOEXEC, FILE_NUMBER_LEAST); /* RLIMIT_NOFILE */
    if (high >= 0) {
        linux_close(number);
        number = high;
    }
    bool known = fstat(number, &status) == 0;
    if (known && is_anonymous(&status)) known = (file.event = eventfd_number(number)) != 0;
    if (!known) {
        linux_close(number);
        return file;
    }
    file.device = status.st_dev;
    file.inode = status.st_ino;
    file.number = number;
    return file;
}

static bool is_ours(const struct own_file *file, int number) {
    struct stat status;
    return number >= 0 && fstat(number, &status) == 0 && status.st_dev == __atomic_load_n(&file->device, __ATOMIC_RELAXED) &&
           status.st_ino == __atomic_load_n(&file->inode, __ATOMIC_RELAXED) && (!is_anonymous(&status) || eventfd_number(number) == file->event);
}

static void drop_file(struct own_file *file) {
    int number = file->number;
    __atomic_store_n(&file->number, -1, __ATOMIC_RELEASE);
    if (is_ours(file, number)) linux_close(number);
}

void linux_pressure_wake(void) {
    int saved = errno;
    int number = __atomic_load_n(&wake_file.number, __ATOMIC_ACQUIRE);
    if (is_ours(&wake_file, number)) linux_send(number, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT); /* full: then one is on its way already */
    errno = saved;
}

static bool open_wake_files(void) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) return false;
    poll_file = own_file(pair[0]);
    struct own_file sender = own_file(pair[1]);
    __atomic_store_n(&wake_file.device, sender.device, __ATOMIC_RELAXED);
    __atomic_store_n(&wake_file.inode, sender.inode, __ATOMIC_RELAXED);
    __atomic_store_n(&wake_file.number, sender.number, __ATOMIC_RELEASE);
    return poll_file.number >= 0 && sender.number >= 0;
}

/* ------------------------------------------------------------------ sources */

static struct source *add_source(enum source_kind kind, enum platform_pressure pressure, int number) {
    struct own_file file = own_file(number);
    if (file.number < 0) return NULL;
    if (source_count == SOURCES_MAX) {
        drop_file(&file);
        return NULL;
    }
    sources[source_count] = (struct source){.kind = kind, .pressure = pressure, .file = file};
    return &sources[source_count++];
}

static void drop_source(unsigned index) {
    drop_file(&sources[index].file);
    sources[index] = sources[--source_count];
}

static bool write_whole(int file, const char *text, size_t bytes) { return linux_write(file, text, bytes) == (ssize_t)bytes; }

static bool add_psi(int number, const char *trigger, enum platform_pressure pressure) {
    struct source *source = add_source(SOURCE_PSI, pressure, number);
    if (source == NULL) return false;
    source->trigger = trigger;
    return true;
}

static void open_psi(const struct cgroup *group) {
    const int flags = O_RDWR | O_NONBLOCK | O_CLOEXEC;
    if (group != NULL && add_psi(cgroup_open(group, "memory.pressure", flags), PSI_SOME, PLATFORM_PRESSURE_SOME)) {
        add_psi(cgroup_open(group, "memory.pressure", flags), PSI_FULL, PLATFORM_PRESSURE_CRITICAL);
        return;
    }
    add_psi(linux_open(SYSTEM_PSI, flags, 0), PSI_SOME, PLATFORM_PRESSURE_SOME);
    add_psi(linux_open(SYSTEM_PSI, flags, 0), PSI_FULL, PLATFORM_PRESSURE_CRITICAL);
}

/* How many triggers were set; files that take none are dropped. The kernel wants the closing NUL too. */
static unsigned write_triggers(void) {
    unsigned written = 0, i = 0;
    while (i < source_count) {
        struct source *source = &sources[i];
        const char *trigger = source->trigger;
        bool ok = trigger == NULL || (is_ours(&source->file, source->file.number) && write_whole(source->file.number, trigger, strlen(trigger) + 1));
        source->trigger = NULL;
        written += ok && trigger != NULL;
        if (ok)
            i++;
        else
            drop_source(i); /* the last one takes its place */
    }
    return written;
}

/* Reading also arms the file for the next poll. False when the group is gone. */
static bool read_events(const struct source *source, uint64_t *high, uint64_t *urgent) {
    char text[512];
    ssize_t length = linux_read_at(source->file.number, text, sizeof text - 1, 0);
    if (length < 0) return false;
    text[length] = 0;
    cgroup_parse_events(text, high, urgent);
    return true;
}

static void open_events(const struct cgroup *group) {
    struct source *source = add_source(SOURCE_EVENTS, PLATFORM_PRESSURE_NONE, cgroup_open(group, "memory.events", O_RDONLY | O_NONBLOCK));
    if (source != NULL && !read_events(source, &source->high, &source->urgent)) drop_source(source_count - 1);
}

/*
 * Version 1: "eventfd file argument" into cgroup.event_control, the argument a level or a number of bytes. The kernel keeps the
 * eventfd, the other two files may be closed.
 */
static void open_eventfd(const struct cgroup *group, const char *name, const char *argument, enum platform_pressure pressure) {
    int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int file = cgroup_open(group, name, O_RDONLY);
    int control = cgroup_open(group, "cgroup.event_control", O_WRONLY);
    char text[64];
    size_t length = format_text(text, sizeof text, "%d %d %s", event, file, argument);
    bool ok = event >= 0 && file >= 0 && control >= 0 && write_whole(control, text, length);
    if (control >= 0) linux_close(control);
    if (file >= 0) linux_close(file);
    if (ok) {
        add_source(SOURCE_LEVEL, pressure, event);
    } else if (event >= 0) {
        linux_close(event);
    }
}

/* It tells of every crossing, downwards too; the one report too many does no harm. */
static void open_threshold(const struct cgroup *group, uint64_t bytes, enum platform_pressure pressure) {
    char text[24];
    format_text(text, sizeof text, "%lu", bytes);
    open_eventfd(group, "memory.usage_in_bytes", text, pressure);
}

/* The process's own group, and those above it that have a limit. */
static void open_groups(struct cgroup *group) {
    unsigned level = 0;
    do {
        uint64_t limit = cgroup_limit_bytes(group);
        if (level != 0 && limit == UINT64_MAX) continue;
        if (group->version == 2) {
            open_events(group);
        } else {
            if (limit != UINT64_MAX) {
                open_threshold(group, limit - limit / 16, PLATFORM_PRESSURE_CRITICAL);
                open_threshold(group, limit - limit / 8, PLATFORM_PRESSURE_SOME);
            }
            open_eventfd(group, "memory.pressure_level", "critical", PLATFORM_PRESSURE_CRITICAL);
            open_eventfd(group, "memory.pressure_level", "medium", PLATFORM_PRESSURE_SOME);
        }
    } while (++level < CGROUP_LEVELS_MAX && cgroup_parent(group));
}

static void open_sources(void) {
    struct cgroup group;
    bool found = cgroup_find(&group, 2, PROCESS);
    open_psi(found ? &group : NULL);
    triggers_due_ns = source_count != 0 ? platform_precise_ns() + TRIGGERS_AFTER_NS : 0;
    if (found) open_groups(&group);
    if (cgroup_find(&group, 1, PROCESS)) open_groups(&group);
}

static void set_triggers(void) {
    triggers_due_ns = 0;
    if (write_triggers() != 0) return;
    open_psi(NULL); /* where the group's file takes none, the system's may */
    (void)write_triggers();
    if (source_count == 0) platform_pressure_close();
}

bool platform_pressure_open(void) {
    int saved = errno;
    platform_pressure_close();
    if (open_wake_files()) open_sources();
    bool open = source_count != 0;
    if (!open) platform_pressure_close();
    errno = saved;
    return open;
}

void platform_pressure_soon(void) {
    if (triggers_due_ns != 0) triggers_due_ns = 1;
}

void platform_pressure_close(void) {
    int saved = errno;
    triggers_due_ns = 0;
    while (source_count != 0) drop_source(source_count - 1);
    drop_file(&wake_file);
    drop_file(&poll_file);
    errno = saved;
}

/* ------------------------------------------------------------------ waiting */

/* What a source that poll has reported has to say. False when it is no longer of use. */
static bool ask_source(struct source *source, short polled, enum platform_pressure *pressure) {
    uint64_t high, urgent;
    *pressure = PLATFORM_PRESSURE_NONE;
    if ((polled & POLLNVAL) != 0 || !is_ours(&source->file, source->file.number)) return false;
    switch (source->kind) {
    case SOURCE_PSI:
        if ((polled & POLLERR) != 0) return false; /* the group is gone, and its trigger with it */
        *pressure = source->pressure;
        return true;
    case SOURCE_LEVEL: {
        uint64_t count;
        if (linux_read(source->file.number, &count, sizeof count) == (ssize_t)sizeof count) *pressure = source->pressure;
        return (polled & (POLLERR | POLLHUP)) == 0;
    }
    case SOURCE_EVENTS:
        if (!read_events(source, &high, &urgent)) return false;
        if (high > source->high) *pressure = PLATFORM_PRESSURE_SOME;
        if (urgent > source->urgent) *pressure = PLATFORM_PRESSURE_CRITICAL;
        source->high = high;
        source->urgent = urgent;
        return true;
    }
    return false;
}

/* Sleeps until a source or a waker has something, or `until_ns`; returns the strongest report. Sources that are muted keep theirs. */
static enum platform_pressure poll_sources(uint64_t until_ns, bool muted) {
    struct pollfd polled[SOURCES_MAX + 1];
    unsigned count = muted ? 0 : source_count;
    polled[count] = (struct pollfd){.fd = poll_file.number, .events = POLLIN};
    for (unsigned i = 0; i < count; i++)
        polled[i] = (struct pollfd){.fd = sources[i].trigger == NULL ? sources[i].file.number : -1,
                                    .events = sources[i].kind == SOURCE_LEVEL ? POLLIN : POLLPRI};
    uint64_t now_ns = platform_precise_ns();
    uint64_t left_ms = now_ns >= until_ns ? 0 : (until_ns - now_ns + NS_PER_MS - 1) / NS_PER_MS;
    enum platform_pressure strongest = PLATFORM_PRESSURE_NONE;
    const int got = poll(polled, count + 1, (int)min_u64(left_ms, POLL_MS_MAX));
    /* More files than RLIMIT_NOFILE has come down to, or a filter of system calls: it would not wait the next time either. */
    if (got < 0 && errno != EINTR) platform_pressure_close();
    /* Where our own socket is gone, so may the others be. */
    if (got <= 0 || !is_ours(&poll_file, poll_file.number)) return strongest;
    for (unsigned i = count; i-- != 0;) { /* from the end, where drop_source takes from */
        enum platform_pressure pressure;
        if (polled[i].revents == 0) continue;
        if (!ask_source(&sources[i], polled[i].revents, &pressure)) drop_source(i);
        if (pressure > strongest) strongest = pressure;
    }
    return strongest;
}

/* Takes the wakers' messages. */
static void empty_poll_file(void) {
    char message[8];
    if (!is_ours(&poll_file, poll_file.number)) return;
    while (recv(poll_file.number, message, sizeof message, MSG_DONTWAIT) > 0) {}
}

/* Where the program has closed the files that wakers need, all are opened anew; after some times we do without them. */
static void replace_lost_files(void) {
    if (is_ours(&poll_file, poll_file.number) && is_ours(&wake_file, wake_file.number)) return;
    bool soon = triggers_due_ns <= 1; /* as they were set, or asked for */
    platform_pressure_close();
    if (reopens++ < REOPENS_MAX) platform_pressure_open();
    if (soon) platform_pressure_soon();
}

enum platform_pressure platform_pressure_wait(struct platform_event *event, uint64_t timeout_ns, bool *woken) {
    int saved = errno;
    uint64_t now_ns = platform_precise_ns();
    uint64_t deadline_ns = timeout_ns > UINT64_MAX - now_ns ? UINT64_MAX : now_ns + timeout_ns;
    enum platform_pressure pressure = PLATFORM_PRESSURE_NONE;
    *woken = false;
    do {
        if (source_count != 0) replace_lost_files();
        if (triggers_due_ns != 0 && now_ns >= triggers_due_ns) set_triggers();
        if (source_count == 0) {
            *woken = platform_event_wait(event, deadline_ns == UINT64_MAX ? UINT64_MAX : deadline_ns - now_ns);
            break;
        }
        if (!linux_event_poll_begin(event)) {
            *woken = true;
            break;
        }
        bool muted = now_ns < quiet_until_ns;
        uint64_t until_ns = muted ? min_u64(deadline_ns, quiet_until_ns) : deadline_ns;
        pressure = poll_sources(triggers_due_ns != 0 ? min_u64(until_ns, triggers_due_ns) : until_ns, muted);
        *woken = linux_event_poll_end(event);
        empty_poll_file();
        now_ns = platform_precise_ns();
    } while (pressure == PLATFORM_PRESSURE_NONE && !*woken && now_ns < deadline_ns);
    if (pressure != PLATFORM_PRESSURE_NONE) quiet_until_ns = now_ns + REPORT_INTERVAL_NS;
    errno = saved;
    return pressure;
}

STRATA_RARE uint64_t platform_memory_limit_bytes(void) { return cgroup_tightest_bytes(PROCESS); }
