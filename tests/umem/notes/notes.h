/*
 * notes.h - a server of notes in memory, as programs for libumem are written: notes with a text each, an index by words, numbers and places by vmem
 * arenas. Nothing here knows what libumem it is linked to: headers and functions are those of illumos's manual pages, umem_alloc(3MALLOC),
 * umem_cache_create(3MALLOC), umem_debug(3MALLOC) and vmem(9F). test_notes.py builds it by what pkg-config says, and runs it.
 *
 * Locks: index_lock in index.c; a note's own while its text is changed. Numbers and places are the arenas' business.
 */
#ifndef NOTES_H
#define NOTES_H

#include <pthread.h>
#include <stddef.h>

#include <umem.h>

typedef struct note {
    pthread_mutex_t lock; /* these two are constructed, and as they were when a note is freed */
    struct note *next;
    unsigned number;
    void *place; /* where it would lie on the disk */
    size_t length;
    char *text;
} note_t;

/* note.c */
void notes_start(void);
void notes_end(void);
note_t *note_create(const char *text);
void note_append(note_t *note, const char *text);
void note_destroy(note_t *note);
void note_retire(note_t *note); /* kept for the next one that is wanted, until memory is short */
unsigned notes_constructed(void);
extern umem_cache_t *note_cache;

/* numbers.c */
void numbers_start(void);
void numbers_end(void);
unsigned number_take(void);
void number_give(unsigned number);
void *place_take(size_t size);
void place_give(void *place, size_t size);
size_t places_used(void); /* bytes of the disk that notes have */
size_t disk_used(void);   /* of those that were imported for them */
unsigned places_count(void);

/* index.c */
void index_start(void);
void index_end(void);
void index_add(note_t *note);
note_t *index_remove(unsigned number);
unsigned index_find(const char *word, unsigned *numbers, unsigned max);
unsigned index_words(void);

/* faults.c */
int fault(const char *kind);

#endif
