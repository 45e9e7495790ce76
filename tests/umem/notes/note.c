/*
 * note.c - notes, from a cache that keeps their mutexes; their texts are blocks of the size that they have.
 */
#include <stdlib.h>
#include <string.h>

#include "notes.h"

#define SPARE_MAX 64

umem_cache_t *note_cache;
static pthread_mutex_t spare_lock = PTHREAD_MUTEX_INITIALIZER;
static note_t *spare;
static unsigned spares, constructed;

/*ARGSUSED*/
static int note_constructor(void *buf, void *ignored, int flags) {
    note_t *note = buf;
    (void)ignored, (void)flags;
    if (pthread_mutex_init(&note->lock, NULL) != 0) return -1;
    note->next = NULL;
    __atomic_fetch_add(&constructed, 1, __ATOMIC_RELAXED);
    return 0;
}

static void note_destructor(void *buf, void *ignored) {
    note_t *note = buf;
    (void)ignored;
    if (note->next != NULL) abort();
    pthread_mutex_destroy(&note->lock);
    __atomic_fetch_sub(&constructed, 1, __ATOMIC_RELAXED);
}

static void drop_spares(unsigned keep) {
    pthread_mutex_lock(&spare_lock);
    while (spares > keep) {
        note_t *note = spare;
        spare = note->next;
        spares--;
        note->next = NULL;
        umem_cache_free(note_cache, note);
    }
    pthread_mutex_unlock(&spare_lock);
}

/* Memory is short, maybe on a thread that is in one of the functions above. */
static void note_reclaim(void *ignored) {
    (void)ignored;
    if (pthread_mutex_trylock(&spare_lock) != 0) return;
    pthread_mutex_unlock(&spare_lock);
    drop_spares(spares / 2);
}

void notes_start(void) {
    note_cache = umem_cache_create("note_cache", sizeof(note_t), 0, note_constructor, note_destructor, note_reclaim, NULL, NULL, 0);
    if (note_cache == NULL) abort();
}

void notes_end(void) {
    drop_spares(0);
    umem_cache_destroy(note_cache);
}

unsigned notes_constructed(void) { return __atomic_load_n(&constructed, __ATOMIC_RELAXED); }

note_t *note_create(const char *text) {
    note_t *note;
    pthread_mutex_lock(&spare_lock);
    if ((note = spare) != NULL) {
        spare = note->next;
        spares--;
        note->next = NULL;
    }
    pthread_mutex_unlock(&spare_lock);
    if (note == NULL) note = umem_cache_alloc(note_cache, UMEM_NOFAIL);
    note->length = strlen(text);
    note->text = umem_alloc(note->length + 1, UMEM_NOFAIL);
    memcpy(note->text, text, note->length + 1);
    note->number = number_take();
    note->place = place_take(note->length + 1);
    return note;
}

void note_append(note_t *note, const char *text) {
    size_t more = strlen(text), length;
    char *longer;
    pthread_mutex_lock(&note->lock);
    length = note->length + more;
    longer = umem_zalloc(length + 1, UMEM_NOFAIL);
    memcpy(longer, note->text, note->length);
    memcpy(longer + note->length, text, more);
    place_give(note->place, note->length + 1);
    umem_free(note->text, note->length + 1);
    note->text = longer;
    note->length = length;
    note->place = place_take(length + 1);
    pthread_mutex_unlock(&note->lock);
}

static void empty(note_t *note) {
    place_give(note->place, note->length + 1);
    number_give(note->number);
    umem_free(note->text, note->length + 1);
}

void note_destroy(note_t *note) {
    empty(note);
    umem_cache_free(note_cache, note);
}

void note_retire(note_t *note) {
    empty(note);
    pthread_mutex_lock(&spare_lock);
    note->next = spare;
    spare = note;
    spares++;
    pthread_mutex_unlock(&spare_lock);
    if (spares > SPARE_MAX) drop_spares(SPARE_MAX / 2);
}
