/*
 * linux_pressure_kernel.h - the kernel of the tests of pressure.c, which is compiled into them, as the real one reports when it likes: control groups
 * are directories with plain files and FIFOs, eventfds are real, and poll says what the test has prepared for a file, as far as it was asked for it.
 */
#ifndef STRATA_TESTS_LINUX_PRESSURE_KERNEL_H
#define STRATA_TESTS_LINUX_PRESSURE_KERNEL_H

#include <poll.h>

static int prepared_poll(struct pollfd *polled, nfds_t count, int timeout_ms);
#define poll prepared_poll
#include "platform/linux/pressure.c"
#undef poll

#include <stdio.h>
#include <stdlib.h>

#include "linux_test.h"

/* What kernfs files answer when they have something, whether asked for POLLERR or not. */
#define NOTIFIED (POLLPRI | POLLERR)

/* ------------------------------------------------------------------ the kernel's part */

/* What poll answers for the file of sources[i]. */
static short prepared[SOURCES_MAX];
static unsigned polls;
static bool polls_sleep; /* nothing happens while it sleeps, so that it need not */

static int prepared_poll(struct pollfd *polled, nfds_t count, int timeout_ms) {
    int ready = 0;
    polls++;
    if (polls_sleep) usleep((useconds_t)timeout_ms * 1000);
    assert_true(polls < 1000);
    for (nfds_t i = 0; i < count; i++) {
        short flags = 0;
        for (unsigned k = 0; k < source_count; k++)
            if (polled[i].fd == sources[k].file.number) flags = prepared[k];
        polled[i].revents = (short)(flags & (polled[i].events | POLLERR | POLLHUP | POLLNVAL));
        ready += polled[i].revents != 0;
    }
    return ready;
}

static struct cgroup group;

static inline int make_group(void **state) {
    (void)state;
    memset(prepared, 0, sizeof prepared);
    polls = 0;
    polls_sleep = false;
    quiet_until_ns = 0;
    group = (struct cgroup){.path = "/tmp/strata-pressure-XXXXXX"};
    group.mount_length = strlen(group.path);
    return mkdtemp(group.path) == NULL;
}

static inline void path_of(const char *name, char *path, size_t bytes) { snprintf(path, bytes, "%s/%s", group.path, name); }

static inline int remove_group(void **state) {
    static const char *const names[] = {"memory.events",         "memory.pressure",       "memory.max",          "memory.limit_in_bytes",
                                        "memory.pressure_level", "memory.usage_in_bytes", "cgroup.event_control"};
    char path[CGROUP_PATH_BYTES + 64];
    (void)state;
    platform_pressure_close();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        path_of(names[i], path, sizeof path);
        unlink(path);
    }
    return rmdir(group.path);
}

/* The same file gets new contents, as the kernel's do. */
static inline void put(const char *name, const char *text) {
    char path[CGROUP_PATH_BYTES + 64];
    path_of(name, path, sizeof path);
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(file >= 0);
    assert_int_equal(write(file, text, strlen(text)), strlen(text));
    close(file);
}

/* A file whose readers, unlike the kernel, see all that was ever written to it. */
static inline int make_fifo(const char *name) {
    char path[CGROUP_PATH_BYTES + 64];
    path_of(name, path, sizeof path);
    assert_int_equal(mkfifo(path, 0600), 0);
    int file = open(path, O_RDWR | O_NONBLOCK);
    assert_true(file >= 0);
    return file;
}

static inline int foreign_file(void) {
    char path[] = "/tmp/strata-foreign-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    unlink(path);
    assert_int_equal(write(file, "high 100\nmax 100\n", 17), 17);
    lseek(file, 0, SEEK_SET);
    return file;
}

static inline unsigned open_files(void) {
    unsigned count = 0;
    for (int number = 0; number < 1024; number++) count += fcntl(number, F_GETFD) >= 0;
    return count;
}

/* For main: the test has a group of its own. */
#define IN_GROUP(test) cmocka_unit_test_setup_teardown(test, make_group, remove_group)

#endif
