/*
 * main.c - the server: one command a line on standard input, its answer on standard output. Built with SHIPPED_SETTINGS it brings its own settings
 * of UMEM_DEBUG and UMEM_LOGGING, which the environment overrides.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "notes.h"

#define LINE_BYTES 8192
#define FOUND_MAX 16
#define CLIENTS 4

#ifdef SHIPPED_SETTINGS
const char *_umem_debug_init(void);
const char *_umem_debug_init(void) { return "default"; }
const char *_umem_logging_init(void);
const char *_umem_logging_init(void) { return "transaction"; }
#endif

/* Out of memory: give back what is cached, and try once more. */
static int patient(void) {
    static int tried;
    if (tried++ != 0) return UMEM_CALLBACK_EXIT(3);
    umem_reap();
    return UMEM_CALLBACK_RETRY;
}

static unsigned turns;
static void *client(void *argument) {
    char text[64];
    unsigned mine[8] = {0}, i;
    for (i = 0; i < turns; i++) {
        note_t *note;
        unsigned which = i % 8;
        snprintf(text, sizeof text, "client %s wrote line %u", (const char *)argument, i % 50);
        if (mine[which] != 0 && (note = index_remove(mine[which])) != NULL) {
            if (i % 3 == 0)
                note_destroy(note);
            else
                note_retire(note);
        }
        note = note_create(text);
        if (i % 5 == 0) note_append(note, " and more");
        mine[which] = note->number;
        index_add(note);
    }
    for (i = 0; i < 8; i++) note_destroy(index_remove(mine[i]));
    return NULL;
}

static void load(unsigned wanted) {
    static char names[CLIENTS][2] = {"a", "b", "c", "d"};
    pthread_t threads[CLIENTS];
    unsigned i;
    turns = wanted;
    for (i = 0; i < CLIENTS; i++)
        if (pthread_create(&threads[i], NULL, client, names[i]) != 0) abort();
    for (i = 0; i < CLIENTS; i++) pthread_join(threads[i], NULL);
    printf("loaded, %u words\n", index_words());
}

static void find(const char *word) {
    unsigned numbers[FOUND_MAX], count = index_find(word, numbers, FOUND_MAX), i;
    printf("%s:", word);
    for (i = 0; i < count; i++) printf(" %u", numbers[i]);
    puts("");
}

static int command(char *line) {
    char *argument = strchr(line, ' ');
    if (argument != NULL) *argument++ = '\0';
    if (strcmp(line, "add") == 0 && argument != NULL) {
        note_t *note = note_create(argument);
        index_add(note);
        printf("%u\n", note->number);
    } else if (strcmp(line, "find") == 0 && argument != NULL) {
        find(argument);
    } else if (strcmp(line, "drop") == 0 && argument != NULL) {
        note_t *note = index_remove((unsigned)atoi(argument));
        if (note != NULL) note_retire(note);
        puts(note != NULL ? "dropped" : "no such note");
    } else if (strcmp(line, "load") == 0 && argument != NULL) {
        load((unsigned)atoi(argument));
    } else if (strcmp(line, "used") == 0) {
        printf("%u words, places %s, disk %s\n", index_words(), places_used() % 64 == 0 && places_count() != 0 ? "taken" : "none",
               disk_used() >= places_used() ? "enough" : "too few");
    } else if (strcmp(line, "fault") == 0 && argument != NULL) {
        return fault(argument);
    } else {
        return 0;
    }
    return 1;
}

int main(void) {
    static char line[LINE_BYTES];
    umem_nofail_callback(patient);
    numbers_start();
    notes_start();
    index_start();
    while (fgets(line, sizeof line, stdin) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (!command(line)) {
            fprintf(stderr, "notes: %s: not understood\n", line);
            return 2;
        }
    }
    index_end();
    notes_end();
    numbers_end();
    printf("bye, %u notes are constructed\n", notes_constructed());
    return 0;
}
