/*
 * lifetimes.c - load: random lifetimes, with the sizes and lifetimes of recorded programs.
 *
 * For each program of lifetimes_data.h (--mode NAME: for that one) blocks are allocated whose sizes are drawn from its distribution, and each is
 * freed as many allocations later as that of its size says. Real programs are not random, so this is no replay: what is kept is which sizes are
 * frequent, which of them die young, and how many live on, the three regularities that D. Grunwald, B. Zorn ("CustoMalloc", 1993) and those after
 * them build on. One thread, no locks.
 *
 * Invariant: due[t] is the list of slots whose blocks are freed at the end of the t-th group of GROUP allocations; every live block is in one list,
 * or in `never`.
 */
#include "latency.h"
#include "lifetimes_data.h"

#define STEPS UINT64_C(1600000)
#define GROUP 16
#define GROUPS_MAX ((size_t)1 << 20)
#define NONE UINT32_MAX
#define PROGRAMS (sizeof lifetimes_programs / sizeof lifetimes_programs[0])

struct slot {
    struct block block;
    uint32_t next;
};

static struct slot *slots;
static uint32_t slots_count, slots_room, unused = NONE, never;
static uint32_t due[GROUPS_MAX];

static uint32_t slot_take(void) {
    uint32_t index = unused;
    if (index != NONE) {
        unused = slots[index].next;
        return index;
    }
    if (slots_count == slots_room) {
        slots_room = slots_room ? slots_room * 2 : 4096;
        slots = realloc(slots, slots_room * sizeof *slots);
        if (!slots) load_fail("realloc returned NULL");
    }
    return slots_count++;
}

static void drop_list(uint32_t *list, struct latency_sampler *sampler, struct tally *tally) {
    for (uint32_t index = *list; index != NONE;) {
        uint32_t next = slots[index].next;
        block_drop_timed(sampler, &slots[index].block, tally);
        slots[index].next = unused;
        unused = index;
        index = next;
    }
    *list = NONE;
}

static const struct lifetimes_size *draw_size(const struct lifetimes_program *program, struct rng *rng) {
    uint64_t draw = rng_below(rng, 65536);
    const struct lifetimes_size *size = program->size;
    while (draw >= size->end && size < &program->size[program->sizes - 1]) size++;
    return size;
}

/* In allocations; 0 for ever. */
static uint64_t draw_lifetime(const struct lifetimes_size *size, struct rng *rng) {
    uint64_t draw = rng_below(rng, 255);
    unsigned bucket = 0;
    while (bucket < LIFETIMES_BUCKETS - 1 && draw >= size->lifetime_ends[bucket]) bucket++;
    return bucket == LIFETIMES_BUCKETS - 1 ? 0 : ((uint64_t)1 << bucket) + rng_below(rng, (uint64_t)1 << bucket);
}

static void live(const struct lifetimes_program *program, uint64_t seed, uint64_t steps, struct latency_sampler *sampler, struct tally *tally) {
    struct rng rng = rng_seed(seed);
    size_t groups = steps / GROUP + 1;
    if (groups > GROUPS_MAX) load_fail("--scale is too large for this load");
    for (size_t group = 0; group < groups; group++) due[group] = NONE;
    never = NONE;
    for (uint64_t step = 0; step < steps; step++) {
        const struct lifetimes_size *size = draw_size(program, &rng);
        uint64_t lifetime = draw_lifetime(size, &rng), dies = step + lifetime;
        uint32_t index = slot_take();
        slots[index].block = block_take_timed(sampler, size->bytes, rng_next(&rng));
        uint32_t *list = lifetime && dies < steps ? &due[dies / GROUP] : &never;
        slots[index].next = *list;
        *list = index;
        if (step % GROUP == GROUP - 1) drop_list(&due[step / GROUP], sampler, tally);
    }
    for (size_t group = 0; group < groups; group++) drop_list(&due[group], sampler, tally);
    drop_list(&never, sampler, tally);
}

int main(int argc, char **argv) {
    struct load_args args = load_arguments(argc, argv);
    struct latency_sampler sampler = latency_sampler(0);
    struct tally tally = {0};
    uint64_t start_ns = load_clock_ns();
    unsigned found = 0;

    args.threads = 1;
    for (unsigned p = 0; p < PROGRAMS; p++) {
        const struct lifetimes_program *program = &lifetimes_programs[p];
        uint64_t steps = load_scaled(&args, STEPS);
        if (*args.mode && strcmp(args.mode, program->name)) continue;
        live(program, 600 + p, steps < program->allocations ? steps : program->allocations, &sampler, &tally);
        found++;
    }
    if (!found) load_fail("--mode is the name of a program in lifetimes_data.h");
    free(slots);
    load_report("lifetimes", &args, &tally, load_clock_ns() - start_ns);
    return 0;
}
