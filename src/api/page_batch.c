/*
 * page_batch.c - batches of operations on page blocks: the look at the whole, then the doing, with neighbours joined.
 *
 * The look sorts what the operations want of the blocks that there are by address: a claim is a range, or a whole block where its operation ends,
 * resizes, cuts or joins it; such a claim tolerates no other. So what was found right stays right while the batch is done, by this thread; what is
 * still possible is that memory or room end. No lock of its own.
 */
#include "api/heap.h"
#include "api/page_api.h"

struct claim {
    uintptr_t start, end;
    size_t op;
    bool whole;
};

/* ------------------------------------------------------------------ the look */

static enum strata_page_status look_up_block(const void *address, struct zone_block_info *info) {
    bool found = zone_block_find(&heap.zone, address, 1, info) == ZONE_OK && info->start == address;
    return found ? STRATA_PAGE_OK : STRATA_PAGE_NO_BLOCK;
}

static enum strata_page_status look_up_range(void *address, size_t bytes) {
    enum zone_status status = zone_pages_check(&heap.zone, address, bytes);
    return status == ZONE_OK ? STRATA_PAGE_OK : status == ZONE_NO_BLOCK ? STRATA_PAGE_NO_BLOCK : STRATA_PAGE_BAD_ARGUMENT;
}

static void claim_range(struct claim *claims, size_t *count, size_t op, const void *address, size_t bytes, bool whole) {
    claims[(*count)++] = (struct claim){(uintptr_t)address, (uintptr_t)address + bytes, op, whole};
}

/* What one operation wants, at most two claims; what is wrong claims nothing. */
static enum strata_page_status look_at(const struct strata_page_op *op, size_t number, struct claim *claims, size_t *count) {
    struct zone_block_info block, other;
    const struct strata_page_request request = {.bytes = op->bytes, .flags = op->flags};
    enum strata_page_status status;
    switch (op->operation) {
    case STRATA_PAGE_OP_ALLOC: return page_api_check_request(&request);
    case STRATA_PAGE_OP_FREE:
    case STRATA_PAGE_OP_REALLOC:
    case STRATA_PAGE_OP_RESERVE:
    case STRATA_PAGE_OP_SPLIT:
        if (op->operation == STRATA_PAGE_OP_FREE && op->address == NULL) return STRATA_PAGE_OK; /* as alone: nothing */
        status = look_up_block(op->address, &block);
        if (status != STRATA_PAGE_OK) return status;
        if (op->operation != STRATA_PAGE_OP_FREE && (op->bytes == 0 || op->bytes > HEAP_BYTES_MAX)) return STRATA_PAGE_BAD_ARGUMENT;
        if (op->operation == STRATA_PAGE_OP_SPLIT && (op->bytes % block.unit_bytes != 0 || op->bytes >= block.bytes)) return STRATA_PAGE_BAD_ARGUMENT;
        if (op->operation == STRATA_PAGE_OP_REALLOC && (op->flags & ~PAGE_API_REALLOC_FLAGS) != 0) return STRATA_PAGE_BAD_ARGUMENT;
        claim_range(claims, count, number, block.start, block.bytes, true);
        return STRATA_PAGE_OK;
    case STRATA_PAGE_OP_JOIN:
        status = look_up_block(op->address, &block);
        if (status == STRATA_PAGE_OK) status = look_up_block(op->other, &other);
        if (status != STRATA_PAGE_OK) return status;
        claim_range(claims, count, number, block.start, block.bytes, true);
        claim_range(claims, count, number, other.start, other.bytes, true);
        return STRATA_PAGE_OK;
    case STRATA_PAGE_OP_SWAP:
    case STRATA_PAGE_OP_MOVE:
        status = look_up_range(op->address, op->bytes);
        if (status == STRATA_PAGE_OK) status = look_up_range(op->other, op->bytes);
        if (status != STRATA_PAGE_OK) return status;
        if ((char *)op->address < (char *)op->other + op->bytes && (char *)op->other < (char *)op->address + op->bytes) return STRATA_PAGE_OVERLAP;
        claim_range(claims, count, number, op->address, op->bytes, false);
        claim_range(claims, count, number, op->other, op->bytes, false);
        return STRATA_PAGE_OK;
    case STRATA_PAGE_OP_COMMIT:
    case STRATA_PAGE_OP_RELEASE:
        status = look_up_range(op->address, op->bytes);
        if (status == STRATA_PAGE_OK) claim_range(claims, count, number, op->address, op->bytes, false);
        return status;
    default: return STRATA_PAGE_BAD_ARGUMENT;
    }
}

static void sift(struct claim *claims, size_t at, size_t count) {
    for (size_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && claims[child + 1].start > claims[child].start) child++;
        if (claims[at].start >= claims[child].start) return;
        struct claim claim = claims[at];
        claims[at] = claims[child];
        claims[child] = claim;
    }
}

/* By start, in place: qsort may allocate. */
static void sort(struct claim *claims, size_t count) {
    for (size_t i = count / 2; i-- != 0;) sift(claims, i, count);
    for (size_t end = count; end > 1; end--) {
        struct claim largest = claims[0];
        claims[0] = claims[end - 1];
        claims[end - 1] = largest;
        sift(claims, 0, end - 1);
    }
}

/* Two that overlap, one of which is whole: in order of their starts, it is enough to know how far any, and any whole one, has come. */
static bool find_conflicts(struct strata_page_op *ops, struct claim *claims, size_t count) {
    uintptr_t any_end = 0, whole_end = 0;
    size_t any = 0, whole = 0;
    bool found = false;
    sort(claims, count);
    for (size_t i = 0; i < count; i++) {
        const struct claim *claim = &claims[i];
        bool with_whole = claim->start < whole_end && claim->op != whole, with_any = claim->whole && claim->start < any_end && claim->op != any;
        if (with_whole || with_any) {
            ops[claim->op].status = ops[with_whole ? whole : any].status = STRATA_PAGE_OVERLAP;
            found = true;
        }
        if (claim->end > any_end) any_end = claim->end, any = claim->op;
        if (claim->whole && claim->end > whole_end) whole_end = claim->end, whole = claim->op;
    }
    return found;
}

/* True: nothing is wrong with any of them. */
static bool look_at_all(struct strata_page_op *ops, size_t count, struct claim *claims) {
    size_t claimed = 0;
    bool right = true;
    for (size_t i = 0; i < count; i++) {
        enum strata_page_status status = look_at(&ops[i], i, claims, &claimed);
        ops[i].status = status == STRATA_PAGE_OK ? STRATA_PAGE_NOT_DONE : status;
        right &= status == STRATA_PAGE_OK;
    }
    return !find_conflicts(ops, claims, claimed) && right;
}

/* ------------------------------------------------------------------ the doing */

static enum strata_page_status do_one(struct strata_page_op *op) {
    switch (op->operation) {
    case STRATA_PAGE_OP_ALLOC: return strata_page_alloc(op->bytes, op->flags, &op->address);
    case STRATA_PAGE_OP_FREE: return strata_page_free(op->address);
    case STRATA_PAGE_OP_REALLOC: return strata_page_realloc(&op->address, op->bytes, op->flags);
    case STRATA_PAGE_OP_RESERVE: return strata_page_reserve(op->address, op->bytes);
    case STRATA_PAGE_OP_SPLIT: return strata_page_split(op->address, op->bytes, &op->other);
    case STRATA_PAGE_OP_JOIN: return strata_page_join(op->address, op->other);
    case STRATA_PAGE_OP_COMMIT: return strata_page_commit(op->address, op->bytes);
    case STRATA_PAGE_OP_RELEASE: return strata_page_release(op->address, op->bytes);
    case STRATA_PAGE_OP_SWAP: return strata_page_swap(op->address, op->other, op->bytes);
    case STRATA_PAGE_OP_MOVE: return strata_page_move(op->address, op->other, op->bytes);
    }
    return STRATA_PAGE_BAD_ARGUMENT;
}

/* How many operations from `first` on are exchanges, or moves, of which each goes on where the one before ended. */
static size_t stretch(const struct strata_page_op *first, size_t count, size_t *bytes) {
    size_t length = 1;
    *bytes = first->bytes;
    if (first->operation != STRATA_PAGE_OP_SWAP && first->operation != STRATA_PAGE_OP_MOVE) return 1;
    for (; length < count; length++) {
        const struct strata_page_op *op = &first[length];
        if (op->operation != first->operation || op->address != (char *)first->address + *bytes || op->other != (char *)first->other + *bytes) break;
        *bytes += op->bytes;
    }
    return length;
}

static enum strata_page_status do_stretch(struct strata_page_op *first, size_t length, size_t bytes) {
    struct strata_page_op joined = *first;
    joined.bytes = bytes;
    if (length == 1) return do_one(first);
    enum strata_page_status status = do_one(&joined);
    if (status == STRATA_PAGE_OK) return status;
    /* Neighbours that are of different blocks, or that overlap as a whole. */
    for (size_t i = 0; i < length; i++)
        if ((status = do_one(&first[i])) != STRATA_PAGE_OK) return status;
    return STRATA_PAGE_OK;
}

/* Commits, or releases, in a row: their order does not matter. */
static size_t advise_row(const struct strata_page_op *first, size_t count, struct platform_range *ranges) {
    size_t length = 0;
    for (; length < count && first[length].operation == first->operation; length++)
        ranges[length] = (struct platform_range){first[length].address, first[length].bytes};
    if (first->operation == STRATA_PAGE_OP_RELEASE) {
        if (zone_pages_release_all(&heap.zone, ranges, length) != ZONE_OK) return 0;
    } else if (!platform_populate_all(ranges, length)) {
        for (size_t i = 0; i < length; i++)
            if (zone_pages_populate(&heap.zone, ranges[i].address, ranges[i].bytes, NULL, NULL) != ZONE_OK) return 0;
    }
    return length;
}

static enum strata_page_status do_all(struct strata_page_op *ops, size_t count, struct platform_range *ranges, size_t *done) {
    for (size_t at = 0, length; at < count; at += length) {
        enum strata_page_status status = STRATA_PAGE_OK;
        bool advice = ops[at].operation == STRATA_PAGE_OP_COMMIT || ops[at].operation == STRATA_PAGE_OP_RELEASE;
        size_t bytes;
        length = advice ? advise_row(&ops[at], count - at, ranges) : stretch(&ops[at], count - at, &bytes);
        if (advice)
            status = length != 0 ? STRATA_PAGE_OK : STRATA_PAGE_NO_MEMORY;
        else
            status = do_stretch(&ops[at], length, bytes);
        if (status != STRATA_PAGE_OK) {
            ops[at].status = status;
            return status;
        }
        for (size_t i = 0; i < length; i++) ops[at + i].status = STRATA_PAGE_OK;
        *done += length;
    }
    return STRATA_PAGE_OK;
}

enum strata_page_status strata_page_batch(struct strata_page_op *ops, size_t count, size_t *done) {
    size_t ignored;
    if (done == NULL) done = &ignored;
    *done = 0;
    if (count == 0) return STRATA_PAGE_OK;
    if (ops == NULL || count > UINT32_MAX) return STRATA_PAGE_BAD_ARGUMENT;
    /* One piece of memory, for the claims and, when they are done with, for the ranges. */
    size_t bytes = count * 2 * sizeof(struct claim);
    _Static_assert(sizeof(struct platform_range) <= sizeof(struct claim), "ranges find room where the claims were");
    void *memory = heap_init() ? zone_block_alloc(&heap.zone, bytes, 1, NULL) : NULL;
    if (memory == NULL) {
        for (size_t i = 0; i < count; i++) ops[i].status = STRATA_PAGE_NOT_DONE;
        return STRATA_PAGE_NO_MEMORY;
    }
    enum strata_page_status status = STRATA_PAGE_OK;
    if (look_at_all(ops, count, memory)) {
        status = do_all(ops, count, memory, done);
    } else {
        for (size_t i = 0; i < count && (status == STRATA_PAGE_OK || status == STRATA_PAGE_NOT_DONE); i++) status = ops[i].status;
    }
    (void)zone_block_free(&heap.zone, memory);
    return status;
}
