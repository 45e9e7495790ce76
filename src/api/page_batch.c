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

/* The claims of a batch lie in a block of the heap, which is none of the program's. */
struct look {
    struct claim *claims;
    size_t count, bytes;
};

/* ------------------------------------------------------------------ the look */

static bool is_ours(const struct look *look, const void *address) {
    return (const char *)address >= (const char *)look->claims && (const char *)address < (const char *)look->claims + look->bytes;
}

static enum strata_page_status look_up_block(const struct look *look, const void *address, struct zone_block_info *info) {
    bool found = zone_block_find(&heap.zone, address, 1, info) == ZONE_OK && info->start == address && !is_ours(look, address);
    return found ? STRATA_PAGE_OK : STRATA_PAGE_NO_BLOCK;
}

static enum strata_page_status look_up_range(const struct look *look, void *address, size_t bytes) {
    enum zone_status status = zone_pages_check(&heap.zone, address, bytes);
    if (status == ZONE_OK && is_ours(look, address)) status = ZONE_NO_BLOCK;
    return status == ZONE_OK ? STRATA_PAGE_OK : status == ZONE_NO_BLOCK ? STRATA_PAGE_NO_BLOCK : STRATA_PAGE_BAD_ARGUMENT;
}

static void claim_range(struct look *look, size_t op, const void *address, size_t bytes, bool whole) {
    look->claims[look->count++] = (struct claim){(uintptr_t)address, (uintptr_t)address + bytes, op, whole};
}

static struct strata_page_request request_of(const struct strata_page_op *op) {
    return (struct strata_page_request){.bytes = op->bytes, .align = op->align, .reserve_bytes = op->reserve_bytes, .flags = op->flags};
}

/* Of an operation that resizes or cuts a block: whether its size is one for it. What others do to the neighbourhood is not known yet. */
static enum strata_page_status check_size(const struct strata_page_op *op, const struct zone_block_info *block) {
    if (op->operation == STRATA_PAGE_OP_FREE) return STRATA_PAGE_OK;
    if (op->bytes == 0 || op->bytes > HEAP_BYTES_MAX) return STRATA_PAGE_BAD_ARGUMENT;
    if (op->operation == STRATA_PAGE_OP_SPLIT && (op->bytes % block->unit_bytes != 0 || op->bytes >= block->bytes)) return STRATA_PAGE_BAD_ARGUMENT;
    /* One that shares its superpage never has more room than it has now. */
    bool shares = block->unit_bytes < SUPERPAGE_BYTES;
    return op->operation == STRATA_PAGE_OP_RESERVE && shares && op->bytes > block->capacity_bytes ? STRATA_PAGE_NO_ROOM : STRATA_PAGE_OK;
}

/* What one operation wants, at most two claims; what is wrong claims nothing. */
static enum strata_page_status look_at(const struct strata_page_op *op, size_t number, struct look *look) {
    struct zone_block_info block, other;
    const struct strata_page_request request = request_of(op);
    enum strata_page_status status;
    unsigned flags = op->operation == STRATA_PAGE_OP_REALLOC ? PAGE_API_REALLOC_FLAGS : 0;
    if (op->operation != STRATA_PAGE_OP_ALLOC && (op->flags & ~flags) != 0) return STRATA_PAGE_BAD_ARGUMENT;
    switch (op->operation) {
    case STRATA_PAGE_OP_ALLOC: return page_api_check_request(&request);
    case STRATA_PAGE_OP_FREE:
    case STRATA_PAGE_OP_REALLOC:
    case STRATA_PAGE_OP_RESERVE:
    case STRATA_PAGE_OP_SPLIT:
        if (op->operation == STRATA_PAGE_OP_FREE && op->address == NULL) return STRATA_PAGE_OK; /* as alone: nothing */
        status = look_up_block(look, op->address, &block);
        if (status != STRATA_PAGE_OK) return status;
        status = check_size(op, &block);
        if (status == STRATA_PAGE_OK) claim_range(look, number, block.start, block.bytes, true);
        return status;
    case STRATA_PAGE_OP_JOIN:
        status = look_up_block(look, op->address, &block);
        if (status == STRATA_PAGE_OK) status = look_up_block(look, op->other, &other);
        if (status == STRATA_PAGE_OK) status = page_api_join_status(zone_block_join_check(&heap.zone, op->address, op->other));
        if (status != STRATA_PAGE_OK) return status;
        claim_range(look, number, block.start, block.bytes, true);
        claim_range(look, number, other.start, other.bytes, true);
        return STRATA_PAGE_OK;
    case STRATA_PAGE_OP_SWAP:
    case STRATA_PAGE_OP_MOVE:
        status = look_up_range(look, op->address, op->bytes);
        if (status == STRATA_PAGE_OK) status = look_up_range(look, op->other, op->bytes);
        if (status != STRATA_PAGE_OK) return status;
        if ((char *)op->address < (char *)op->other + op->bytes && (char *)op->other < (char *)op->address + op->bytes) return STRATA_PAGE_OVERLAP;
        claim_range(look, number, op->address, op->bytes, false);
        claim_range(look, number, op->other, op->bytes, false);
        return STRATA_PAGE_OK;
    case STRATA_PAGE_OP_COMMIT:
    case STRATA_PAGE_OP_RELEASE:
    case STRATA_PAGE_OP_PREFAULT:
        status = look_up_range(look, op->address, op->bytes);
        if (status == STRATA_PAGE_OK) claim_range(look, number, op->address, op->bytes, false);
        return status;
    case STRATA_PAGE_OP_QUERY:
        if (op->info == NULL) return STRATA_PAGE_BAD_ARGUMENT;
        if (zone_block_find(&heap.zone, op->address, 1, &block) != ZONE_OK || is_ours(look, op->address)) return STRATA_PAGE_NO_BLOCK;
        claim_range(look, number, op->address, 1, false);
        return STRATA_PAGE_OK;
    case STRATA_PAGE_OP_SET_MOVE:
        status = look_up_block(look, op->address, &block);
        if (status == STRATA_PAGE_OK && block.fixed && op->move != NULL) status = STRATA_PAGE_BAD_ARGUMENT;
        if (status == STRATA_PAGE_OK) claim_range(look, number, op->address, 1, false);
        return status;
    default: return STRATA_PAGE_BAD_ARGUMENT;
    }
}

/* By their starts; of two with one start that of a whole block comes first, as of a block and any range inside. */
static bool comes_after(const struct claim *claim, const struct claim *other) {
    return claim->start != other->start ? claim->start > other->start : other->whole && !claim->whole;
}

static void sift(struct claim *claims, size_t at, size_t count) {
    for (size_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && comes_after(&claims[child + 1], &claims[child])) child++;
        if (!comes_after(&claims[child], &claims[at])) return;
        struct claim claim = claims[at];
        claims[at] = claims[child];
        claims[child] = claim;
    }
}

/* In place: qsort may allocate. */
static void sort(struct claim *claims, size_t count) {
    for (size_t i = count / 2; i-- != 0;) sift(claims, i, count);
    for (size_t end = count; end > 1; end--) {
        struct claim largest = claims[0];
        claims[0] = claims[end - 1];
        claims[end - 1] = largest;
        sift(claims, 0, end - 1);
    }
}

/*
 * Two that overlap, one of which is whole, which is the first of them in this order: it is enough to know how far any whole one has come. Blocks are
 * apart, so that those that are whole are so as well, or the same.
 */
static bool find_conflicts(struct strata_page_op *ops, struct claim *claims, size_t count) {
    uintptr_t whole_end = 0;
    size_t whole = 0;
    bool found = false;
    sort(claims, count);
    for (size_t i = 0; i < count; i++) {
        const struct claim *claim = &claims[i];
        if (claim->start < whole_end && claim->op != whole) {
            ops[claim->op].status = ops[whole].status = STRATA_PAGE_OVERLAP;
            found = true;
        } else if (claim->whole)
            whole_end = claim->end, whole = claim->op;
    }
    return found;
}

/* True: nothing is wrong with any of them. */
static bool look_at_all(struct strata_page_op *ops, size_t count, struct look *look) {
    bool right = true;
    for (size_t i = 0; i < count; i++) {
        enum strata_page_status status = look_at(&ops[i], i, look);
        ops[i].status = status == STRATA_PAGE_OK ? STRATA_PAGE_NOT_DONE : status;
        right &= status == STRATA_PAGE_OK;
    }
    return !find_conflicts(ops, look->claims, look->count) && right;
}

/* ------------------------------------------------------------------ the doing */

static enum strata_page_status do_one(struct strata_page_op *op) {
    const struct strata_page_request request = request_of(op);
    switch (op->operation) {
    case STRATA_PAGE_OP_ALLOC: return strata_page_alloc_as(&request, &op->address);
    case STRATA_PAGE_OP_FREE: return strata_page_free(op->address);
    case STRATA_PAGE_OP_REALLOC: return strata_page_realloc(&op->address, op->bytes, op->flags);
    case STRATA_PAGE_OP_RESERVE: return strata_page_reserve(op->address, op->bytes);
    case STRATA_PAGE_OP_SPLIT: return strata_page_split(op->address, op->bytes, &op->other);
    case STRATA_PAGE_OP_JOIN: return strata_page_join(op->address, op->other);
    case STRATA_PAGE_OP_COMMIT: return strata_page_commit(op->address, op->bytes);
    case STRATA_PAGE_OP_RELEASE: return strata_page_release(op->address, op->bytes);
    case STRATA_PAGE_OP_SWAP: return strata_page_swap(op->address, op->other, op->bytes);
    case STRATA_PAGE_OP_MOVE: return strata_page_move(op->address, op->other, op->bytes);
    case STRATA_PAGE_OP_PREFAULT: return strata_page_prefault(op->address, op->bytes, op->progress, op->argument);
    case STRATA_PAGE_OP_QUERY: return strata_page_query(op->address, op->info);
    case STRATA_PAGE_OP_SET_MOVE: return strata_page_set_move(op->address, op->move, op->argument);
    }
    return STRATA_PAGE_BAD_ARGUMENT;
}

/* How many operations from `first` on are exchanges of which each goes on where the one before ended. */
static size_t stretch(const struct strata_page_op *first, size_t count, size_t *bytes) {
    size_t length = 1;
    *bytes = first->bytes;
    if (first->operation != STRATA_PAGE_OP_SWAP) return 1;
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

/* Makes pages present, and nobody is to be told in between. */
static bool commits(const struct strata_page_op *op) {
    return op->operation == STRATA_PAGE_OP_COMMIT || (op->operation == STRATA_PAGE_OP_PREFAULT && op->progress == NULL);
}

/* Commits, or releases, in a row: their order does not matter. */
static size_t advise_row(const struct strata_page_op *first, size_t count, struct platform_range *ranges) {
    size_t length = 0;
    for (; length < count && (commits(first) ? commits(&first[length]) : first[length].operation == first->operation); length++)
        ranges[length] = (struct platform_range){first[length].address, first[length].bytes};
    if (first->operation == STRATA_PAGE_OP_RELEASE) {
        if (zone_pages_release_all(&heap.zone, ranges, length) != ZONE_OK) return 0;
    } else if (!platform_populate_all(ranges, length)) {
        for (size_t i = 0; i < length; i++)
            if (zone_pages_populate(&heap.zone, ranges[i].address, ranges[i].bytes, NULL, NULL) != ZONE_OK) return 0;
    }
    return length;
}

static bool meet(const char *a, size_t a_bytes, const char *b, size_t b_bytes) { return a < b + b_bytes && b < a + a_bytes; }

/* Goes on where the last of the moves ended, on both sides, in the same blocks. */
static bool continues(const struct zone_pages_move *last, const struct strata_page_op *op) {
    struct zone_block_info block;
    size_t bytes = last->bytes + op->bytes;
    return op->address == last->from + last->bytes && op->other == last->to + last->bytes && !meet(last->from, bytes, last->to, bytes) &&
           zone_block_find(&heap.zone, last->from, bytes, &block) == ZONE_OK && zone_block_find(&heap.zone, last->to, bytes, &block) == ZONE_OK;
}

/* Moves in a row of which no two meet: their order does not matter. At most MOVES_MAX, as each is compared with all others. */
static size_t move_row(const struct strata_page_op *first, size_t count, struct zone_pages_move *moves) {
    enum { MOVES_MAX = 64 };
    size_t length = 0, row = 0;
    for (; length < count && first[length].operation == STRATA_PAGE_OP_MOVE; length++) {
        const struct strata_page_op *op = &first[length];
        bool apart = true;
        for (size_t i = 0; i < row && apart; i++)
            apart = !meet(moves[i].from, moves[i].bytes, op->address, op->bytes) && !meet(moves[i].from, moves[i].bytes, op->other, op->bytes) &&
                    !meet(moves[i].to, moves[i].bytes, op->address, op->bytes) && !meet(moves[i].to, moves[i].bytes, op->other, op->bytes);
        if (!apart || (row == MOVES_MAX && !continues(&moves[row - 1], op))) break;
        if (row != 0 && continues(&moves[row - 1], op))
            moves[row - 1].bytes += op->bytes;
        else
            moves[row++] = (struct zone_pages_move){op->address, op->other, op->bytes};
    }
    return zone_pages_move_all(&heap.zone, moves, row) == ZONE_OK ? length : 0;
}

/* How many operations from the first on go by one call; *status: of all of them. memory: for a range, or a move, an operation. */
static size_t do_some(struct strata_page_op *first, size_t count, void *memory, enum strata_page_status *status) {
    size_t bytes, length;
    if (commits(first) || first->operation == STRATA_PAGE_OP_RELEASE)
        length = advise_row(first, count, memory);
    else if (first->operation == STRATA_PAGE_OP_MOVE)
        length = move_row(first, count, memory);
    else {
        length = stretch(first, count, &bytes);
        *status = do_stretch(first, length, bytes);
        return length;
    }
    *status = length != 0 ? STRATA_PAGE_OK : STRATA_PAGE_NO_MEMORY;
    return length;
}

static enum strata_page_status do_all(struct strata_page_op *ops, size_t count, void *memory, size_t *done) {
    for (size_t at = 0, length; at < count; at += length) {
        enum strata_page_status status;
        length = do_some(&ops[at], count - at, memory, &status);
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
    /* One piece of memory, for the claims and, when they are done with, for the ranges or moves. */
    size_t bytes = count * 2 * sizeof(struct claim);
    _Static_assert(sizeof(struct platform_range) <= sizeof(struct claim), "ranges find room where the claims were");
    _Static_assert(sizeof(struct zone_pages_move) <= sizeof(struct claim), "so do moves");
    const struct zone_block_config config = {.bytes = bytes, .mobility = MOBILITY_MOVABLE}; /* mostly what this CPU has kept of the last batch */
    void *memory = heap_init() ? zone_block_create(&heap.zone, &config, NULL) : NULL;
    if (memory == NULL) {
        for (size_t i = 0; i < count; i++) ops[i].status = STRATA_PAGE_NOT_DONE;
        return STRATA_PAGE_NO_MEMORY;
    }
    enum strata_page_status status = STRATA_PAGE_OK;
    struct look look = {.claims = memory, .bytes = zone_block_bytes(&heap.zone, memory)};
    if (look_at_all(ops, count, &look)) {
        status = do_all(ops, count, memory, done);
    } else {
        for (size_t i = 0; i < count && (status == STRATA_PAGE_OK || status == STRATA_PAGE_NOT_DONE); i++) status = ops[i].status;
    }
    (void)zone_block_free(&heap.zone, memory);
    return status;
}
