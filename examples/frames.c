/*
 * frames.c - a picture that is drawn again and again: two frames whose pages change places, and a log that grows without being copied.
 *
 *     cc frames.c -o frames $(pkg-config --cflags --libs strata)
 *     ./frames
 *
 * `shown` is what readers look at, under one address for the whole run; `drawn` is where the next frame comes into being. When it is done, the two
 * exchange their pages: nobody needs to be told of another pointer, and nothing is copied. Each frame is appended to a log, a block that doubles
 * when it is full; its pages change their address, not their place in memory.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <strata/page.h>

enum { FRAMES = 60, FRAME_BYTES = 8 << 20, STEP_BYTES = 4096, LOG_ENTRY_BYTES = 1 << 20 };

static void must(enum strata_page_status status, const char *what) {
    if (status == STRATA_PAGE_OK) return;
    fprintf(stderr, "frames: %s: %s\n", what, strata_page_status_text(status));
    exit(1);
}

static void draw(unsigned char *frame, unsigned number) {
    for (size_t at = 0; at < FRAME_BYTES; at += STEP_BYTES) frame[at] = (unsigned char)(number + at / STEP_BYTES);
}

static int is_drawn(const unsigned char *frame, size_t bytes, unsigned number) {
    for (size_t at = 0; at < bytes; at += STEP_BYTES)
        if (frame[at] != (unsigned char)(number + at / STEP_BYTES)) return 0;
    return 1;
}

int main(void) {
    void *shown, *drawn, *log;
    size_t log_bytes = LOG_ENTRY_BYTES, logged = 0;
    unsigned wrong = 0, moves = 0;
    must(strata_page_alloc(FRAME_BYTES, STRATA_PAGE_ZEROED, &shown), "the frame that is shown");
    must(strata_page_alloc(FRAME_BYTES, 0, &drawn), "the frame that is drawn");
    must(strata_page_alloc(log_bytes, 0, &log), "the log");
    for (unsigned number = 0; number < FRAMES; number++) {
        draw(drawn, number);
        must(strata_page_swap(shown, drawn, FRAME_BYTES), "the exchange");
        wrong += !is_drawn(shown, FRAME_BYTES, number);
        if (logged + LOG_ENTRY_BYTES > log_bytes) {
            void *before = log;
            must(strata_page_realloc(&log, log_bytes *= 2, 0), "the log's growth");
            moves += log != before;
        }
        unsigned char *entry = (unsigned char *)log + logged;
        for (size_t at = 0; at < LOG_ENTRY_BYTES; at += STEP_BYTES) entry[at] = ((unsigned char *)shown)[at];
        logged += LOG_ENTRY_BYTES;
    }
    for (unsigned number = 0; number < FRAMES; number++)
        wrong += !is_drawn((unsigned char *)log + (size_t)number * LOG_ENTRY_BYTES, LOG_ENTRY_BYTES, number);

    struct strata_page_info info;
    must(strata_page_query(log, &info), "the question");
    printf("frames=%d log_bytes=%zu moved=%s wrong=%u\n", FRAMES, info.bytes, moves != 0 ? "yes" : "no", wrong);
    must(strata_page_free(log), "the log's end");
    must(strata_page_free(shown), "the end");
    must(strata_page_free(drawn), "the end");
    return wrong != 0;
}
