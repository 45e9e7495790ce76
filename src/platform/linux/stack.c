/*
 * stack.c - who called: return addresses for debugging, and the files that they belong to.
 *
 * The C library's backtrace() reads unwind tables, which programs have where they have no frame pointers. Its first call is a dlopen: that is made by
 * `prepare`, once the C library stands and the dynamic linker is not at work (a dlopen in front of that leaves the process without an
 * environment; one within another ends it). It may allocate, and so come here again: then, until it is done, and where there is no backtrace, frame
 * pointers are followed, by a system call that fails where memory can't be read.
 *
 * What is mapped is read from /proc/self/maps, without the locks of the dynamic linker, which the caller's thread or another may hold.
 */
#define _GNU_SOURCE 1
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "platform/linux/linux.h"

#ifdef __GLIBC__
#include <execinfo.h>
#include <link.h>
/* Weak, so that a wholly static program doesn't get the dlopen in it. */
#pragma weak backtrace
#pragma weak _r_debug
#endif

/* Frames of ours at the innermost end that are dropped, at most. */
#define OWN_FRAMES_MAX 12
#define FRAMES_MAX 64
/* From one frame to the next one there are at most so many bytes of stack. */
#define FRAME_BYTES_MAX (256 * KIB)

enum unwinder { UNWINDER_UNKNOWN, UNWINDER_PREPARING, UNWINDER_READY, UNWINDER_NONE };
static uint32_t unwinder;            /* enum unwinder; atomic */
static uintptr_t own_start, own_end; /* code of libstrata.so; 0: not known, or part of the program. Written before the unwinder is ready */

/* ------------------------------------------------------------------ what is mapped */

struct mapping {
    uintptr_t start, end, offset;
    bool executable;
    char path[256]; /* "": none */
};

static uintptr_t hexadecimal(const char **at) {
    uintptr_t value = 0;
    for (;; ++*at) {
        char c = **at;
        if (c >= '0' && c <= '9')
            value = value << 4 | (uintptr_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            value = value << 4 | (uintptr_t)(c - 'a' + 10);
        else
            return value;
    }
}

/* "start-end rwxp offset device inode   path" */
static bool parse_mapping(const char *line, struct mapping *mapping) {
    mapping->start = hexadecimal(&line);
    if (*line++ != '-') return false;
    mapping->end = hexadecimal(&line);
    if (strlen(line) < 6) return false;
    mapping->executable = line[3] == 'x';
    line += 6;
    mapping->offset = hexadecimal(&line);
    for (unsigned i = 0; i < 2; i++) {
        while (*line == ' ') line++;
        while (*line != ' ' && *line != 0) line++;
    }
    while (*line == ' ') line++;
    size_t length = strlen(line);
    if (length >= sizeof mapping->path) length = sizeof mapping->path - 1;
    memcpy(mapping->path, line, length);
    mapping->path[length] = 0;
    return true;
}

/* Calls visit for each mapping, until it returns false. */
static void each_mapping(bool (*visit)(const struct mapping *mapping, void *argument), void *argument) {
    char text[1024];
    struct mapping mapping;
    size_t length = 0;
    int saved = errno, file = linux_open("/proc/self/maps", O_RDONLY | O_CLOEXEC, 0);
    bool going = file >= 0;
    while (going) {
        ssize_t count = linux_read(file, text + length, sizeof text - 1 - length);
        if (count <= 0) break;
        length += (size_t)count;
        char *line = text, *end;
        while (going && (end = memchr(line, '\n', length - (size_t)(line - text))) != NULL) {
            *end = 0;
            going = !parse_mapping(line, &mapping) || visit(&mapping, argument);
            line = end + 1;
        }
        length -= (size_t)(line - text);
        memmove(text, line, length);
        if (length == sizeof text - 1) length = 0; /* a path that long: without it */
    }
    if (file >= 0) linux_close(file);
    errno = saved;
}

/* By the kernel, which says no where there is nothing to read. */
static bool read_memory(uintptr_t at, void *to, size_t bytes) {
    struct iovec local = {to, bytes}, remote = {(void *)at, bytes};
    return syscall(SYS_process_vm_readv, getpid(), &local, 1, &remote, 1, 0) == (long)bytes;
}

struct search {
    uintptr_t address, base; /* base: where the first mapping of the last file seen starts */
    bool position_dependent; /* its addresses are those that its tools know */
    struct mapping found;
    char last[256];
};

static bool search_mapping(const struct mapping *mapping, void *argument) {
    struct search *search = argument;
    if (mapping->path[0] == '/' && (mapping->offset == 0 || strcmp(mapping->path, search->last) != 0)) {
        memcpy(search->last, mapping->path, sizeof search->last);
        search->base = mapping->start - mapping->offset;
        search->position_dependent = false;
        Elf64_Ehdr header;
        if (mapping->offset == 0 && read_memory(mapping->start, &header, sizeof header) && memcmp(header.e_ident, ELFMAG, SELFMAG) == 0)
            search->position_dependent = header.e_type == ET_EXEC;
    }
    if (search->address < mapping->start || search->address >= mapping->end) return true;
    search->found = *mapping;
    return false;
}

bool platform_module_of(uintptr_t address, char *path, size_t bytes, uintptr_t *offset) {
    struct search search = {.address = address};
    each_mapping(search_mapping, &search);
    if (search.found.path[0] == 0 || bytes == 0) return false;
    size_t length = strlen(search.found.path);
    if (length >= bytes) length = bytes - 1;
    memcpy(path, search.found.path, length);
    path[length] = 0;
    if (search.found.path[0] != '/')
        *offset = address - search.found.start;
    else
        *offset = search.position_dependent ? address : address - search.base;
    return true;
}

/* ------------------------------------------------------------------ stacks */

struct frame {
    uintptr_t caller, address;
};

static STRATA_NOINLINE unsigned follow_frames(uintptr_t *frames, unsigned max) {
    uintptr_t at = (uintptr_t)__builtin_frame_address(0);
    unsigned count = 0;
    int saved = errno;
    struct frame frame;
    while (count < max && at % sizeof at == 0 && read_memory(at, &frame, sizeof frame) && frame.address > 4096) {
        frames[count++] = frame.address;
        if (frame.caller <= at || frame.caller - at > FRAME_BYTES_MAX) break;
        at = frame.caller;
    }
    errno = saved;
    return count;
}

/* The unwinder allocates where a program has registered tables (__register_frame), under a lock of its own: not a second time on this thread. */
static unsigned all_frames(uintptr_t *frames, unsigned max) {
#ifdef __GLIBC__
    static __thread bool unwinding __attribute__((tls_model("initial-exec")));
    if (backtrace != NULL && !unwinding && __atomic_load_n(&unwinder, __ATOMIC_ACQUIRE) == UNWINDER_READY) {
        unwinding = true;
        int saved = errno, count = backtrace((void **)(void *)frames, (int)max);
        errno = saved;
        unwinding = false;
        if (count > 0) return (unsigned)count;
    }
#endif
    return follow_frames(frames, max);
}

static bool search_own(const struct mapping *mapping, void *argument) {
    uintptr_t here = (uintptr_t)platform_stack_prepare;
    (void)argument;
    if (here < mapping->start || here >= mapping->end) return true;
    const char *name = strrchr(mapping->path, '/');
    if (mapping->executable && name != NULL && strncmp(name, "/libstrata", 10) == 0) {
        own_start = mapping->start;
        own_end = mapping->end;
    }
    return false;
}

/* Whether a dlopen is in order: see above. */
static bool is_prepared_for(void) {
#ifdef __GLIBC__
    return backtrace == NULL || (environ != NULL && (&_r_debug == NULL || _r_debug.r_state == RT_CONSISTENT));
#else
    return true;
#endif
}

void platform_stack_prepare(void) {
    uint32_t expected = UNWINDER_UNKNOWN;
    if (!is_prepared_for()) return;
    if (!__atomic_compare_exchange_n(&unwinder, &expected, UNWINDER_PREPARING, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) return;
    each_mapping(search_own, NULL);
    uint32_t found = UNWINDER_NONE;
#ifdef __GLIBC__
    void *first[4];
    if (backtrace != NULL && backtrace(first, 4) > 0) found = UNWINDER_READY;
#endif
    __atomic_store_n(&unwinder, found, __ATOMIC_RELEASE);
}

unsigned platform_stack(uintptr_t *frames, unsigned max) {
    if (STRATA_UNLIKELY(__atomic_load_n(&unwinder, __ATOMIC_RELAXED) == UNWINDER_UNKNOWN)) platform_stack_prepare();
    uintptr_t all[FRAMES_MAX + OWN_FRAMES_MAX];
    unsigned count = all_frames(all, (unsigned)min_u64(max, FRAMES_MAX) + OWN_FRAMES_MAX), own = 0;
    while (own < count && own < OWN_FRAMES_MAX && all[own] - own_start < own_end - own_start) own++;
    count = (unsigned)min_u64(count - own, max);
    memcpy(frames, all + own, count * sizeof *frames);
    return count;
}

uint32_t platform_thread_number(void) { return (uint32_t)syscall(SYS_gettid); }
