/*
 * arena_tags.c - boundary tags: where they come from, and how their memory goes back.
 *
 * Tags come in batches of ARENA_BATCH_BYTES, aligned to it, so that a tag leads to its batch by masking. The first few are
 * inside the struct arena: an arena works before any memory can be had, and memory_get may allocate from the same arena.
 * A free only ever returns tags, so it can't fail for want of one.
 *
 * Invariants: tags in use + tags_spare = tags_total = ARENA_BOOT_TAGS + batches * TAGS_PER_BATCH; tags_promised <= tags_spare; a batch is on
 * batches_partial if it has a spare tag, else on batches_full. Batches are emptied from the front of batches_partial and wholly
 * spare ones wait at its back, so that they get time to stay empty and go back. Lock rank: the arena's lock, LOCK_RANK_ARENA.
 */
#include "arena/arena_internal.h"

struct tag_batch {
    struct list link;
    struct arena_tag *spare;
    uint32_t used;
    struct arena_tag tags[];
};

#define TAGS_PER_BATCH ((ARENA_BATCH_BYTES - sizeof(struct tag_batch)) / sizeof(struct arena_tag))
/* So many threads, or levels of one thread inside memory_get, may ask at once; beyond it, memory_get goes in circles. */
#define REFILLS_MAX 256

static bool is_boot_tag(const struct arena *arena, const struct arena_tag *tag) {
    return (uintptr_t)tag - (uintptr_t)arena->boot_tags < sizeof arena->boot_tags;
}

static struct tag_batch *batch_of_tag(struct arena_tag *tag) {
    uintptr_t offset = (uintptr_t)tag & (ARENA_BATCH_BYTES - 1);
    return (struct tag_batch *)(void *)((char *)tag - offset);
}

static struct tag_batch *batch_of_link(struct list *link) { return CONTAINER_OF(link, struct tag_batch, link); }

static void push_spare(struct arena_tag **list, struct arena_tag *tag) {
    tag->kind = TAG_SPARE;
    tag->u.chain = *list;
    *list = tag;
}

static struct arena_tag *pop_spare(struct arena_tag **list) {
    struct arena_tag *tag = *list;
    *list = tag->u.chain;
    return tag;
}

void arena_tags_init(struct arena *arena) {
    arena->batches = 0;
    arena->refills = 0;
    list_init(&arena->batches_partial);
    list_init(&arena->batches_full);
    arena->boot_spare = NULL;
    for (size_t i = ARENA_BOOT_TAGS; i-- != 0;) push_spare(&arena->boot_spare, &arena->boot_tags[i]);
    arena->tags_spare = arena->tags_total = ARENA_BOOT_TAGS;
}

struct arena_tag *arena_tag_take(struct arena *arena) {
    CHECK(arena->tags_spare != 0);
    arena->tags_spare--;
    if (arena->boot_spare != NULL) return pop_spare(&arena->boot_spare);
    struct tag_batch *batch = batch_of_link(arena->batches_partial.next);
    struct arena_tag *tag = pop_spare(&batch->spare);
    batch->used++;
    if (batch->spare == NULL) {
        list_remove(&batch->link);
        list_push_back(&arena->batches_full, &batch->link);
    }
    return tag;
}

void arena_tag_put(struct arena *arena, struct arena_tag *tag) {
    arena->tags_spare++;
    if (is_boot_tag(arena, tag)) {
        push_spare(&arena->boot_spare, tag);
        return;
    }
    struct tag_batch *batch = batch_of_tag(tag);
    bool was_full = batch->spare == NULL;
    push_spare(&batch->spare, tag);
    batch->used--;
    if (was_full || batch->used == 0) {
        list_remove(&batch->link);
        if (batch->used == 0)
            list_push_back(&arena->batches_partial, &batch->link);
        else
            list_push_front(&arena->batches_partial, &batch->link);
    }
}

static void add_batch(struct arena *arena, void *memory) {
    CHECK(((uintptr_t)memory & (ARENA_BATCH_BYTES - 1)) == 0);
    struct tag_batch *batch = memory;
    batch->spare = NULL;
    batch->used = 0;
    for (size_t i = TAGS_PER_BATCH; i-- != 0;) push_spare(&batch->spare, &batch->tags[i]);
    list_push_back(&arena->batches_partial, &batch->link);
    arena->batches++;
    arena->tags_spare += TAGS_PER_BATCH;
    arena->tags_total += TAGS_PER_BATCH;
}

static bool refill(struct arena *arena) {
    if (arena->ops->memory_get == NULL || arena->refills == REFILLS_MAX) return false;
    arena->refills++;
    platform_lock_release(&arena->lock);
    void *memory = arena->ops->memory_get(arena->ctx, ARENA_BATCH_BYTES);
    platform_lock_acquire(&arena->lock);
    arena->refills--;
    if (memory == NULL) return false;
    add_batch(arena, memory);
    return true;
}

bool arena_tags_secure(struct arena *arena, uint64_t need) {
    while (arena_tags_free(arena) < need)
        if (!refill(arena)) return arena_tags_free(arena) >= need; /* others may have put some back meanwhile */
    return true;
}

void arena_tags_top_up(struct arena *arena) {
    if (STRATA_UNLIKELY(arena_tags_free(arena) < TAGS_RESERVE) && arena->refills == 0) (void)refill(arena);
}

unsigned arena_tags_surplus(struct arena *arena, void *batches[TAGS_SURPLUS_MAX]) {
    unsigned n = 0;
    if (arena->ops->memory_put == NULL) return 0;
    /* One more batch stays, or an arena that breathes around a boundary would get and put on every operation. */
    while (n < TAGS_SURPLUS_MAX && arena_tags_free(arena) >= TAGS_RESERVE + 2 * TAGS_PER_BATCH && !list_empty(&arena->batches_partial)) {
        struct tag_batch *batch = batch_of_link(arena->batches_partial.prev);
        if (batch->used != 0) break;
        list_remove(&batch->link);
        arena->batches--;
        arena->tags_spare -= TAGS_PER_BATCH;
        arena->tags_total -= TAGS_PER_BATCH;
        batches[n++] = batch;
    }
    return n;
}

STRATA_SELDOM void arena_tags_destroy(struct arena *arena) {
    while (!list_empty(&arena->batches_partial)) {
        struct tag_batch *batch = batch_of_link(arena->batches_partial.next);
        list_remove(&batch->link);
        if (arena->ops->memory_put != NULL) arena->ops->memory_put(arena->ctx, batch, ARENA_BATCH_BYTES);
    }
    CHECK(list_empty(&arena->batches_full));
    arena_tags_init(arena);
}

static uint64_t count_spare(const struct arena_tag *tag, uint64_t limit) {
    uint64_t n = 0;
    for (; tag != NULL && n <= limit; tag = tag->u.chain) n += tag->kind == TAG_SPARE ? 1 : limit + 1;
    return n;
}

STRATA_SELDOM const char *arena_tags_check(struct arena *arena, uint64_t in_use) {
    uint64_t spare = count_spare(arena->boot_spare, ARENA_BOOT_TAGS), batches = 0;
    if (spare > ARENA_BOOT_TAGS) return "boot tags: a spare one is not spare, or listed twice";
    LIST_FOR_EACH(&arena->batches_partial, link) {
        struct tag_batch *batch = batch_of_link(link);
        uint64_t n = count_spare(batch->spare, TAGS_PER_BATCH);
        if (n == 0) return "tags: a full batch is on the list of partial ones";
        if (n + batch->used != TAGS_PER_BATCH) return "tags: used + spare of a batch != its tags";
        if (batch->used == 0 && link->next != &arena->batches_partial && batch_of_link(link->next)->used != 0)
            return "tags: a batch in use is behind one that is wholly spare";
        spare += n;
        batches++;
    }
    LIST_FOR_EACH(&arena->batches_full, link) {
        struct tag_batch *batch = batch_of_link(link);
        if (batch->spare != NULL || batch->used != TAGS_PER_BATCH) return "tags: a batch on the list of full ones is not full";
        batches++;
    }
    if (batches != arena->batches) return "tags: batches != sum of the lists";
    if (arena->tags_total != ARENA_BOOT_TAGS + batches * TAGS_PER_BATCH) return "tags: tags_total != boot tags + tags of all batches";
    if (spare != arena->tags_spare) return "tags: tags_spare != spare tags found";
    if (spare + in_use != arena->tags_total) return "tags: spare + in use != tags_total";
    if (arena->tags_promised > spare) return "tags: more promised than spare";
    return NULL;
}
