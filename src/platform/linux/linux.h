/*
 * linux.h - what the files of platform/linux share. Private to this folder.
 */
#ifndef STRATA_PLATFORM_LINUX_H
#define STRATA_PLATFORM_LINUX_H

#include <signal.h>
#include <sys/types.h>

#include "platform/platform.h"

#define NS_PER_S UINT64_C(1000000000)

/*
 * Our files get numbers from here on: programs count on getting low ones. Below 64, the size of a new process's table: where threads share a table,
 * the system waits for a grace period (RCU, some 5 to 20 ms) before it makes that larger.
 */
#define FILE_NUMBER_LEAST 40
/*
 * Those of the maintenance thread, which may wait, get theirs from here on: they leave the new process's table to the program, and make it larger
 * before a thread of the program has to wait for that, as the 65th connection of a server does.
 */
#define FILE_NUMBER_BEYOND 128

/* Finds out how CPU caches are addressed: fills platform_cpu (cpu_ops.h) and the mode. Called once by platform_init. */
void linux_cpu_init(void);
/*
 * Whether this library is in a namespace of dlmopen's. There it has a C library of its own, but threads are the first one's: a key of its means the
 * same place of a thread as the program's key of that number, and no destructor of its is ever called. So there must be none.
 */
extern bool linux_is_elsewhere;
/* Finds out where the C library tells whether there is one thread. Called once by platform_init; before that there may be several. */
void linux_lock_init(void);

/* Anonymous private memory by mmap; NULL: none. Keeps errno. */
void *linux_map(void *address, size_t bytes, int protection, int flags);

/*
 * After a call that failed, of those that unmap a range before they look at limits. True: the kernel had unmapped it, and it is mapped again, zeros.
 * False: it is as it was. Where somebody else was faster the process ends.
 */
bool linux_restore(void *address, size_t bytes);
/* Whole pages read as zeros: they go, or are cleared where the system lets nothing go (locked memory before Linux 5.18, filters). */
void linux_drop_or_clear(void *address, size_t bytes);

/* After so much of the file was read or written: see platform_store_pass. May change errno. */
struct platform_store;
void linux_store_passed(struct platform_store *store, bool write, size_t bytes, uint64_t offset);

/*
 * System calls as such (calls.c). The C library's functions of these names end a thread that is cancelled, which malloc does not, least of all under
 * a lock; and a program may have others in their place. What waits is done by threads of ours, and by the C library; what works on the files of
 * stores too, with cancellation off (store.c).
 */
int linux_open(const char *path, int flags, unsigned mode);
void linux_close(int file);
ssize_t linux_read(int file, void *to, size_t bytes);
ssize_t linux_read_at(int file, void *to, size_t bytes, off_t offset);
ssize_t linux_write(int file, const void *from, size_t bytes);
void linux_send(int socket, const void *from, size_t bytes, int flags);
int linux_msync(void *address, size_t bytes, int flags);
int linux_fallocate(int file, int mode, off_t offset, off_t bytes);
/*
 * A program may close numbers that it does not know, as daemons do, and have files of its own under them: so ours are known by device and inode.
 * identify: false: there is no such file. is: whether the number is that file's still. errno may change.
 */
bool linux_file_identify(int file, uint64_t *device, uint64_t *inode);
bool linux_file_is(int file, uint64_t device, uint64_t inode);
/* A duplicate of a file of the program's, with one of our numbers, where the process may have such; -1 on failure. */
int linux_duplicate(int file);

/*
 * SIGPIPE and SIGXFSZ, which the system raises on the caller's thread for what one of our calls does, and which are to end no program for it: held
 * back from before the call; and taken after it where it has failed with the errno that goes with one. One that was pending before is the program's.
 * Both keep errno.
 */
struct linux_held_signals {
    bool held; /* false: the system didn't let us */
    sigset_t before, pending;
};
void linux_signals_hold(struct linux_held_signals *held);
void linux_signals_drop(const struct linux_held_signals *held, bool failed);

/* The decimal number at the start of a text, behind blanks; 0 where there is none. */
STRATA_INLINE uint64_t linux_number(const char *text) {
    uint64_t value = 0;
    while (*text == ' ' || *text == '\t') text++;
    for (; *text >= '0' && *text <= '9'; text++) value = value * 10 + (uint64_t)(*text - '0');
    return value;
}

#endif
