/*
 * api_zone_windows.c - windows on real memory: what a page shows is the frame, by both addresses; what is refused is told and changes nothing; huge
 * pages and private memory, where the system has them, or the documented status.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <strata/zone.h>

#include "concurrency/concurrency.h"
#include "stress/huge_pool.h"

enum { SUPERPAGES = 4, FRAME = 4096, TURNS = 200, HIDDEN = 64 };

static struct strata_zone *make(enum strata_zone_backend backend, enum strata_zone_status *status) {
    const struct strata_zone_config config = {
        .name = "windows", .backend = backend, .bytes = SUPERPAGES * STRATA_ZONE_SUPERPAGE_BYTES, .frame_bytes = FRAME};
    struct strata_zone *zone = NULL;
    *status = strata_zone_create(&config, &zone);
    return zone;
}

static void check_windows(struct strata_zone *zone) {
    uint64_t frames[3], frame;
    void *window;
    EXPECT(strata_zone_window_open(zone, 100, &window) == STRATA_ZONE_BAD_ARGUMENT);
    EXPECT(strata_zone_window_open(zone, 8 * FRAME, &window) == STRATA_ZONE_OK);
    char *pages = window;
    for (unsigned i = 0; i < 3; i++) EXPECT(strata_zone_alloc(zone, 2, STRATA_ZONE_MOVABLE, &frames[i]) == STRATA_ZONE_OK);
    for (unsigned i = 0; i < 3; i++) EXPECT(strata_zone_map(zone, frames[2 - i], 2, pages + (size_t)i * 2 * FRAME) == STRATA_ZONE_OK);

    /* One frame, two addresses. */
    for (unsigned i = 0; i < 6; i++) pages[i * FRAME] = (char)('a' + i);
    EXPECT(*(char *)strata_zone_address(zone, frames[2]) == 'a' && *(char *)strata_zone_address(zone, frames[0] + 1) == 'f');
    EXPECT(strata_zone_frame_at(zone, pages + FRAME + 17, &frame) == STRATA_ZONE_OK && frame == frames[2] + 1);
    EXPECT(strata_zone_pin_at(zone, pages, &frame) == STRATA_ZONE_OK && frame == frames[2]);
    EXPECT(strata_zone_unpin(zone, frame, 1) == STRATA_ZONE_OK);

    /* What is mapped stays so, whatever is tried. */
    EXPECT(strata_zone_map(zone, frames[0], 1, pages + 6 * FRAME) == STRATA_ZONE_MAPPED);
    EXPECT(strata_zone_free(zone, frames[0], 2) == STRATA_ZONE_MAPPED);
    EXPECT(strata_zone_window_close(zone, window) == STRATA_ZONE_MAPPED);
    EXPECT(strata_zone_unmap(zone, pages + 5 * FRAME, 2 * FRAME) == STRATA_ZONE_NOT_MAPPED);
    EXPECT(strata_zone_frame_at(zone, pages + 6 * FRAME, &frame) == STRATA_ZONE_NOT_MAPPED);
    EXPECT(strata_zone_unmap(zone, pages + 1, FRAME) == STRATA_ZONE_BAD_ARGUMENT);
    EXPECT(strata_zone_unmap(zone, &frame, FRAME) == STRATA_ZONE_BAD_ARGUMENT);
    EXPECT(strata_zone_map(zone, 512, 1, pages + 6 * FRAME) == STRATA_ZONE_NOT_ALLOCATED);
    EXPECT(pages[5 * FRAME] == 'f' && strata_zone_check(zone) == NULL);

    EXPECT(strata_zone_unmap(zone, pages, 6 * FRAME) == STRATA_ZONE_OK);
    EXPECT(*(char *)strata_zone_address(zone, frames[2]) == 'a');
    struct strata_zone_stats stats;
    EXPECT(strata_zone_stats_get(zone, &stats) == STRATA_ZONE_OK && stats.mapped == 0 && stats.pinned == 0);
    EXPECT(strata_zone_window_close(zone, window) == STRATA_ZONE_OK);
    EXPECT(strata_zone_window_close(zone, window) == STRATA_ZONE_BAD_ARGUMENT);
    for (unsigned i = 0; i < 3; i++) EXPECT(strata_zone_free(zone, frames[i], 2) == STRATA_ZONE_OK);
}

/* Two threads that hide the same pages, which show no neighbours: one of them hides all, the other is told. */
struct hiding {
    struct strata_zone *zone;
    char *pages;
    pthread_barrier_t *barrier;
    unsigned *ready; /* atomic: how often either was */
    unsigned hidden;
};
static void *hide(void *argument) {
    struct hiding *mine = argument;
    for (unsigned turn = 0; turn < TURNS; turn++) {
        pthread_barrier_wait(mine->barrier);
        __atomic_fetch_add(mine->ready, 1, __ATOMIC_ACQ_REL); /* both run before either goes on; but not for ever, where there is one CPU */
        for (unsigned spin = 0; spin < 1000000 && __atomic_load_n(mine->ready, __ATOMIC_ACQUIRE) < 2 * (turn + 1); spin++) continue;
        enum strata_zone_status status = strata_zone_unmap(mine->zone, mine->pages, (size_t)HIDDEN * FRAME);
        EXPECT(status == STRATA_ZONE_OK || status == STRATA_ZONE_NOT_MAPPED);
        mine->hidden += status == STRATA_ZONE_OK;
        pthread_barrier_wait(mine->barrier);
    }
    return NULL;
}
static void check_two_that_unmap(struct strata_zone *zone) {
    pthread_barrier_t barrier;
    pthread_t first, second;
    unsigned ready = 0;
    uint64_t frame;
    void *window;
    EXPECT(pthread_barrier_init(&barrier, NULL, 3) == 0);
    EXPECT(strata_zone_window_open(zone, (size_t)HIDDEN * FRAME, &window) == STRATA_ZONE_OK);
    EXPECT(strata_zone_alloc(zone, HIDDEN, STRATA_ZONE_MOVABLE, &frame) == STRATA_ZONE_OK);
    struct hiding hiding[2] = {{zone, window, &barrier, &ready, 0}, {zone, window, &barrier, &ready, 0}};
    EXPECT(pthread_create(&first, NULL, hide, &hiding[0]) == 0 && pthread_create(&second, NULL, hide, &hiding[1]) == 0);
    for (unsigned turn = 0; turn < TURNS; turn++) {
        for (unsigned i = 0; i < HIDDEN; i++)
            EXPECT(strata_zone_map(zone, frame + HIDDEN - 1 - i, 1, (char *)window + (size_t)i * FRAME) == STRATA_ZONE_OK);
        pthread_barrier_wait(&barrier);
        pthread_barrier_wait(&barrier);
    }
    pthread_join(first, NULL);
    pthread_join(second, NULL);
    EXPECT(hiding[0].hidden + hiding[1].hidden == TURNS);
    EXPECT(strata_zone_window_close(zone, window) == STRATA_ZONE_OK && strata_zone_free(zone, frame, HIDDEN) == STRATA_ZONE_OK);
    pthread_barrier_destroy(&barrier);
}

static void check_contents(struct strata_zone *zone) {
    uint64_t frame, other;
    EXPECT(strata_zone_alloc(zone, 512, STRATA_ZONE_UNMOVABLE, &frame) == STRATA_ZONE_OK);
    EXPECT(strata_zone_alloc(zone, 512, STRATA_ZONE_UNMOVABLE, &other) == STRATA_ZONE_OK);
    EXPECT(strata_zone_populate(zone, frame, 512) == STRATA_ZONE_OK);
    memset(strata_zone_address(zone, frame), 0x5a, 512 * FRAME);
    EXPECT(strata_zone_copy(zone, frame, other, 512) == STRATA_ZONE_OK && strata_zone_peek(zone, other + 511) == UINT64_C(0x5a5a5a5a5a5a5a5a));
    EXPECT(strata_zone_copy(zone, frame, frame + 1, 2) == STRATA_ZONE_BAD_ARGUMENT);
    EXPECT(strata_zone_discard(zone, frame, 512) == STRATA_ZONE_OK && strata_zone_peek(zone, frame) == 0 && strata_zone_peek(zone, frame + 511) == 0);
    EXPECT(strata_zone_free(zone, frame, 512) == STRATA_ZONE_OK && strata_zone_free(zone, other, 512) == STRATA_ZONE_OK);
    EXPECT(strata_zone_discard(zone, frame, 1) == STRATA_ZONE_NOT_ALLOCATED);
}

/* A superpage that a window shows leaves its place for a run that is wanted there, and what the window shows stays; where the system lets it. */
static bool moves_what_is_shown(struct strata_zone *zone) {
    uint64_t frame, captured, now;
    void *window;
    EXPECT(strata_zone_alloc(zone, 512, STRATA_ZONE_MOVABLE, &frame) == STRATA_ZONE_OK);
    EXPECT(strata_zone_window_open(zone, STRATA_ZONE_SUPERPAGE_BYTES, &window) == STRATA_ZONE_OK);
    EXPECT(strata_zone_map(zone, frame, 512, window) == STRATA_ZONE_OK);
    memset(window, 0x5a, STRATA_ZONE_SUPERPAGE_BYTES);
    const struct strata_zone_capture_request there = {.frames = 512, .at = frame, .flags = STRATA_ZONE_CAPTURE_AT};
    enum strata_zone_status status = strata_zone_capture_run(zone, &there, &captured);
    EXPECT(status == STRATA_ZONE_OK || status == STRATA_ZONE_NO_FRAMES);
    if (status == STRATA_ZONE_OK) {
        memset(strata_zone_address(zone, captured), 0xa5, STRATA_ZONE_SUPERPAGE_BYTES);
        EXPECT(captured == frame && strata_zone_free(zone, captured, 512) == STRATA_ZONE_OK);
    }
    for (size_t i = 0; i < STRATA_ZONE_SUPERPAGE_BYTES; i++) EXPECT(((char *)window)[i] == 0x5a);
    EXPECT(strata_zone_frame_at(zone, window, &now) == STRATA_ZONE_OK && (now == frame) == (status != STRATA_ZONE_OK));
    EXPECT(strata_zone_unmap(zone, window, STRATA_ZONE_SUPERPAGE_BYTES) == STRATA_ZONE_OK);
    EXPECT(strata_zone_window_close(zone, window) == STRATA_ZONE_OK && strata_zone_free(zone, now, 512) == STRATA_ZONE_OK);
    return status == STRATA_ZONE_OK;
}

/* While the process has no file left nothing moves; afterwards it does as ever. */
static void check_without_files(bool moves) {
    struct rlimit before, none;
    enum strata_zone_status status;
    struct strata_zone *zone = make(STRATA_ZONE_MEMFD, &status);
    EXPECT(status == STRATA_ZONE_OK && getrlimit(RLIMIT_NOFILE, &before) == 0);
    none = before;
    none.rlim_cur = 3;
    EXPECT(setrlimit(RLIMIT_NOFILE, &none) == 0);
    EXPECT(!moves_what_is_shown(zone));
    EXPECT(setrlimit(RLIMIT_NOFILE, &before) == 0);
    EXPECT(moves_what_is_shown(zone) == moves);
    EXPECT(strata_zone_check(zone) == NULL && strata_zone_destroy(zone) == STRATA_ZONE_OK);
}

/* All that a block could move to is discarded, and the pool is empty. */
static void check_move_to_nowhere(struct strata_zone *zone) {
    uint64_t frames[SUPERPAGES], captured;
    unsigned count = 0;
    void *window;
    while (count < SUPERPAGES && strata_zone_alloc(zone, 512, STRATA_ZONE_MOVABLE, &frames[count]) == STRATA_ZONE_OK) count++;
    EXPECT(count > 1 && strata_zone_window_open(zone, STRATA_ZONE_SUPERPAGE_BYTES, &window) == STRATA_ZONE_OK);
    EXPECT(strata_zone_map(zone, frames[0], 512, window) == STRATA_ZONE_OK);
    for (unsigned i = 1; i < count; i++)
        EXPECT(strata_zone_discard(zone, frames[i], 512) == STRATA_ZONE_OK && strata_zone_free(zone, frames[i], 512) == STRATA_ZONE_OK);
    struct strata_zone_config config = {.name = "rest", .backend = STRATA_ZONE_HUGETLB, .frame_bytes = FRAME};
    struct strata_zone *rest = NULL;
    config.bytes = (uint64_t)huge_pool_free() * STRATA_ZONE_SUPERPAGE_BYTES;
    const struct strata_zone_capture_request there = {.frames = 512, .at = frames[0], .flags = STRATA_ZONE_CAPTURE_AT};
    if (config.bytes != 0 && strata_zone_create(&config, &rest) == STRATA_ZONE_OK) {
        enum strata_zone_status status = strata_zone_capture_run(zone, &there, &captured);
        EXPECT(status == STRATA_ZONE_NO_FRAMES || (status == STRATA_ZONE_OK && strata_zone_free(zone, captured, 512) == STRATA_ZONE_OK));
        EXPECT(strata_zone_destroy(rest) == STRATA_ZONE_OK);
    }
    EXPECT(strata_zone_frame_at(zone, window, &frames[0]) == STRATA_ZONE_OK);
    EXPECT(strata_zone_unmap(zone, window, STRATA_ZONE_SUPERPAGE_BYTES) == STRATA_ZONE_OK);
    EXPECT(strata_zone_window_close(zone, window) == STRATA_ZONE_OK && strata_zone_free(zone, frames[0], 512) == STRATA_ZONE_OK);
}

/*
 * What is discarded goes back to the pool, where others find it: here a zone of all that is free. Then there is no memory behind the run, which is
 * told, where touching it would end the process. Somebody else may take the page first, or give others back, so only what was told is compared.
 */
static void check_what_the_pool_has_back(struct strata_zone *zone) {
    struct strata_zone_config config = {.name = "others", .backend = STRATA_ZONE_HUGETLB, .frame_bytes = FRAME};
    struct strata_zone *others = NULL;
    uint64_t frame;
    EXPECT(strata_zone_alloc(zone, 512, STRATA_ZONE_MOVABLE, &frame) == STRATA_ZONE_OK);
    memset(strata_zone_address(zone, frame), 0x5a, 512 * FRAME);
    EXPECT(strata_zone_discard(zone, frame, 512) == STRATA_ZONE_OK);
    config.bytes = (uint64_t)huge_pool_free() * STRATA_ZONE_SUPERPAGE_BYTES;
    if (config.bytes != 0 && strata_zone_create(&config, &others) == STRATA_ZONE_OK) {
        enum strata_zone_status status = strata_zone_populate(zone, frame, 512);
        EXPECT(status == STRATA_ZONE_NO_MEMORY || (status == STRATA_ZONE_OK && strata_zone_peek(zone, frame) == 0));
        if (status == STRATA_ZONE_NO_MEMORY) { /* nor does strata touch it: there is nothing to clear, and nothing to move there */
            EXPECT(strata_zone_discard(zone, frame, 1) == STRATA_ZONE_OK);
            check_move_to_nowhere(zone);
        }
        EXPECT(strata_zone_destroy(others) == STRATA_ZONE_OK);
    }
    EXPECT(strata_zone_populate(zone, frame, 512) == STRATA_ZONE_OK && strata_zone_peek(zone, frame + 511) == 0);
    EXPECT(strata_zone_free(zone, frame, 512) == STRATA_ZONE_OK);
}

/* The program has closed the file, and has one of its own under the number: windows show frames all the same, and its file stays its own. */
static void check_closed_file(void) {
    enum strata_zone_status status;
    struct strata_zone *zone = make(STRATA_ZONE_MEMFD, &status);
    uint64_t frame;
    void *window;
    EXPECT(status == STRATA_ZONE_OK && strata_zone_alloc(zone, 2, STRATA_ZONE_MOVABLE, &frame) == STRATA_ZONE_OK);
    EXPECT(strata_zone_window_open(zone, 2 * FRAME, &window) == STRATA_ZONE_OK);
    FILE *own = tmpfile();
    int number = strata_zone_file(zone);
    EXPECT(own != NULL && ftruncate(fileno(own), SUPERPAGES * (off_t)STRATA_ZONE_SUPERPAGE_BYTES) == 0 && dup2(fileno(own), number) == number);
    EXPECT(strata_zone_map(zone, frame, 2, window) == STRATA_ZONE_OK);
    memset(window, 0x3c, 2 * FRAME);
    EXPECT(*((char *)strata_zone_address(zone, frame + 1) + FRAME - 1) == 0x3c);
    for (int c; (c = getc(own)) != EOF;) EXPECT(c == 0);
    EXPECT(strata_zone_populate(zone, frame, 2) == STRATA_ZONE_OK && strata_zone_check(zone) == NULL);
    EXPECT(strata_zone_destroy(zone) == STRATA_ZONE_OK);
    EXPECT(fcntl(number, F_GETFD) >= 0 && close(number) == 0 && fclose(own) == 0);
}

static void check_huge_pages(bool moves) {
    enum strata_zone_status status;
    void *window;
    long added;
    bool there = huge_pool_begin(SUPERPAGES, "windows", &added);
    struct strata_zone *zone = make(STRATA_ZONE_HUGETLB, &status);
    EXPECT(there ? status == STRATA_ZONE_OK : status == STRATA_ZONE_NO_HUGE_PAGES || status == STRATA_ZONE_UNSUPPORTED);
    if (there) {
        EXPECT(strata_zone_window_open(zone, FRAME, &window) == STRATA_ZONE_BAD_ARGUMENT);
        check_contents(zone);
        EXPECT(moves_what_is_shown(zone) == moves);
        check_what_the_pool_has_back(zone);
        EXPECT(strata_zone_check(zone) == NULL && strata_zone_destroy(zone) == STRATA_ZONE_OK);
    }
    huge_pool_end(added);
}

int main(void) {
    enum strata_zone_status status;
    void *window;
    struct strata_zone *zone = make(STRATA_ZONE_MEMFD, &status);
    EXPECT(status == STRATA_ZONE_OK && strata_zone_file(zone) >= 0);
    check_windows(zone);
    check_two_that_unmap(zone);
    check_contents(zone);
    bool moves = moves_what_is_shown(zone);
    EXPECT(strata_zone_check(zone) == NULL && strata_zone_destroy(zone) == STRATA_ZONE_OK);

    zone = make(STRATA_ZONE_ANON, &status);
    EXPECT(status == STRATA_ZONE_OK && strata_zone_file(zone) == -1);
    EXPECT(strata_zone_window_open(zone, FRAME, &window) == STRATA_ZONE_UNSUPPORTED);
    check_contents(zone);
    EXPECT(strata_zone_destroy(zone) == STRATA_ZONE_OK);

    check_without_files(moves);
    check_closed_file();
    check_huge_pages(moves);
    expect_sound();
    return 0;
}
