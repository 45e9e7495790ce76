/*
 * index.c - which notes have a word: a hash table of words, each with the numbers of its notes, and of notes by their numbers.
 */
#include <stdlib.h>
#include <string.h>

#include "notes.h"

#define WORD_BYTES 32
#define BUCKETS_MIN 16

typedef struct word {
    struct word *next;
    unsigned count, room; /* constructed: none */
    unsigned *numbers;
    char name[WORD_BYTES];
} word_t;

static pthread_mutex_t index_lock = PTHREAD_MUTEX_INITIALIZER;
static umem_cache_t *word_cache;
static word_t **buckets;
static unsigned buckets_count, words;
static note_t *listed;

static int word_constructor(void *buf, void *arg, int flags) {
    word_t *word = buf;
    (void)flags;
    if (arg != &words) abort();
    word->next = NULL;
    word->numbers = NULL;
    word->count = word->room = 0;
    return 0;
}

void index_start(void) {
    word_cache = umem_cache_create("word_cache", sizeof(word_t), 64, word_constructor, NULL, NULL, &words, NULL, 0);
    buckets_count = BUCKETS_MIN;
    buckets = umem_zalloc(buckets_count * sizeof *buckets, UMEM_NOFAIL);
    if (word_cache == NULL) abort();
}

static unsigned hash_of(const char *name) {
    unsigned hash = 5381;
    while (*name != '\0') hash = hash * 33 + (unsigned char)*name++;
    return hash;
}

static void grow(void) {
    unsigned old_count = buckets_count, i;
    word_t **old = buckets, *word, *next;
    buckets_count *= 2;
    buckets = umem_zalloc(buckets_count * sizeof *buckets, UMEM_NOFAIL);
    for (i = 0; i < old_count; i++)
        for (word = old[i]; word != NULL; word = next) {
            word_t **head = &buckets[hash_of(word->name) % buckets_count];
            next = word->next;
            word->next = *head;
            *head = word;
        }
    umem_free(old, old_count * sizeof *old);
}

static word_t *look_up(const char *name) {
    word_t *word = buckets[hash_of(name) % buckets_count];
    while (word != NULL && strcmp(word->name, name) != 0) word = word->next;
    return word;
}

static word_t *word_of(const char *name) {
    word_t *word = look_up(name), **head;
    if (word != NULL) return word;
    if (words == 2 * buckets_count) grow();
    word = umem_cache_alloc(word_cache, UMEM_NOFAIL);
    strcpy(word->name, name);
    head = &buckets[hash_of(name) % buckets_count];
    word->next = *head;
    *head = word;
    words++;
    return word;
}

static void add_number(word_t *word, unsigned number) {
    if (word->count != 0 && word->numbers[word->count - 1] == number) return; /* twice in one note */
    if (word->count == word->room) {
        unsigned room = word->room != 0 ? 2 * word->room : 4;
        unsigned *numbers = umem_alloc(room * sizeof *numbers, UMEM_NOFAIL);
        if (word->count != 0) memcpy(numbers, word->numbers, word->count * sizeof *numbers);
        umem_free(word->numbers, word->room * sizeof *numbers);
        word->numbers = numbers;
        word->room = room;
    }
    word->numbers[word->count++] = number;
}

static void take_out(word_t *word, unsigned number) {
    word_t **link = &buckets[hash_of(word->name) % buckets_count];
    unsigned i = 0;
    while (i < word->count && word->numbers[i] != number) i++;
    if (i == word->count) return;
    word->numbers[i] = word->numbers[--word->count];
    if (word->count != 0) return;
    while (*link != word) link = &(*link)->next;
    *link = word->next;
    umem_free(word->numbers, word->room * sizeof *word->numbers);
    (void)word_constructor(word, &words, 0); /* as it was constructed, for the next who gets it */
    umem_cache_free(word_cache, word);
    words--;
}

/* What each word of a text is: entered, or taken out. */
static void each_word(const note_t *note, int entered) {
    char name[WORD_BYTES];
    const char *text = note->text;
    word_t *word;
    while (*(text += strspn(text, " ")) != '\0') {
        size_t length = strcspn(text, " "), kept = length < WORD_BYTES ? length : WORD_BYTES - 1;
        memcpy(name, text, kept);
        name[kept] = '\0';
        text += length;
        if (entered)
            add_number(word_of(name), note->number);
        else if ((word = look_up(name)) != NULL)
            take_out(word, note->number);
    }
}

void index_add(note_t *note) {
    pthread_mutex_lock(&index_lock);
    each_word(note, 1);
    note->next = listed;
    listed = note;
    pthread_mutex_unlock(&index_lock);
}

note_t *index_remove(unsigned number) {
    note_t **link = &listed, *note;
    pthread_mutex_lock(&index_lock);
    while (*link != NULL && (*link)->number != number) link = &(*link)->next;
    note = *link;
    if (note != NULL) {
        *link = note->next;
        note->next = NULL;
        each_word(note, 0);
    }
    pthread_mutex_unlock(&index_lock);
    return note;
}

unsigned index_find(const char *word_name, unsigned *numbers, unsigned max) {
    const word_t *word;
    unsigned count = 0;
    pthread_mutex_lock(&index_lock);
    word = look_up(word_name);
    if (word != NULL)
        for (; count < word->count && count < max; count++) numbers[count] = word->numbers[count];
    pthread_mutex_unlock(&index_lock);
    return count;
}

unsigned index_words(void) { return words; }

void index_end(void) {
    while (listed != NULL) note_destroy(index_remove(listed->number));
    umem_free(buckets, buckets_count * sizeof *buckets);
    umem_cache_destroy(word_cache);
}
