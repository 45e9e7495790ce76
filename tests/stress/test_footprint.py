"""What a program pays for the library alone."""

import re
import subprocess
from pathlib import Path

import pytest

PAGE_KIB = 4


def mappings(smaps, name):
    """(permissions, size, resident), in KiB, of the mappings of a file."""
    found = []
    for line in smaps.splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            fields = line.split()
            found.append([fields[1], 0, 0, fields[5] if len(fields) > 5 else ""])
        elif line.startswith("Size:"):
            found[-1][1] = int(line.split()[1])
        elif line.startswith("Rss:"):
            found[-1][2] = int(line.split()[1])
    return [(permissions, size, rss) for permissions, size, rss, path in found if Path(path).name.startswith(name)]


def library_mappings(strata, *command):
    """Those of strata in a process that prints its smaps. It runs without options, as reading these is not of what every program does."""
    environment = strata.environment()
    del environment["STRATA_CONF"]
    return mappings(subprocess.run(command, env=environment, capture_output=True, check=True, text=True).stdout, "libstrata.so")


@pytest.mark.strata_only
def test_small_program_maps_what_it_uses(strata):
    """
    The kernel maps 16 pages round each one that is touched. Code that small programs never use lies in windows of its own (cmake/layout.ld), and
    nobody touches the unwinding tables.
    """
    found = library_mappings(strata, "/bin/cat", "/proc/self/smaps")
    assert found
    code = [(size, rss) for permissions, size, rss in found if "x" in permissions]
    assert len(code) == 1
    assert 0 < code[0][1] <= code[0][0] - 6 * PAGE_KIB, "all of the code is present, also what cat has no use for"
    assert any(rss == 0 and size >= 5 * PAGE_KIB for permissions, size, rss in found if permissions.startswith("r--")), found
    assert sum(rss for _, _, rss in found) <= 128


# What programs of this file say of themselves, without an allocation.
PRINT_FILE = r"""
#include <fcntl.h>
#include <unistd.h>
static char text[1 << 18];
static int print_file(const char *path) {
    int file = open(path, O_RDONLY);
    for (ssize_t count; (count = read(file, text, sizeof text)) > 0;)
        if (write(1, text, (size_t)count) != count) return 1;
    return 0;
}
"""

@pytest.mark.strata_only
def test_the_usual_code_fits_its_window(strata):
    """
    Behind the functions lie the ways out of restartable sequences, which programs take when they are interrupted in one: they would bring one more
    window only in some runs.
    """
    headers = subprocess.run(["readelf", "-SW", strata.library], capture_output=True, check=True, text=True).stdout
    sections = {
        name: (int(address, 16), int(size, 16)) for name, address, size in re.findall(r"\] (\S+) +\w+ +([0-9a-f]{16}) [0-9a-f]{6} ([0-9a-f]{6})", headers)
    }
    start = sections[".init"][0]
    assert start % (16 * PAGE_KIB * 1024) == 0
    assert sum(sections[".fini"]) <= start + 16 * PAGE_KIB * 1024


# As programs that read a file or a directory have one: a buffer that goes, and a larger one that takes its place.
BUFFERS = (
    PRINT_FILE
    + r"""
#include <stdlib.h>
#include <string.h>
int main(void) {
    for (size_t bytes = 33 << 10; bytes < 200000; bytes *= 2) {
        char *volatile buffer = malloc(bytes);
        if (buffer == NULL) return 4;
        memset(buffer, 1, bytes);
        free(buffer);
    }
    return print_file("/proc/self/smaps");
}
"""
)


@pytest.mark.strata_only
def test_a_program_with_a_buffer_comes_to_one_window_of_code(strata, compile_c):
    """The first block of some pages that is freed, and those that are given up for a larger one, are of what most programs do."""
    code = [rss for permissions, _, rss in library_mappings(strata, compile_c("buffers", BUFFERS)) if "x" in permissions]
    assert len(code) == 1 and 0 < code[0] <= 16 * PAGE_KIB


# Trees that are built and torn down, buffers that grow, bursts of many sizes, and pages that become idle, of which some go at a new peak: a program of
# some MiB, as most are.
SOME_MIB = (
    PRINT_FILE
    + r"""
#include <stdlib.h>
#include <string.h>
static void *kept[100000];
static void grow(size_t end) {
    char *buffer = NULL;
    for (size_t bytes = 100; bytes < end; bytes = bytes * 3 / 2) {
        buffer = realloc(buffer, bytes);
        if (buffer == NULL) _exit(3);
        memset(buffer, 1, bytes);
    }
    free(buffer);
}
static void bursts(unsigned count) {
    for (unsigned state = 7; count != 0; count--) {
        int length = 16 << (count * 7 % 9), step = count % 2 != 0 ? 1 : 2654435761u % 4096 | 1;
        for (int i = 0; i < length; i++) {
            state = state * 1103515245 + 12345;
            unsigned size = state >> 29 != 0 ? 8 + (state >> 16 & 255) : 256 + (state >> 12) % 3840;
            if ((kept[i] = malloc(size)) == NULL) _exit(5);
            memset(kept[i], 1, size);
        }
        for (int i = 0; i < length; i++) free(kept[(long)i * step & (length - 1)]);
    }
}
int main(void) {
    bursts(400);
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < 100000; i++)
            if ((kept[i] = malloc(16 + (size_t)i * 37 % (round < 2 ? 100 : 300))) == NULL) return 4;
        grow((size_t)4 << 20);
        for (int i = 0; i < 100000; i++) free(kept[i]);
    }
    return print_file("/proc/self/smaps");
}
"""
)


@pytest.mark.strata_only
def test_a_program_of_some_mib_comes_to_two_windows_of_code(strata, compile_c):
    """What it calls beyond the small ones lies together in the window before theirs (cmake/layout.ld), and so do the constants that it reads."""
    found = library_mappings(strata, compile_c("some_mib", SOME_MIB))
    code = [rss for permissions, _, rss in found if "x" in permissions]
    assert len(code) == 1 and 0 < code[0] <= 2 * 16 * PAGE_KIB
    assert any(rss == 0 and size >= 5 * PAGE_KIB for permissions, size, rss in found if permissions.startswith("r--")), found
    assert sum(rss for _, _, rss in found) <= 192


# Waves of small objects, for which there are thousands of visits of slow paths; exits with 1 where one of them came to the C library's clock_gettime,
# before which the program's own goes.
CLOCK_CALLS = r"""
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static void *kept[100000];
static unsigned calls;
int clock_gettime(clockid_t clock, struct timespec *now) {
    calls++;
    return (int)syscall(SYS_clock_gettime, clock, now);
}
int main(void) {
    for (int wave = 0; wave < 10; wave++) {
        for (int i = 0; i < 100000; i++) kept[i] = malloc(16 + i % 64);
        for (int i = 0; i < 100000; i++) free(kept[i]);
    }
    return calls != 0;
}
"""


@pytest.mark.strata_only
def test_the_clock_brings_no_code_of_the_c_library(strata, compile_c):
    """A look at the clock takes place in the kernel's own object: the C library's function lies in a window of code that many programs have no use for."""
    environment = strata.environment()
    del environment["STRATA_CONF"]
    assert subprocess.run([compile_c("clock_calls", CLOCK_CALLS)], env=environment, timeout=60).returncode == 0


# Two threads with small objects of many sizes, which each ends what it made, and some of what the other did. Not for so long that a tick, whose code
# lies elsewhere, comes in between on a busy machine.
TWO_THREADS = (
    PRINT_FILE
    + r"""
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
static void *passed[1000];
static void *work(void *unused) {
    void *kept[500] = {0};
    for (unsigned i = 0; i < 400000; i++) {
        unsigned at = i * 7919u % 500;
        if ((i & 15) == 0) {
            free(__atomic_exchange_n(&passed[i % 1000], malloc(100), __ATOMIC_ACQ_REL));
            continue;
        }
        free(kept[at]);
        if ((kept[at] = malloc(8 + i * 37u % 2000)) == NULL) _exit(3);
        memset(kept[at], 1, 8);
    }
    for (unsigned i = 0; i < 500; i++) free(kept[i]);
    return unused;
}
int main(void) {
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        if (pthread_create(&threads[i], NULL, work, NULL) != 0) return 4;
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    return print_file("/proc/self/smaps");
}
"""
)


@pytest.mark.strata_only
def test_two_threads_come_to_two_windows_of_code(strata, compile_c):
    """What keeps their objects apart (homes, shelves, shards) lies in the one that programs of some MiB come to."""
    code = [rss for permissions, _, rss in library_mappings(strata, compile_c("two_threads", TWO_THREADS, "-pthread")) if "x" in permissions]
    assert len(code) == 1 and 0 < code[0] <= 2 * 16 * PAGE_KIB


# A block of pages from its first MiB to 16 MiB, by the library's own names.
GROWING_PAGES = (
    PRINT_FILE
    + r"""
#include <dlfcn.h>
#include <string.h>
int main(void) {
    int (*alloc)(size_t, unsigned, void **) = (int (*)(size_t, unsigned, void **))dlsym(RTLD_DEFAULT, "strata_page_alloc");
    int (*resize)(void **, size_t, unsigned) = (int (*)(void **, size_t, unsigned))dlsym(RTLD_DEFAULT, "strata_page_realloc");
    void *block;
    if (alloc((size_t)1 << 20, 0, &block) != 0) return 3;
    for (size_t bytes = (size_t)1 << 20; bytes <= (size_t)16 << 20; bytes *= 2) {
        if (resize(&block, bytes, 0) != 0) return 4;
        memset(block, 1, bytes);
    }
    return print_file("/proc/self/smaps");
}
"""
)


@pytest.mark.strata_only
def test_a_block_of_pages_grows_within_two_windows_of_code(strata, compile_c):
    """A window more is a fault in the middle of a step of growth."""
    code = [rss for permissions, _, rss in library_mappings(strata, compile_c("growing_pages", GROWING_PAGES)) if "x" in permissions]
    assert len(code) == 1 and 0 < code[0] <= 2 * 16 * PAGE_KIB


# The loader's own allocations come from its own allocator; the C library makes none for this.
NEVER_ALLOCATES = (
    PRINT_FILE
    + r"""
int main(void) { return print_file("/proc/self/maps"); }
"""
)


@pytest.mark.strata_only
def test_a_process_that_never_allocates_has_no_heap(strata, compile_c):
    """It is built by the first allocation, or where the user has set options, which may be wrong, or want a report at exit."""
    environment = strata.environment()
    program = compile_c("never_allocates", NEVER_ALLOCATES)

    def largest():
        maps = subprocess.run([program], env=environment, capture_output=True, check=True, text=True).stdout
        assert "libstrata" in maps
        ends = [re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line).groups() for line in maps.splitlines()]
        return max(int(end, 16) - int(start, 16) for start, end in ends)

    assert largest() > 1 << 36
    del environment["STRATA_CONF"]
    assert largest() < 1 << 30


# Each process allocates for the first time after a fork; the last forks while another thread does.
FIRST_AFTER_FORK = r"""
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
static volatile int going = 1;
static void work(void) {
    for (int i = 0; i < 2000; i++) {
        size_t bytes = 16 + (size_t)i * 37 % 5000;
        char *block = malloc(bytes);
        if (block == NULL) _exit(3);
        memset(block, i, bytes);
        free(block);
    }
}
static void *work_on(void *unused) {
    while (going) work();
    return unused;
}
static void wait_for_child(pid_t child) {
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) _exit(4);
}
int main(void) {
    pid_t child = fork();
    if (child == 0) {
        pid_t grandchild = fork();
        work();
        if (grandchild == 0) _exit(0);
        wait_for_child(grandchild);
        _exit(0);
    }
    wait_for_child(child);
    work();
    pthread_t thread;
    if (pthread_create(&thread, NULL, work_on, NULL) != 0) return 5;
    for (int i = 0; i < 100; i++) {
        child = fork();
        if (child == 0) {
            work();
            _exit(0);
        }
        wait_for_child(child);
    }
    going = 0;
    pthread_join(thread, NULL);
    return 0;
}
"""


@pytest.mark.strata_only
def test_the_first_allocation_after_a_fork(strata, compile_c):
    """Without locks where the process has one thread, with them where it has two."""
    environment = strata.environment()
    del environment["STRATA_CONF"]
    program = compile_c("first_after_fork", FIRST_AFTER_FORK, "-pthread")
    subprocess.run([program], env=environment, check=True, timeout=60)


# What follows the first thread's stack: where the heap was there before it, the arrays of CPUs might.
BEHIND_A_STACK = (
    "#define _GNU_SOURCE"
    + PRINT_FILE
    + r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
static void *show(void *unused) {
    pthread_attr_t attributes;
    void *start;
    size_t bytes;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0 || pthread_attr_getstack(&attributes, &start, &bytes) != 0) exit(3);
    printf("%lx\n", (unsigned long)start + bytes);
    fflush(stdout);
    if (print_file("/proc/self/maps") != 0) exit(4);
    return unused;
}
int main(void) {
    pthread_t thread;
    free(malloc(100));
    return pthread_create(&thread, NULL, show, NULL) != 0 || pthread_join(thread, NULL) != 0;
}
"""
)


@pytest.mark.strata_only
def test_nothing_that_is_written_lies_behind_a_stack(strata, compile_c):
    """
    At its end a thread has what it writes with each allocation, and processors fetch the next line ahead. That of another CPU's array would go to and
    fro: a fifth of the time of two threads.
    """
    program = compile_c("behind_a_stack", BEHIND_A_STACK, "-pthread")
    environment = strata.environment()
    del environment["STRATA_CONF"]
    end, *maps = subprocess.run([program], env=environment, capture_output=True, check=True, text=True).stdout.splitlines()
    found = {line.split("-")[0]: line.split()[1] for line in maps}
    assert len(found) > 10
    assert not found.get(end, "---p").startswith("rw"), (end, maps)


# How many pages of a fresh table are there: in a small process, in one that has more, and in a small one beside another thread.
TABLES = r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#define PAGES 60
static int present(void) {
    unsigned char resident[PAGES];
    char *table = calloc(PAGES, 4096);
    int count = 0;
    if (table == NULL || mincore(table, sizeof resident * 4096, resident) != 0) exit(3);
    for (int i = 0; i < PAGES; i++) count += resident[i] & 1;
    return count; /* it stays, so that each is a fresh one */
}
static void *wait_for_end(void *pipe_end) {
    char byte;
    return read(*(int *)pipe_end, &byte, 1) == 1 ? NULL : pipe_end;
}
int main(int count, char **arguments) {
    (void)arguments;
    if (count == 2) { /* beside a thread */
        int ends[2];
        pthread_t thread;
        if (pipe(ends) != 0 || pthread_create(&thread, NULL, wait_for_end, ends) != 0) return 4;
        printf("%d\n", present());
        return write(ends[1], "", 1) != 1 || pthread_join(thread, NULL) != 0;
    }
    int few = present();
    char *block = malloc(20 << 20);
    if (block == NULL) return 5;
    memset(block, 1, 20 << 20);
    printf("%d %d\n", few, present());
    return 0;
}
"""


@pytest.mark.strata_only
def test_a_table_is_made_present_where_that_is_little(strata, compile_c):
    """Python's first table and git's are sparse, and would be a tenth of what these have; in a larger process it saves faults."""
    program = compile_c("tables", TABLES, "-pthread")
    environment = strata.environment()
    del environment["STRATA_CONF"]

    def present(*arguments):
        said = subprocess.run([program, *arguments], env=environment, capture_output=True, check=True, text=True).stdout
        return [int(count) for count in said.split()]

    assert present() == [0, 60]
    assert present("beside") == [60]
