/*
 * model_pages_batch.h - the part of model_pages.c for batches: operations made up at random, right and wrong, and what the header promises of them.
 *
 * A batch is refused as a whole when an operation in it is wrong, or two want the same pages and one of these ends, resizes, cuts or joins its
 * block; else it is done in order up to the first that lacks memory or room. The reference decides that pair by pair.
 */
#ifndef STRATA_TESTS_MODEL_PAGES_BATCH_H
#define STRATA_TESTS_MODEL_PAGES_BATCH_H

static struct strata_page_info infos[BATCH_MAX];
static size_t told;

static bool go_on(size_t done, void *argument) {
    *(size_t *)argument = done;
    return true;
}

/* What strata asks in vain. */
static bool stay(void *from, void *to, size_t bytes, void *argument) {
    (void)from, (void)to, (void)bytes, (void)argument;
    return false;
}

/* One that is mostly right. */
static struct strata_page_op make_op(uint64_t *state) {
    struct strata_page_op op = {.operation = (enum strata_page_operation)(dice(state) % (STRATA_PAGE_OP_SET_MOVE + 1)),
                                .status = (enum strata_page_status)77};
    size_t pages;
    if (block_count == 0) op.operation = STRATA_PAGE_OP_ALLOC;
    if (op.operation == STRATA_PAGE_OP_ALLOC) {
        op.bytes = dice(state) % 16 == 0 ? 0 : 1 + dice(state) % (dice(state) % 4 == 0 ? 3 * MIB : 16 * page_bytes);
        op.flags = (dice(state) % 2 == 0 ? STRATA_PAGE_ZEROED : 0u) | (dice(state) % 4 == 0 ? STRATA_PAGE_NO_MOVE : 0u);
        if (dice(state) % 8 == 0) op.align = (size_t)1 << dice(state) % 23;
        if (dice(state) % 32 == 0) op.align += 3;
        if (dice(state) % 8 == 0) op.reserve_bytes = op.bytes + dice(state) % (4 * MIB);
        return op;
    }
    struct block *block = &blocks[dice(state) % block_count], *other = &blocks[dice(state) % block_count];
    op.address = block->start;
    switch (op.operation) {
    case STRATA_PAGE_OP_REALLOC:
        op.flags = dice(state) % 32 == 0 ? STRATA_PAGE_HUGE : dice(state) % 2 == 0 ? STRATA_PAGE_ZEROED : 0;
        op.flags |= (dice(state) % 8 == 0 ? STRATA_PAGE_NO_MOVE : 0u) | (dice(state) % 4 == 0 ? STRATA_PAGE_PREFAULT : 0u); /* fall through */
    case STRATA_PAGE_OP_RESERVE: op.bytes = dice(state) % 32 == 0 ? 0 : 1 + dice(state) % (2 * block->pages * page_bytes); break;
    case STRATA_PAGE_OP_SPLIT:
        op.bytes = cut_unit(block) * (1 + dice(state) % 4);
        if (dice(state) % 16 == 0) op.bytes += 512;
        break;
    case STRATA_PAGE_OP_JOIN:
        op.other = block_at(block->start + block->pages * page_bytes) != NULL ? block->start + block->pages * page_bytes : other->start;
        break;
    case STRATA_PAGE_OP_SWAP:
    case STRATA_PAGE_OP_MOVE:
        op.address = range_of(block, state, other->pages, &pages);
        op.other = other->start + (other->pages - pages) * page_bytes;
        op.bytes = pages * page_bytes;
        break;
    case STRATA_PAGE_OP_COMMIT:
    case STRATA_PAGE_OP_RELEASE:
    case STRATA_PAGE_OP_PREFAULT:
        op.address = range_of(block, state, 40, &pages);
        op.bytes = pages * page_bytes;
        if (op.operation == STRATA_PAGE_OP_PREFAULT && dice(state) % 4 == 0)
            op.progress = dice(state) % 4 == 0 ? no_more : go_on, op.argument = &told;
        break;
    case STRATA_PAGE_OP_QUERY:
        op.address = block->start + dice(state) % (block->pages * page_bytes);
        op.info = dice(state) % 32 == 0 ? NULL : &infos[dice(state) % ARRAY_LENGTH(infos)];
        break;
    case STRATA_PAGE_OP_SET_MOVE: op.move = dice(state) % 2 == 0 ? stay : NULL; break;
    default: break;
    }
    if (dice(state) % 64 == 0) op.flags |= 0xff00;
    if (op.operation != STRATA_PAGE_OP_REALLOC && dice(state) % 128 == 0) op.flags |= STRATA_PAGE_ZEROED;
    if (dice(state) % 64 == 0) op.address = (char *)op.address + 8;
    if (op.operation == STRATA_PAGE_OP_FREE && dice(state) % 16 == 0) op.address = NULL;
    return op;
}

/* Of a row of moves of some pages each, some of which go on where the last one ended, or meet others. */
static struct strata_page_op make_move(uint64_t *state, const struct strata_page_op *last) {
    struct block *block = &blocks[dice(state) % block_count], *other = dice(state) % 4 == 0 ? block : &blocks[dice(state) % ((block_count + 2) / 3)];
    size_t pages;
    struct strata_page_op op = {.operation = STRATA_PAGE_OP_MOVE, .status = (enum strata_page_status)77};
    op.address = range_of(block, state, min_u64(other->pages, 1 + dice(state) % 12), &pages);
    op.other = other->start + dice(state) % (other->pages - pages + 1) * page_bytes;
    op.bytes = pages * page_bytes;
    if (last != NULL && dice(state) % 4 == 0) op.address = (char *)last->address + last->bytes, op.other = (char *)last->other + last->bytes;
    return op;
}

/* ------------------------------------------------------------------ the look, pair by pair */

static bool is_whole(enum strata_page_operation operation) {
    return operation == STRATA_PAGE_OP_FREE || operation == STRATA_PAGE_OP_REALLOC || operation == STRATA_PAGE_OP_RESERVE ||
           operation == STRATA_PAGE_OP_SPLIT || operation == STRATA_PAGE_OP_JOIN;
}

static bool is_range(const void *address, size_t bytes) {
    const struct block *block = block_with(address);
    return block != NULL && bytes != 0 && ((uintptr_t)address | bytes) % page_bytes == 0 &&
           bytes <= block->pages * page_bytes - (size_t)((const char *)address - block->start);
}

/* Shares its superpage with others. One of 2 MiB may be either: SIZE_MAX for that. */
static size_t shares(const struct block *block) {
    struct strata_page_info info = query(block);
    bool either = info.bytes == STRATA_PAGE_SUPERPAGE_BYTES && info.capacity_bytes == info.bytes;
    return either ? SIZE_MAX : info.capacity_bytes == info.bytes && info.bytes % STRATA_PAGE_SUPERPAGE_BYTES != 0;
}

static bool can_join(const struct block *block, const struct block *second) {
    if (block == NULL || second == NULL || second->start != block->start + block->pages * page_bytes || shares(block) != shares(second)) return false;
    return !shares(block) || (uintptr_t)block->start / STRATA_PAGE_SUPERPAGE_BYTES == (uintptr_t)second->start / STRATA_PAGE_SUPERPAGE_BYTES;
}

static bool is_right(const struct strata_page_op *op) {
    const struct block *block = block_at(op->address);
    const unsigned realloc_flags = STRATA_PAGE_ZEROED | STRATA_PAGE_NO_MOVE | STRATA_PAGE_PREFAULT;
    if ((op->flags & ~(op->operation == STRATA_PAGE_OP_REALLOC ? realloc_flags : op->operation == STRATA_PAGE_OP_ALLOC ? 63u : 0u)) != 0)
        return false;
    switch (op->operation) {
    case STRATA_PAGE_OP_ALLOC: return op->bytes != 0 && (op->align & (op->align - 1)) == 0;
    case STRATA_PAGE_OP_FREE: return op->address == NULL || block != NULL;
    case STRATA_PAGE_OP_REALLOC: return block != NULL && op->bytes != 0;
    case STRATA_PAGE_OP_RESERVE: return block != NULL && op->bytes != 0 && (op->bytes <= block->pages * page_bytes || !shares(block));
    case STRATA_PAGE_OP_SPLIT: return block != NULL && op->bytes % cut_unit(block) == 0 && op->bytes < block->pages * page_bytes;
    case STRATA_PAGE_OP_JOIN: return can_join(block, block_at(op->other));
    case STRATA_PAGE_OP_COMMIT:
    case STRATA_PAGE_OP_RELEASE:
    case STRATA_PAGE_OP_PREFAULT: return is_range(op->address, op->bytes);
    case STRATA_PAGE_OP_QUERY: return block_with(op->address) != NULL && op->info != NULL;
    case STRATA_PAGE_OP_SET_MOVE: return block != NULL && (op->move == NULL || (block->flags & STRATA_PAGE_NO_MOVE) == 0);
    default:
        return is_range(op->address, op->bytes) && is_range(op->other, op->bytes) &&
               ((char *)op->address + op->bytes <= (char *)op->other || (char *)op->other + op->bytes <= (char *)op->address);
    }
}

/* The pages that an operation wants: of a whole block, or the range. */
static void extent_of(const struct strata_page_op *op, unsigned which, const char **start, const char **end) {
    const char *address = which == 0 ? op->address : op->other;
    const struct block *block = block_with(address);
    bool none = op->operation == STRATA_PAGE_OP_ALLOC || block == NULL ||
                (which == 1 && op->operation != STRATA_PAGE_OP_JOIN && op->operation != STRATA_PAGE_OP_SWAP && op->operation != STRATA_PAGE_OP_MOVE);
    *start = none ? NULL : is_whole(op->operation) ? block->start : address;
    size_t bytes = op->operation == STRATA_PAGE_OP_QUERY || op->operation == STRATA_PAGE_OP_SET_MOVE ? 1 : op->bytes;
    *end = none ? NULL : is_whole(op->operation) ? block->start + block->pages * page_bytes : address + bytes;
}

static bool in_conflict(const struct strata_page_op *a, const struct strata_page_op *b) {
    const char *a_start, *a_end, *b_start, *b_end;
    if (!is_whole(a->operation) && !is_whole(b->operation)) return false;
    for (unsigned i = 0; i < 4; i++) {
        extent_of(a, i % 2, &a_start, &a_end);
        extent_of(b, i / 2, &b_start, &b_end);
        if (a_start < b_end && b_start < a_end) return true;
    }
    return false;
}

enum look { RIGHT, WRONG, CONFLICT };

static bool is_right_batch(const struct strata_page_op *ops, size_t count, enum look *look) {
    bool all = true;
    for (size_t i = 0; i < count; i++) look[i] = is_right(&ops[i]) ? RIGHT : WRONG;
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < i; j++)
            if (look[i] != WRONG && look[j] != WRONG && in_conflict(&ops[i], &ops[j])) look[i] = look[j] = CONFLICT;
    }
    for (size_t i = 0; i < count; i++) all &= look[i] == RIGHT;
    return all;
}

/* Who is in conflict is named; what is wrong in itself has a status of its own. */
static void check_refusal(const struct strata_page_op *ops, size_t count, const enum look *look) {
    for (size_t i = 0; i < count; i++) {
        enum strata_page_status status = ops[i].status;
        bool fits = look[i] == RIGHT      ? status == STRATA_PAGE_NOT_DONE
                    : look[i] == CONFLICT ? status == STRATA_PAGE_OVERLAP
                                          : status != STRATA_PAGE_NOT_DONE && status != STRATA_PAGE_OK;
        MODEL_EXPECT(model, fits, "operation %zu of the batch: %s", i, strata_page_status_text(status));
    }
}

/* ------------------------------------------------------------------ the doing */

/* What was asked, by `before`, and what came of it, by `op`. */
static void follow_op(const struct strata_page_op *before, const struct strata_page_op *op, unsigned how) {
    size_t pages = before->bytes / page_bytes;
    struct block *block;
    switch (op->operation) {
    case STRATA_PAGE_OP_ALLOC:
        follow_alloc(op->address, before->bytes, before->flags, how);
        if (model->failed) break;
        MODEL_EXPECT(model, before->align == 0 || (uintptr_t)op->address % before->align == 0, "%p is not aligned to %zu", op->address,
                     before->align);
        MODEL_EXPECT(model, query(block_at(op->address)).capacity_bytes >= before->reserve_bytes, "no room for %zu bytes", before->reserve_bytes);
        break;
    case STRATA_PAGE_OP_FREE:
        if (before->address != NULL) remove_block(block_at(before->address));
        break;
    case STRATA_PAGE_OP_REALLOC: follow_realloc(block_at(before->address), op->address, before->bytes, before->flags, 0); break;
    case STRATA_PAGE_OP_SPLIT:
        split_block(block_at(before->address), pages);
        MODEL_EXPECT(model, op->other == (char *)before->address + before->bytes, "the second part is said to be %p", op->other);
        break;
    case STRATA_PAGE_OP_JOIN: join_blocks(block_at(before->address), block_at(before->other)); break;
    case STRATA_PAGE_OP_SWAP: swap_pages(before->address, before->other, pages); break;
    case STRATA_PAGE_OP_MOVE: move_pages(before->address, before->other, pages); break;
    case STRATA_PAGE_OP_RELEASE:
        block = block_with(before->address);
        set_pages(block, page_in(block, before->address), page_in(block, before->address) + pages, PAGE_ZERO);
        break;
    case STRATA_PAGE_OP_QUERY:
        block = block_with(before->address);
        MODEL_EXPECT(model, before->info->block == block->start && before->info->bytes == block->pages * page_bytes,
                     "%p is said to be %p of %zu bytes", before->address, before->info->block, before->info->bytes);
        break;
    case STRATA_PAGE_OP_PREFAULT: MODEL_EXPECT(model, before->progress != no_more, "a prefault was not cut short"); break;
    default: break;
    }
}

/* What only the doing shows. */
static bool may_lack_room(const struct strata_page_op *op) {
    if (op->operation == STRATA_PAGE_OP_RESERVE) return true;
    return op->operation == STRATA_PAGE_OP_REALLOC && ((op->flags | block_at(op->address)->flags) & STRATA_PAGE_NO_MOVE) != 0;
}

/* Of what kind such a block is can't be asked. */
static bool is_unclear(const struct strata_page_op *op) {
    if (op->operation != STRATA_PAGE_OP_JOIN && op->operation != STRATA_PAGE_OP_RESERVE) return false;
    const struct block *block = block_at(op->address), *other = block_at(op->other);
    return (block != NULL && shares(block) == SIZE_MAX) || (other != NULL && shares(other) == SIZE_MAX);
}

/* Contents are looked at when all is done, not in between: the reference follows operation by operation, and the pages are already further. */
static void step_batch(const struct model_record *record, uint64_t state) {
    struct strata_page_op ops[BATCH_MAX], before[BATCH_MAX];
    enum look look[BATCH_MAX];
    size_t count = 1 + record->byte[6] % BATCH_MAX, done = 77;
    if (block_count + 2 * count > BLOCKS_MAX || live_bytes() + 64 * MIB > LIVE_BYTES_MAX) return;
    bool row = block_count != 0 && record->byte[5] % 3 == 0;
    for (size_t i = 0; i < count; i++) {
        ops[i] = row ? make_move(&state, i != 0 ? &ops[i - 1] : NULL) : make_op(&state);
        if (ops[i].operation == STRATA_PAGE_OP_QUERY && ops[i].info != NULL) ops[i].info = &infos[i];
        if (is_unclear(&ops[i])) ops[i] = (struct strata_page_op){.operation = STRATA_PAGE_OP_FREE};
        before[i] = ops[i];
    }
    bool all_right = is_right_batch(ops, count, look);
    for (size_t i = 0; i < count; i++)
        if (block_with(ops[i].address) != NULL && block_with(ops[i].address)->pages * page_bytes > 12 * MIB) return;
    enum strata_page_status status = strata_page_batch(ops, count, &done);
    model_trace(model, "batch of %zu, %s: %zu done (%s)", count, all_right ? "right" : "wrong", done, strata_page_status_text(status));
    for (size_t i = 0; i < count; i++)
        model_trace(model, "  %d of %p and %p, %zu bytes, flags %x: %s", (int)before[i].operation, before[i].address, before[i].other,
                    before[i].bytes, before[i].flags, strata_page_status_text(ops[i].status));
    if (status == STRATA_PAGE_NO_MEMORY && done == 0 && ops[0].status == STRATA_PAGE_NOT_DONE && may_lack()) return;
    if (!all_right) {
        MODEL_EXPECT(model, done == 0 && status != STRATA_PAGE_OK && status != STRATA_PAGE_NOT_DONE, "a wrong batch: %zu done, %s", done,
                     strata_page_status_text(status));
        check_refusal(ops, count, look);
        return;
    }
    MODEL_EXPECT(model, (status == STRATA_PAGE_OK) == (done == count), "%zu of %zu done: %s", done, count, strata_page_status_text(status));
    for (size_t i = 0; i < count && !model->failed; i++) {
        if (i < done) {
            MODEL_EXPECT(model, ops[i].status == STRATA_PAGE_OK, "operation %zu of the batch: %s", i, strata_page_status_text(ops[i].status));
            if (!model->failed) follow_op(&before[i], &ops[i], 0);
        } else if (i == done) {
            bool ended = status == STRATA_PAGE_NO_ROOM     ? may_lack_room(&before[i])
                         : status == STRATA_PAGE_CUT_SHORT ? before[i].operation == STRATA_PAGE_OP_PREFAULT && before[i].progress == no_more
                                                           : status == STRATA_PAGE_NO_MEMORY && may_lack();
            MODEL_EXPECT(model, ops[i].status == status && ended, "operation %zu of the batch: %s", i, strata_page_status_text(ops[i].status));
        } else {
            MODEL_EXPECT(model, ops[i].status == STRATA_PAGE_NOT_DONE, "operation %zu of the batch: %s", i, strata_page_status_text(ops[i].status));
        }
    }
    for (unsigned i = 0; i < block_count && !model->failed; i++) check_block(&blocks[i], false);
}

#endif
