/*
 * faults.c - mistakes that programs make, one at a time.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "notes.h"

static void say_and_go(void) {
    puts("the callback was asked");
    fflush(stdout);
}
static int no_memory(void) {
    say_and_go();
    return UMEM_CALLBACK_EXIT(42);
}

int fault(const char *kind) {
    note_t *note = note_create("a note with a mistake");
    fflush(stdout);
    if (strcmp(kind, "past") == 0) {
        note->text[note->length + 1] = '!'; /* one behind the end of its text */
        note_destroy(note);
    } else if (strcmp(kind, "twice") == 0) {
        note_destroy(note);
        umem_cache_free(note_cache, note);
    } else if (strcmp(kind, "after") == 0) {
        note_destroy(note);
        note->length = 7;
        for (unsigned i = 0; i < 1000; i++) note_create("others that may get its memory");
    } else if (strcmp(kind, "size") == 0) {
        umem_free(note->text, note->length + 100);
    } else if (strcmp(kind, "number") == 0) {
        number_give(note->number);
        number_give(note->number);
    } else if (strcmp(kind, "place") == 0) {
        place_give(note->place, 300);
    } else if (strcmp(kind, "leak") == 0) {
        umem_cache_alloc(note_cache, UMEM_NOFAIL); /* never freed, as is `note` */
    } else if (strcmp(kind, "memory") == 0) {
        umem_nofail_callback(no_memory);
        umem_alloc((size_t)1 << 62, UMEM_NOFAIL);
    } else {
        return 0;
    }
    return 1;
}
