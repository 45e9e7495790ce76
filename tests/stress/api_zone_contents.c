/*
 * api_zone_contents.c - what is in frames of a zone stays what was written last, however it was written: through a window that is gone, at an address
 * that the system has taken out of the page tables, by another mapping of the file, by pwrite, by the system for a device that had a pin, by a forked
 * child. Reclaim writes all of it to the owner's file before the frames are another's. And what a window shows is written to by system calls without
 * fail while its frames would move, with privilege and without.
 */
#define _GNU_SOURCE 1
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include <strata/zone_backing.h>
#include <strata/zone_reclaim.h>

#include "forbid.h"
#include "own_process.h"

enum { FRAMES = 64, FRAME = 4096, SUPERPAGES = 4, FRAMES_EACH = 512, TURNS = 60 };

static struct strata_zone *zone;
static unsigned owner, told_clean;
static uint64_t frames[FRAMES];
static char path[64];

static enum strata_zone_answer give_up(struct strata_zone *its, uint64_t frame, uint64_t count, uint64_t token, bool dirty, void *context) {
    (void)context;
    EXPECT(its == zone && count == 1 && frames[token] == frame);
    told_clean += !dirty;
    return STRATA_ZONE_WRITE;
}

static void begin(enum strata_zone_backend backend) {
    const struct strata_zone_config config = {
        .name = "contents", .backend = backend, .bytes = SUPERPAGES * STRATA_ZONE_SUPERPAGE_BYTES, .frame_bytes = FRAME};
    const struct strata_zone_owner program = {.name = "program", .reclaim = give_up};
    const struct strata_zone_reclaim_config reclaim = {.policy = STRATA_ZONE_RECLAIM_LRU, .high_frames = 1};
    const struct strata_zone_backing_config backing = {.path = path, .bytes = FRAMES * FRAME};
    snprintf(path, sizeof path, "/tmp/api_zone_contents.%d", (int)getpid());
    unlink(path);
    EXPECT(strata_zone_create(&config, &zone) == STRATA_ZONE_OK && strata_zone_owner_add(zone, &program, &owner) == STRATA_ZONE_OK);
    EXPECT(strata_zone_backing_open(zone, owner, &backing) == STRATA_ZONE_OK && strata_zone_reclaim_start(zone, &reclaim) == STRATA_ZONE_OK);
    told_clean = 0;
    for (uint64_t i = 0; i < FRAMES; i++) {
        const struct strata_zone_request request = {.frames = 1, .mobility = STRATA_ZONE_MOVABLE, .owner = owner, .token = i};
        EXPECT(strata_zone_alloc_as(zone, &request, &frames[i]) == STRATA_ZONE_OK);
    }
}

static char of(uint64_t i) { return (char)(i + 'A'); }

/* All of it is in the file, and comes back from there. */
static void end(const char *how) {
    static char page[FRAME];
    uint64_t dropped;
    EXPECT(strata_zone_reclaim(zone, FRAMES, 0, &dropped) == STRATA_ZONE_OK && dropped == FRAMES);
    if (told_clean != 0) fprintf(stderr, "%s: %u blocks were said to be clean\n", how, told_clean);
    EXPECT(told_clean == 0);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    EXPECT(file >= 0);
    for (uint64_t i = 0; i < FRAMES; i++) {
        uint64_t frame;
        EXPECT(pread(file, page, FRAME, (off_t)(i * FRAME)) == FRAME);
        if (page[0] != of(i) || memcmp(page, page + 1, FRAME - 1) != 0) fprintf(stderr, "%s: page %u is not in the file\n", how, (unsigned)i);
        EXPECT(page[0] == of(i) && memcmp(page, page + 1, FRAME - 1) == 0);
        EXPECT(strata_zone_alloc(zone, 1, STRATA_ZONE_UNMOVABLE, &frame) == STRATA_ZONE_OK);
        EXPECT(strata_zone_backing_read(zone, owner, frame, 1, i) == STRATA_ZONE_OK);
        EXPECT(memcmp(strata_zone_address(zone, frame), page, FRAME) == 0);
    }
    close(file);
    unlink(path);
    EXPECT(strata_zone_check(zone) == NULL && strata_zone_destroy(zone) == STRATA_ZONE_OK);
}

static void write_at_addresses(void) {
    for (uint64_t i = 0; i < FRAMES; i++) memset(strata_zone_address(zone, frames[i]), of(i), FRAME);
}

/* ------------------------------------------------------------------ how it is written */

static void by_a_window(void) {
    void *window;
    EXPECT(strata_zone_window_open(zone, FRAMES * FRAME, &window) == STRATA_ZONE_OK);
    for (uint64_t i = 0; i < FRAMES; i++) {
        EXPECT(strata_zone_map(zone, frames[i], 1, (char *)window + i * FRAME) == STRATA_ZONE_OK);
        memset((char *)window + i * FRAME, of(i), FRAME);
    }
    EXPECT(strata_zone_unmap(zone, window, FRAMES * FRAME) == STRATA_ZONE_OK);
}

static void by_addresses_that_the_system_takes_out(void) {
    write_at_addresses();
    (void)madvise(strata_zone_address(zone, 0), SUPERPAGES * STRATA_ZONE_SUPERPAGE_BYTES, 21 /* MADV_PAGEOUT */);
    EXPECT(madvise(strata_zone_address(zone, 0), SUPERPAGES * STRATA_ZONE_SUPERPAGE_BYTES, MADV_DONTNEED) == 0); /* as where memory is short */
}

static void by_another_mapping(void) {
    size_t bytes = SUPERPAGES * STRATA_ZONE_SUPERPAGE_BYTES;
    char *other = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, strata_zone_file(zone), 0);
    EXPECT(other != MAP_FAILED);
    for (uint64_t i = 0; i < FRAMES; i++) memset(other + frames[i] * FRAME, of(i), FRAME);
    EXPECT(munmap(other, bytes) == 0);
}

/* As a device does which was given the frame: it stays where it is, and our page tables know nothing of the write. */
static void by_the_system_while_pinned(void) {
    static char page[FRAME];
    for (uint64_t i = 0; i < FRAMES; i++) {
        memset(page, of(i), FRAME);
        EXPECT(strata_zone_pin(zone, frames[i], 1) == STRATA_ZONE_OK);
        EXPECT(pwrite(strata_zone_file(zone), page, FRAME, (off_t)(frames[i] * FRAME)) == FRAME);
        EXPECT(strata_zone_unpin(zone, frames[i], 1) == STRATA_ZONE_OK);
    }
}

static void by_a_child(void) {
    pid_t child = fork();
    if (child == 0) {
        write_at_addresses();
        _exit(0);
    }
    expect_child(child, 0);
}

/* The child has the frames, and nothing in its page tables; it writes to no file of its parent's, but must not say that they are clean. */
static void what_a_child_has(void) {
    const struct strata_zone_reclaim_config reclaim = {.policy = STRATA_ZONE_RECLAIM_LRU, .high_frames = 1};
    begin(STRATA_ZONE_MEMFD);
    write_at_addresses();
    pid_t child = fork();
    if (child == 0) {
        uint64_t dropped;
        EXPECT(strata_zone_reclaim_stop(zone) == STRATA_ZONE_OK && strata_zone_reclaim_start(zone, &reclaim) == STRATA_ZONE_OK);
        EXPECT(strata_zone_reclaim(zone, FRAMES, 0, &dropped) == STRATA_ZONE_NO_FRAMES && dropped == 0 && told_clean == 0);
        for (uint64_t i = 0; i < FRAMES; i++) EXPECT(*(char *)strata_zone_address(zone, frames[i]) == of(i));
        _exit(0);
    }
    expect_child(child, 0);
    end("in a child");
}

static const struct way {
    const char *name;
    void (*write)(void);
    enum strata_zone_backend backend;
} ways[] = {
    {"by a window", by_a_window, STRATA_ZONE_MEMFD},
    {"paged out", by_addresses_that_the_system_takes_out, STRATA_ZONE_MEMFD},
    {"by another mapping", by_another_mapping, STRATA_ZONE_MEMFD},
    {"while pinned", by_the_system_while_pinned, STRATA_ZONE_MEMFD},
    {"by a child", by_a_child, STRATA_ZONE_MEMFD},
    {"private memory", write_at_addresses, STRATA_ZONE_ANON},
    {"memory of the heap", write_at_addresses, STRATA_ZONE_HEAP},
};

/* ------------------------------------------------------------------ system calls into windows */

static char *window;
static unsigned stop; /* atomic */

static void *read_into_window(void *argument) {
    uint64_t random = random_seed(1), *reads = argument;
    int zeros = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    EXPECT(zeros >= 0);
    for (; __atomic_load_n(&stop, __ATOMIC_RELAXED) == 0; ++*reads) {
        /* Not by the C library: a sanitizer would take the mapping that is exchanged under it for another write. */
        long got = syscall(SYS_read, zeros, window + next_random(&random) % FRAMES_EACH * FRAME, (size_t)FRAME);
        if (got != FRAME) fprintf(stderr, "read(2) into a window: %s\n", strerror(errno));
        EXPECT(got == FRAME);
    }
    close(zeros);
    return NULL;
}

/* One frame in four is shown, all over the zone; each superpage in turn is wanted as a whole. Where the frames may not move, none is had. */
static void move_under_system_calls(void) {
    const struct strata_zone_config config = {
        .name = "calls", .backend = STRATA_ZONE_MEMFD, .bytes = SUPERPAGES * STRATA_ZONE_SUPERPAGE_BYTES, .frame_bytes = FRAME};
    static uint64_t all[SUPERPAGES * FRAMES_EACH];
    uint64_t reads = 0, captured = 0, frame;
    void *address;
    pthread_t reader;
    EXPECT(strata_zone_create(&config, &zone) == STRATA_ZONE_OK && SUPERPAGES == 4);
    EXPECT(strata_zone_window_open(zone, FRAMES_EACH * FRAME, &address) == STRATA_ZONE_OK);
    window = address;
    for (uint64_t i = 0; i < SUPERPAGES * FRAMES_EACH; i++) EXPECT(strata_zone_alloc(zone, 1, STRATA_ZONE_MOVABLE, &all[i]) == STRATA_ZONE_OK);
    for (uint64_t i = 0; i < SUPERPAGES * FRAMES_EACH; i++) {
        if (i % 4 != 0)
            EXPECT(strata_zone_free(zone, all[i], 1) == STRATA_ZONE_OK);
        else
            EXPECT(strata_zone_map(zone, all[i], 1, window + i / 4 * FRAME) == STRATA_ZONE_OK);
    }
    memset(window, 0, FRAMES_EACH * FRAME);
    EXPECT(pthread_create(&reader, NULL, read_into_window, &reads) == 0);
    for (unsigned turn = 0; turn < TURNS * SUPERPAGES; turn++) {
        const struct strata_zone_capture_request request = {
            .frames = FRAMES_EACH, .at = turn % SUPERPAGES * FRAMES_EACH, .mobility = STRATA_ZONE_MOVABLE, .flags = STRATA_ZONE_CAPTURE_AT};
        enum strata_zone_status status = strata_zone_capture_run(zone, &request, &frame);
        EXPECT(status == STRATA_ZONE_OK || status == STRATA_ZONE_NO_FRAMES);
        if (status != STRATA_ZONE_OK) continue;
        captured++;
        EXPECT(strata_zone_free(zone, frame, FRAMES_EACH) == STRATA_ZONE_OK);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    EXPECT(pthread_join(reader, NULL) == 0);
    EXPECT(strata_zone_check(zone) == NULL && strata_zone_destroy(zone) == STRATA_ZONE_OK);
    fprintf(stderr, "%llu superpages had while %llu reads went into windows\n", (unsigned long long)captured, (unsigned long long)reads);
}

int main(int argc, char **argv) {
    if (argc > 1) {
        EXPECT(strcmp(argv[1], "calls") == 0);
        drop_privilege();
        move_under_system_calls();
        _exit(0); /* a sanitizer's look for leaks wants rights that are gone */
    }
    for (unsigned i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        begin(ways[i].backend);
        ways[i].write();
        end(ways[i].name);
    }
    what_a_child_has();
    move_under_system_calls();
    run_in_own_process("calls", "background:off", NULL, NULL);
    expect_sound();
    return 0;
}
