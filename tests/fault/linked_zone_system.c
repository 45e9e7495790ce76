/*
 * linked_zone_system.c - zones on a system that refuses something: linked_zone_system CASE. The suite knows what strata answers.
 *
 * Limits are set by the program itself, once strata is there. It prints what each call answered.
 */
#include "stress/support.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <strata/handle.h>
#include <strata/zone_compact.h>

enum { FRAME = 4096, SUPERPAGE_FRAMES = 512, SPARSE = 8 };

static void tell(const char *what, const char *answer) {
    char line[256];
    int length = snprintf(line, sizeof line, "%s: %s\n", what, answer);
    REQUIRE(write(STDOUT_FILENO, line, (size_t)length) == length);
}
static void tell_status(const char *what, enum strata_zone_status status) { tell(what, strata_zone_status_text(status)); }
static void tell_number(const char *what, uint64_t number) {
    char digits[32];
    REQUIRE(snprintf(digits, sizeof digits, "%llu", (unsigned long long)number) > 0);
    tell(what, digits);
}

static enum strata_zone_status create(enum strata_zone_backend backend, uint64_t bytes, struct strata_zone **zone) {
    const struct strata_zone_config config = {.name = "system", .backend = backend, .bytes = bytes, .frame_bytes = FRAME, .cpus = 1};
    return strata_zone_create(&config, zone);
}
static void limit(__rlimit_resource_t resource, rlim_t soft) {
    struct rlimit limits;
    REQUIRE(getrlimit(resource, &limits) == 0);
    limits.rlim_cur = soft;
    REQUIRE(setrlimit(resource, &limits) == 0);
}
/* A zone that the system refuses leaves nothing behind, and another one may be had. */
static void refused(enum strata_zone_backend backend, uint64_t bytes, __rlimit_resource_t resource, rlim_t soft) {
    struct strata_zone *zone = NULL;
    struct rlimit before;
    REQUIRE(create(STRATA_ZONE_SIM, 2 * MIB, &zone) == STRATA_ZONE_OK && strata_zone_destroy(zone) == STRATA_ZONE_OK);
    REQUIRE(getrlimit(resource, &before) == 0);
    zone = NULL;
    limit(resource, soft);
    tell_status("create", create(backend, bytes, &zone));
    REQUIRE(zone == NULL);
    REQUIRE(setrlimit(resource, &before) == 0);
    tell_status("then", create(STRATA_ZONE_MEMFD, 2 * MIB, &zone));
    REQUIRE(strata_zone_check(zone) == NULL && strata_zone_destroy(zone) == STRATA_ZONE_OK);
}

/* ------------------------------------------------------------------ the memory's file */

static void resize_the_file(void) {
    struct strata_zone *zone;
    uint64_t frame;
    REQUIRE(create(STRATA_ZONE_MEMFD, 4 * MIB, &zone) == STRATA_ZONE_OK);
    REQUIRE(strata_zone_alloc(zone, SUPERPAGE_FRAMES, STRATA_ZONE_MOVABLE, &frame) == STRATA_ZONE_OK);
    memset(strata_zone_address(zone, frame), 7, 2 * MIB);
    tell("shrink", ftruncate(strata_zone_file(zone), 4096) == 0 ? "done" : strerror(errno));
    tell("grow", ftruncate(strata_zone_file(zone), 64 << 20) == 0 ? "done" : strerror(errno));
    const char *bytes = strata_zone_address(zone, frame);
    tell("contents", bytes[0] == 7 && memcmp(bytes, bytes + 1, 2 * MIB - 1) == 0 ? "whole" : "lost");
    tell_status("discard", strata_zone_discard(zone, frame, SUPERPAGE_FRAMES));
    tell_status("populate", strata_zone_populate(zone, frame, SUPERPAGE_FRAMES));
    tell_status("destroy", strata_zone_destroy(zone));
}

/* ------------------------------------------------------------------ memory behind frames */

enum { POPULATE_WRITE = 23 };

/* The system answers one call with an error; of madvise only the advice that populates. */
static void answer_by(unsigned call, uint32_t advice, unsigned error) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, advice, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof filter / sizeof filter[0], filter};
    REQUIRE(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

/* The file of a memfd has no limit of its own, so a system whose memory is used up is made up: that says so, or that knows of no such advice. */
static void populate_a_full_file(void) {
    struct strata_zone *zone;
    uint64_t frame;
    REQUIRE(create(STRATA_ZONE_MEMFD, 4 * MIB, &zone) == STRATA_ZONE_OK);
    REQUIRE(strata_zone_alloc(zone, SUPERPAGE_FRAMES, STRATA_ZONE_MOVABLE, &frame) == STRATA_ZONE_OK);
    strata_zone_poke(zone, frame, 7);
    tell_status("room", strata_zone_populate(zone, frame, SUPERPAGE_FRAMES));
    REQUIRE(mlock(strata_zone_address(zone, frame), FRAME) == 0);
    tell_status("discard of what is locked", strata_zone_discard(zone, frame, 1));
    REQUIRE(munlock(strata_zone_address(zone, frame), FRAME) == 0);
    answer_by(SYS_madvise, POPULATE_WRITE, EINVAL);
    errno = E2BIG;
    tell_status("an older system", strata_zone_populate(zone, frame, SUPERPAGE_FRAMES));
    answer_by(SYS_fallocate, FRAME * (uint32_t)frame, ENOSPC); /* args[2]: the offset */
    tell_status("an older system, full", strata_zone_populate(zone, frame, SUPERPAGE_FRAMES));
    answer_by(SYS_madvise, POPULATE_WRITE, ENOMEM);
    tell_status("full", strata_zone_populate(zone, frame, SUPERPAGE_FRAMES));
    tell("errno", errno == E2BIG ? "kept" : "changed");
    tell("contents", strata_zone_peek(zone, frame) == 7 ? "kept" : "lost");
    tell("check", strata_zone_check(zone) == NULL ? "sound" : strata_zone_check(zone));
    tell_status("destroy", strata_zone_destroy(zone));
}

/* Node 0 is there wherever there are nodes; what is touched comes from it. */
static void bind_to_nodes(enum strata_zone_backend backend, const char *name) {
    enum { OF_ADDRESS = 3 }; /* MPOL_F_NODE | MPOL_F_ADDR */
    static const unsigned missing[] = {77, 1 << 20};
    struct strata_zone_config config = {
        .name = "node", .backend = backend, .bytes = 4 * MIB, .frame_bytes = FRAME, .node = 0, .cpus = 1, .flags = STRATA_ZONE_ON_NODE};
    struct strata_zone *zone = NULL;
    enum strata_zone_status status = strata_zone_create(&config, &zone);
    tell_status(name, status);
    if (status == STRATA_ZONE_OK) {
        uint64_t frame;
        int node = -1;
        REQUIRE(strata_zone_alloc(zone, 1, STRATA_ZONE_UNMOVABLE, &frame) == STRATA_ZONE_OK);
        strata_zone_poke(zone, frame, 7);
        if (backend != STRATA_ZONE_SIM) {
            REQUIRE(syscall(SYS_get_mempolicy, &node, NULL, 0, strata_zone_address(zone, frame), OF_ADDRESS) == 0);
            tell_number("node", (uint64_t)node);
        }
        REQUIRE(strata_zone_destroy(zone) == STRATA_ZONE_OK);
    }
    for (size_t i = 0; i < sizeof missing / sizeof missing[0]; i++) {
        zone = NULL;
        config.node = missing[i];
        tell_status("no such node", strata_zone_create(&config, &zone));
        REQUIRE(zone == NULL);
    }
    config.flags = 0;
    tell_status("without a node", strata_zone_create(&config, &zone)); /* `node` is of no meaning then */
    REQUIRE(strata_zone_destroy(zone) == STRATA_ZONE_OK);
}

/* ------------------------------------------------------------------ userfaultfd */

static void forbid_userfaultfd(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof filter / sizeof filter[0], filter};
    REQUIRE(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static enum strata_zone_answer migrate(struct strata_zone *zone, uint64_t from, uint64_t to, uint64_t frames, uint64_t token, void *context) {
    uint64_t *where = context;
    REQUIRE(where[token] == from && strata_zone_copy(zone, from, to, frames) == STRATA_ZONE_OK);
    where[token] = to;
    return STRATA_ZONE_YES;
}

/* Every eighth page of a full zone stays: half of these are shown by a window, the others are an owner's. */
static void move_without_faults(bool forbidden) {
    enum { SUPERPAGES = 4, FRAMES = SUPERPAGES * SUPERPAGE_FRAMES, LEFT = FRAMES / SPARSE };
    static uint64_t where[FRAMES];
    struct strata_zone *zone;
    unsigned owner;
    void *window;
    REQUIRE(create(STRATA_ZONE_MEMFD, SUPERPAGES * STRATA_ZONE_SUPERPAGE_BYTES, &zone) == STRATA_ZONE_OK);
    const struct strata_zone_owner program = {.name = "program", .migrate = migrate, .context = where};
    REQUIRE(strata_zone_owner_add(zone, &program, &owner) == STRATA_ZONE_OK);
    REQUIRE(strata_zone_window_open(zone, (size_t)LEFT * FRAME, &window) == STRATA_ZONE_OK);
    for (uint64_t i = 0; i < FRAMES; i++) {
        struct strata_zone_request request = {.frames = 1, .mobility = STRATA_ZONE_MOVABLE, .owner = i % (2 * SPARSE) == 0 ? 0 : owner, .token = i};
        REQUIRE(strata_zone_alloc_as(zone, &request, &where[i]) == STRATA_ZONE_OK);
        strata_zone_poke(zone, where[i], i);
    }
    for (uint64_t i = 0; i < FRAMES; i++) {
        if (i % SPARSE != 0) REQUIRE(strata_zone_free(zone, where[i], 1) == STRATA_ZONE_OK);
        if (i % (2 * SPARSE) == 0) REQUIRE(strata_zone_map(zone, where[i], 1, (char *)window + i / SPARSE * FRAME) == STRATA_ZONE_OK);
    }
    if (forbidden) forbid_userfaultfd();
    struct strata_zone_compact_counts counts;
    tell_status("compact", strata_zone_compact(zone, 0, &counts));
    bool all = counts.moved > LEFT / 4;
    tell_number("left where they are", counts.failed_later);
    uint64_t shown_moved = 0, lost = 0;
    for (uint64_t i = 0; i < FRAMES; i += SPARSE) {
        uint64_t frame = where[i];
        if (i % (2 * SPARSE) == 0) {
            REQUIRE(strata_zone_frame_at(zone, (char *)window + i / SPARSE * FRAME, &frame) == STRATA_ZONE_OK);
            shown_moved += frame != where[i];
            lost += *(uint64_t *)(void *)((char *)window + i / SPARSE * FRAME) != i;
        }
        lost += strata_zone_peek(zone, frame) != i;
    }
    tell("the owner's moved", all ? "yes" : "no");
    tell("the window's moved", shown_moved != 0 ? "yes" : "no");
    tell_number("lost", lost);
    tell("check", strata_zone_check(zone) == NULL ? "sound" : strata_zone_check(zone));
    tell_status("destroy", strata_zone_destroy(zone));
}

/* ------------------------------------------------------------------ mappings */

/* No two pages of the window show neighbours, so that each is a mapping, until the system has no more; a run of three pages is a mapping, too. */
static void use_up_mappings(void) {
    enum { RUN = 3 };
    const uint64_t frames = 1 << 18;
    const struct strata_zone_request one = {.frames = 1, .mobility = STRATA_ZONE_MOVABLE, .flags = STRATA_ZONE_NO_EFFORT};
    struct strata_zone *zone;
    struct strata_zone_compact_counts counts;
    uint64_t frame, pages = RUN, lost = 0;
    void *address;
    REQUIRE(create(STRATA_ZONE_MEMFD, frames * FRAME, &zone) == STRATA_ZONE_OK);
    REQUIRE(strata_zone_compact(zone, 9, &counts) == STRATA_ZONE_OK);            /* has what it needs to remember */
    while (strata_zone_alloc_as(zone, &one, &frame) == STRATA_ZONE_OK) continue; /* all of them */
    for (frame = RUN; frame < frames; frame += 2) REQUIRE(strata_zone_free(zone, frame, 1) == STRATA_ZONE_OK);
    REQUIRE(strata_zone_window_open(zone, frames / 2 * FRAME, &address) == STRATA_ZONE_OK);
    char *window = address;
    REQUIRE(strata_zone_map(zone, 0, RUN, window) == STRATA_ZONE_OK);
    enum strata_zone_status status = STRATA_ZONE_OK;
    while (pages < frames / 2 && status == STRATA_ZONE_OK) {
        status = strata_zone_map(zone, 2 * pages - 2, 1, window + pages * FRAME);
        pages += status == STRATA_ZONE_OK;
    }
    tell_status("map", status);
    tell_status("the page", strata_zone_frame_at(zone, window + pages * FRAME, &frame));
    tell_status("the middle of a run", strata_zone_unmap(zone, window + FRAME, FRAME));
    REQUIRE(strata_zone_frame_at(zone, window + FRAME, &frame) == STRATA_ZONE_OK && frame == 1);
    window[FRAME] = 'x';
    tell("it", *(char *)strata_zone_address(zone, 1) == 'x' ? "shows its frame" : "shows something else");
    for (uint64_t i = RUN; i < pages; i += 100) *(uint64_t *)(void *)(window + i * FRAME) = i;
    tell_status("compact", strata_zone_compact(zone, 9, &counts));
    tell("refused", counts.failed_later != 0 ? "yes" : "no");
    for (uint64_t i = RUN; i < pages; i += 100) {
        REQUIRE(strata_zone_frame_at(zone, window + i * FRAME, &frame) == STRATA_ZONE_OK);
        lost += *(uint64_t *)(void *)(window + i * FRAME) != i || strata_zone_peek(zone, frame) != i;
    }
    tell_number("lost", lost);
    struct strata_zone_stats stats;
    REQUIRE(strata_zone_stats_get(zone, &stats) == STRATA_ZONE_OK && stats.mapped == pages && stats.pinned == 0 && stats.moving == 0);
    tell_status("all", strata_zone_unmap(zone, window, pages * FRAME));
    REQUIRE(strata_zone_window_close(zone, window) == STRATA_ZONE_OK && strata_zone_window_open(zone, RUN * FRAME, &address) == STRATA_ZONE_OK);
    tell_status("again", strata_zone_map(zone, 0, RUN, address));
    REQUIRE(strata_zone_unmap(zone, address, RUN * FRAME) == STRATA_ZONE_OK);
    tell("check", strata_zone_check(zone) == NULL ? "sound" : strata_zone_check(zone));
    tell_status("destroy", strata_zone_destroy(zone));
}

/* ------------------------------------------------------------------ huge pages */

/* Windows of huge pages show superpages; what is refused is so for the size alone. */
static void use_huge_pages(void) {
    struct strata_zone *zone = NULL;
    uint64_t one, two, frame;
    void *address;
    enum strata_zone_status status = create(STRATA_ZONE_HUGETLB, 4 * STRATA_ZONE_SUPERPAGE_BYTES, &zone);
    tell_status("create", status);
    if (status != STRATA_ZONE_OK) return;
    REQUIRE(strata_zone_alloc(zone, SUPERPAGE_FRAMES, STRATA_ZONE_MOVABLE, &one) == STRATA_ZONE_OK);
    REQUIRE(strata_zone_alloc(zone, SUPERPAGE_FRAMES, STRATA_ZONE_MOVABLE, &two) == STRATA_ZONE_OK);
    tell_status("window of a frame", strata_zone_window_open(zone, FRAME, &address));
    tell_status("window", strata_zone_window_open(zone, 2 * STRATA_ZONE_SUPERPAGE_BYTES, &address));
    char *window = address, *second = window + STRATA_ZONE_SUPERPAGE_BYTES;
    tell_status("map a frame", strata_zone_map(zone, one, 1, window));
    tell_status("map inside a superpage", strata_zone_map(zone, one, SUPERPAGE_FRAMES, window + FRAME));
    tell_status("map", strata_zone_map(zone, two, SUPERPAGE_FRAMES, window));
    tell_status("map the other", strata_zone_map(zone, one, SUPERPAGE_FRAMES, second));
    memset(window, 2, STRATA_ZONE_SUPERPAGE_BYTES);
    memset(second, 1, STRATA_ZONE_SUPERPAGE_BYTES);
    const char *ones = strata_zone_address(zone, one), *twos = strata_zone_address(zone, two);
    bool shown = ones[0] == 1 && ones[STRATA_ZONE_SUPERPAGE_BYTES - 1] == 1 && twos[0] == 2 && twos[STRATA_ZONE_SUPERPAGE_BYTES - 1] == 2;
    tell("contents", shown ? "shown" : "others");
    REQUIRE(strata_zone_frame_at(zone, second + 3 * FRAME + 5, &frame) == STRATA_ZONE_OK && frame == one + 3);
    struct strata_zone_compact_counts counts;
    REQUIRE(strata_zone_compact(zone, 9, &counts) == STRATA_ZONE_OK);
    tell_status("unmap a frame", strata_zone_unmap(zone, window, FRAME));
    tell_status("unmap", strata_zone_unmap(zone, window, 2 * STRATA_ZONE_SUPERPAGE_BYTES));
    tell_status("window closed", strata_zone_window_close(zone, window));
    tell("contents", ones[FRAME] == 1 && twos[FRAME] == 2 ? "kept" : "lost");
    tell_status("discard", strata_zone_discard(zone, one, SUPERPAGE_FRAMES));
    tell("zeros", ones[0] == 0 && memcmp(ones, ones + 1, STRATA_ZONE_SUPERPAGE_BYTES - 1) == 0 ? "yes" : "no");
    tell_status("more than the pool", create(STRATA_ZONE_HUGETLB, UINT64_C(64) << 30, &zone));
    tell("check", strata_zone_check(zone) == NULL ? "sound" : strata_zone_check(zone));
    tell_status("destroy", strata_zone_destroy(zone));
}

int main(int argc, char **argv) {
    REQUIRE(argc == 2);
    const char *name = argv[1];
    if (strcmp(name, "file size") == 0)
        refused(STRATA_ZONE_MEMFD, 64 * MIB, RLIMIT_FSIZE, 4 * MIB);
    else if (strcmp(name, "files") == 0)
        refused(STRATA_ZONE_MEMFD, 64 * MIB, RLIMIT_NOFILE, 3);
    else if (strcmp(name, "address space") == 0)
        refused(STRATA_ZONE_MEMFD, UINT64_C(1) << 42, RLIMIT_AS, (rlim_t)1 << 41);
    else if (strcmp(name, "address space, private") == 0)
        refused(STRATA_ZONE_ANON, UINT64_C(1) << 42, RLIMIT_AS, (rlim_t)1 << 41);
    else if (strcmp(name, "huge pages") == 0)
        refused(STRATA_ZONE_HUGETLB, UINT64_C(64) << 30, RLIMIT_CORE, 0);
    else if (strcmp(name, "the file is resized") == 0)
        resize_the_file();
    else if (strcmp(name, "full") == 0)
        populate_a_full_file();
    else if (strcmp(name, "nodes") == 0) {
        bind_to_nodes(STRATA_ZONE_MEMFD, "memfd");
        bind_to_nodes(STRATA_ZONE_ANON, "anon");
        bind_to_nodes(STRATA_ZONE_SIM, "sim");
    } else if (strcmp(name, "userfaultfd") == 0)
        move_without_faults(true);
    else if (strcmp(name, "mappings") == 0)
        use_up_mappings();
    else if (strcmp(name, "pool of huge pages") == 0)
        use_huge_pages();
    else
        fail("no such case: %s", name);
    return 0;
}
