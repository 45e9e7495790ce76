/*
 * test_check.c - arena_check finds each kind of damage and names it. The damage is done by hand, to one field at a time.
 */
#include "unit/arena/arena_support.h"

#include "arena/arena_internal.h"

static struct arena arena;
static struct memory memory;
static uint64_t starts[60];

/* Spans at 0 and 1000 (the second full), holes of several sizes, tags in a batch and in the struct, a rotor. */
static int setup(void **state) {
    (void)state;
    sim_reset(NULL);
    memory_init(&memory);
    ASSERT_OK(arena_init(&arena, "units", 2, &memory_ops, &memory, 0));
    ASSERT_OK(arena_add(&arena, 0, 800));
    ASSERT_OK(arena_add(&arena, 1000, 20));
    ASSERT_OK(arena_add(&arena, 2000, 20));
    for (unsigned i = 0; i < 60; i++) starts[i] = must_alloc(&arena, 6, ARENA_NEXT_FIT);
    for (unsigned i = 0; i < 60; i += 5) ASSERT_OK(arena_free(&arena, starts[i], 6));
    ASSERT_OK(arena_free(&arena, starts[1], 6));
    uint64_t start;
    ASSERT_OK(arena_xalloc(&arena, 20, 0, 0, 0, 1000, 1020, 0, &start));
    ASSERT_SOUND(&arena);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    memory_drop(&memory);
    return 0;
}

static struct arena_tag *allocated_tag(void) { return arena_hash_find(&arena, starts[7]); }
static struct arena_tag *free_tag(void) { return tag_of(arena_hash_find(&arena, starts[6])->segment.prev); } /* starts[5] */
static struct arena_tag *span_tag(uint64_t start) { return arena_span_floor(&arena, start); }

#define EXPECT(text) assert_string_equal(arena_check(&arena), text)

/* Sets a field, expects the text, and sets the field back. */
#define BREAK(field, value, text)             \
    do {                                      \
        __typeof__(field) saved_ = (field);   \
        (field) = (__typeof__(field))(value); \
        EXPECT(text);                         \
        (field) = saved_;                     \
        ASSERT_SOUND(&arena);                 \
    } while (0)

static void counters_are_sums(void **state) {
    (void)state;
    BREAK(arena.total, arena.total + 2, "counters: total != sum of spans");
    BREAK(arena.allocated, arena.allocated - 2, "counters: allocated != sum of allocated segments");
    BREAK(arena.slabs, arena.slabs + 2, "counters: slabs != sum of segments that are slabs");
    BREAK(allocated_tag()->holder, ARENA_HOLDER_CACHE, "counters: slabs != sum of segments that are slabs");
    BREAK(arena.imported, arena.imported + 2, "counters: imported != sum of imported spans");
    BREAK(span_tag(1000)->imported, true, "counters: imported != sum of imported spans");
    BREAK(arena.spans, arena.spans + 1, "counters: spans != spans found");
    BREAK(arena.segments_free, arena.segments_free + 1, "lists: fewer listed than segments_free");
    BREAK(arena.segments_free, arena.segments_free - 1, "lists: more listed than segments_free");
    BREAK(arena.segments_allocated, arena.segments_allocated + 1, "hash: tags in the table != segments_allocated");
    BREAK(arena.tags_spare, arena.tags_spare + 1, "tags: tags_spare != spare tags found");
    BREAK(arena.tags_total, arena.tags_total - 1, "tags: tags_total != boot tags + tags of all batches");
    BREAK(arena.batches, arena.batches + 1, "tags: batches != sum of the lists");
    BREAK(arena.tags_promised, arena.tags_spare + 1, "tags: more promised than spare");
}

static void segments_fill_their_spans(void **state) {
    (void)state;
    struct arena_tag *tag = allocated_tag(), *hole = free_tag(), *span = span_tag(0);
    BREAK(tag->size, tag->size + 2, "segments: a gap in a span, or one reaches past its end");
    BREAK(tag->size, tag->size - 2, "segments: a gap in a span, or one reaches past its end");
    BREAK(tag->size, 0, "segments: free + allocated of a span > span, or not in quanta");
    BREAK(tag->size, 5, "segments: free + allocated of a span > span, or not in quanta");
    BREAK(tag->size, UINT64_MAX - 1, "segments: free + allocated of a span > span, or not in quanta");
    BREAK(hole->start, hole->start + 2, "segments: a gap in a span, or one reaches past its end");
    BREAK(tag->kind, TAG_SPARE, "segments: one is neither free nor allocated");
    BREAK(span->size, span->size + 2, "segments: free + allocated of a span != span");
    BREAK(span->size, 0, "spans: not in quanta, or past 2^64");
    BREAK(span->size, 801, "spans: not in quanta, or past 2^64");
    BREAK(span->kind, TAG_FREE, "segments: one is outside all spans");
    BREAK(span_tag(1000)->start, 790, "spans: overlapping, or out of order");
}

static void free_neighbours_are_merged(void **state) {
    (void)state;
    /* Two free segments side by side: one cut in two, all else right. */
    struct arena_tag *hole = tag_of(span_tag(2000)->segment.next), *half = arena_tag_take(&arena);
    arena_segment_unlist(&arena, hole);
    hole->size = 8;
    half->start = 2008;
    half->size = 12;
    list_push_front(&hole->segment, &half->segment);
    arena_segment_list(&arena, hole);
    arena_segment_list(&arena, half);
    EXPECT("segments: two free neighbours");
}

static void the_free_are_on_the_list_of_their_size(void **state) {
    (void)state;
    struct arena_tag *hole = free_tag(); /* of 6: list 2 */
    BREAK(arena.list_map, arena.list_map & ~(uint64_t)4, "lists: the map says otherwise");
    BREAK(arena.list_map, arena.list_map | (uint64_t)1 << 40, "lists: the map says otherwise");
    list_remove(&hole->u.free);
    EXPECT("lists: fewer listed than segments_free");
    list_push_front(&arena.lists[4], &hole->u.free);
    EXPECT("lists: a segment is on the list of another size");
    list_remove(&hole->u.free);
    list_push_front(&arena.lists[2], &hole->u.free);
    ASSERT_SOUND(&arena);
    /* An allocated one on a list: its chain pointer is where the link is, so use a spare tag as its likeness. */
    struct arena_tag fake = {.size = 6, .kind = TAG_ALLOCATED};
    list_push_front(&arena.lists[2], &fake.u.free);
    EXPECT("lists: one that is not free is listed");
    list_remove(&fake.u.free);
    ASSERT_SOUND(&arena);
}

static void the_allocated_are_in_the_hash(void **state) {
    (void)state;
    struct arena_tag *tag = allocated_tag(), fake = {.start = 1u << 20, .size = 2, .kind = TAG_FREE};
    arena_hash_remove(&arena, tag);
    EXPECT("hash: an allocated segment is not there");
    arena_hash_insert(&arena, tag);
    ASSERT_SOUND(&arena);
    arena_hash_insert(&arena, &fake); /* not allocated */
    const char *wrong = arena_check(&arena);
    assert_true(wrong != NULL && strncmp(wrong, "hash: a tag ", 12) == 0);
    fake.kind = TAG_ALLOCATED; /* allocated, but nowhere */
    EXPECT("hash: tags in the table != segments_allocated");
    arena_hash_remove(&arena, &fake);
    ASSERT_SOUND(&arena);
    for (uint64_t i = 0; i < arena.hash.count; i++) {
        if (arena.hash.buckets[i] == NULL || arena.hash_old.count != 0) continue;
        uint64_t other = (i + 1) % arena.hash.count;
        struct arena_tag *first = arena.hash.buckets[i];
        arena.hash.buckets[i] = first->u.chain;
        first->u.chain = arena.hash.buckets[other];
        arena.hash.buckets[other] = first;
        EXPECT("hash: an allocated segment is not there");
        break;
    }
}

static void wrong_buckets_are_found_from_either_side(void **state) {
    (void)state;
    /* A second bucket leads to the same tags: every tag is found by its start, and still it is wrong. */
    uint64_t i = 0;
    while (arena.hash_old.count == 0 && arena.hash.buckets[i] == NULL) i++;
    assert_int_equal(arena.hash_old.count, 0);
    uint64_t other = i;
    do other = (other + 1) % arena.hash.count;
    while (arena.hash.buckets[other] != NULL);
    arena.hash.buckets[other] = arena.hash.buckets[i];
    EXPECT("hash: a tag is not allocated, or in the wrong bucket");
}

static void a_half_moved_table_is_checked_on_both_sides(void **state) {
    (void)state;
    struct arena_tag *found = NULL;
    uint64_t start;
    /* Fill until the table of 512 has begun its move, and not ended it. */
    ASSERT_OK(arena_add(&arena, 10000, 4000));
    while (arena.hash_old.count == 0) ASSERT_OK(arena_alloc(&arena, 2, 0, &start));
    for (unsigned i = 0; i < 20; i++) ASSERT_OK(arena_alloc(&arena, 2, 0, &start));
    assert_true(arena.hash_old.count == 512 && arena.hash_moved > 0 && arena.hash_moved < 512);
    ASSERT_SOUND(&arena);
    BREAK(arena.hash_moved, 513, "hash: moved more buckets than there were");
    uint64_t i = arena.hash_moved;
    while (arena.hash_old.buckets[i] == NULL) i++;
    found = arena.hash_old.buckets[i];
    BREAK(arena.hash_old.buckets[i], found->u.chain, "hash: an allocated segment is not there");
    i = 0; /* a moved bucket of the old table is looked at by nobody */
    struct arena_tag *saved = arena.hash_old.buckets[i];
    arena.hash_old.buckets[i] = (struct arena_tag *)(uintptr_t)0x10;
    ASSERT_SOUND(&arena);
    arena.hash_old.buckets[i] = saved;
    i = arena.hash_moved;
    while (arena.hash_old.buckets[i] == NULL) i++;
    uint64_t other = arena.hash_moved;
    while (arena.hash_old.buckets[other] != NULL) other++;
    BREAK(arena.hash_old.buckets[other], arena.hash_old.buckets[i], "hash: a tag in the old table is not allocated, or in the wrong bucket");
}

static void spans_are_in_the_tree(void **state) {
    (void)state;
    struct arena_tag *root = arena.span_root, *span = span_tag(2000), **link = &arena.span_root;
    while (*link != span) link = span->start < (*link)->start ? &(*link)->u.tree.left : &(*link)->u.tree.right;
    struct arena_tag *rest = span->u.tree.left != NULL ? span->u.tree.left : span->u.tree.right;
    if (span->u.tree.left == NULL || span->u.tree.right == NULL) BREAK(*link, rest, "spans: one is not in the tree");
    BREAK(arena.span_root, NULL, "spans: one is not in the tree");
    /* The same order, but the heap upside down: the root below its child. */
    struct arena_tag *child = root->u.tree.left != NULL ? root->u.tree.left : root->u.tree.right, saved_root = *root, saved_child = *child;
    if (child == root->u.tree.left) {
        root->u.tree.left = child->u.tree.right;
        child->u.tree.right = root;
    } else {
        root->u.tree.right = child->u.tree.left;
        child->u.tree.left = root;
    }
    arena.span_root = child;
    EXPECT("spans: the tree is no heap");
    arena.span_root = root;
    root->u.tree = saved_root.u.tree;
    child->u.tree = saved_child.u.tree;
    ASSERT_SOUND(&arena);
    struct arena_tag extra = {.start = 5000, .size = 2, .kind = TAG_SPAN};
    while (root->u.tree.right != NULL) root = root->u.tree.right;
    while (mix_start(&arena, extra.start) > mix_start(&arena, root->start)) extra.start += 2;
    BREAK(root->u.tree.right, &extra, "counters: spans != spans found");
}

static void links_match(void **state) {
    (void)state;
    struct list *node = &span_tag(1000)->segment;
    BREAK(node->prev, &span_tag(0)->segment, "segments: links do not match");
}

static void tags_are_in_use_or_spare(void **state) {
    (void)state;
    struct arena_tag *spare = arena_tag_take(&arena);
    EXPECT("tags: spare + in use != tags_total");
    arena_tag_put(&arena, spare);
    ASSERT_SOUND(&arena);
    BREAK(spare->kind, TAG_FREE,
          arena.boot_spare == spare ? "boot tags: a spare one is not spare, or listed twice" : "tags: used + spare of a batch != its tags");
    while (arena.boot_spare != NULL) (void)arena_tag_take(&arena);
    struct arena_tag *of_batch = arena_tag_take(&arena);
    arena_tag_put(&arena, of_batch);
    EXPECT("tags: spare + in use != tags_total");
    of_batch->u.chain = of_batch; /* a ring */
    EXPECT("tags: used + spare of a batch != its tags");
}

static void the_rotor_is_on_the_segment_list(void **state) {
    (void)state;
    struct arena_tag stray = {.kind = TAG_FREE};
    assert_ptr_not_equal(arena.rotor, &arena.segments);
    BREAK(arena.rotor, &stray.segment, "rotor: not on the segment list");
    BREAK(arena.rotor_start, tag_of(arena.rotor)->start - 1, "rotor: behind rotor_start");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(counters_are_sums, setup, teardown),
        cmocka_unit_test_setup_teardown(segments_fill_their_spans, setup, teardown),
        cmocka_unit_test_setup_teardown(free_neighbours_are_merged, setup, teardown),
        cmocka_unit_test_setup_teardown(the_free_are_on_the_list_of_their_size, setup, teardown),
        cmocka_unit_test_setup_teardown(the_allocated_are_in_the_hash, setup, teardown),
        cmocka_unit_test_setup_teardown(wrong_buckets_are_found_from_either_side, setup, teardown),
        cmocka_unit_test_setup_teardown(a_half_moved_table_is_checked_on_both_sides, setup, teardown),
        cmocka_unit_test_setup_teardown(spans_are_in_the_tree, setup, teardown),
        cmocka_unit_test_setup_teardown(links_match, setup, teardown),
        cmocka_unit_test_setup_teardown(tags_are_in_use_or_spare, setup, teardown),
        cmocka_unit_test_setup_teardown(the_rotor_is_on_the_segment_list, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
