/*
 * vh_simulate.c - experiment: the simulations of section 4 of the VH paper on threads, under one allocator of events; times allocations and releases.
 *
 * An operation of a few nanoseconds is less than what reading a clock takes. So a thread allocates GROUP events at a time, ahead of their use, and
 * releases as many at a time, a little after their end: all operations are the simulation's own, and each group is timed as one.
 *
 *     vh_simulate tandem|superping METHOD THREADS SCALE_PERCENT
 *
 * Conservative, by safe times (the paper's reference 2): an LP deals with its events up to the least clock of those that send to it, then sets its
 * own clock to LOOKAHEAD after the earliest thing that it may still have to deal with. Clocks only grow, and the least of all can always be passed,
 * so the simulation never stands still, and needs no lock and no barrier. LPs are dealt out to threads in turn, two at a time, so that about half
 * of the messages are released by another thread than allocated them, in both directions. An LP sees its events in the order of their times whatever
 * the threads do: the result is the same under every method and number of threads.
 *
 * Order of memory: a sender pushes its messages before it stores (release) its clock; a receiver loads (acquire) the clocks of its inputs before it
 * takes its inbox, so it has every message that is dated before the safe time that it computed.
 */
#include "vh_simulate.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>

#include "timing.h"
#include "vh_methods.h"

#define GROUP 32
/*
 * A group that took longer is left out: the system had stopped the thread in the middle of it, for a slice of milliseconds, of which a few would make
 * up most of an average of nanoseconds. Waits for a lock are shorter, unless its holder was stopped.
 */
#define LEFT_OUT_NS 100000
#define THREADS_LIMIT 64
#define DEALT_AT_A_TIME 2
/* How far an LP goes ahead at a time, so that those behind it in a chain have something to do early. */
#define STRIDE 10.0

/* What one thread measured: operations, and the time of those that were not left out. */
struct average {
    uint64_t ticks, samples, left_out;
};

/* Of one thread: events that were allocated and are to be used, events that are over and to be released, and their times. */
struct desk {
    _Alignas(CACHE_LINE_BYTES) unsigned ready_count, over_count;
    uint64_t allocated, released;
    struct average allocation, release;
    struct event *ready[GROUP], *over[GROUP];
};

static const struct method *method;
static const struct model *model;
static struct process *processes;
static struct desk desks[THREADS_LIMIT];
static pthread_barrier_t all_done;
static unsigned thread_count;
static double end_time;
static struct timing_scale scale;
static uint64_t left_out_ticks;

static unsigned thread_of(unsigned process) { return process / DEALT_AT_A_TIME % thread_count; }

static uint64_t seal_of(const struct event *event) {
    uint64_t bits;
    memcpy(&bits, &event->time, sizeof bits);
    return (bits ^ event->subject * UINT64_C(0x9e3779b97f4a7c15)) + event->sequence * 31 + event->sender * 17 + event->kind;
}

static void average_add(struct average *average, uint64_t ticks) {
    if (ticks > left_out_ticks) {
        average->left_out += GROUP;
        return;
    }
    average->ticks += ticks;
    average->samples += GROUP;
}

static struct event *event_allocate(unsigned thread) {
    struct desk *desk = &desks[thread];
    if (!desk->ready_count) {
        uint64_t start = timing_ticks_fenced();
        for (unsigned i = 0; i < GROUP; i++) desk->ready[i] = method->allocate(thread);
        average_add(&desk->allocation, timing_ticks_fenced() - start);
        desk->ready_count = GROUP;
        desk->allocated += GROUP;
    }
    struct event *event = desk->ready[--desk->ready_count];
    if (!event) load_fail("no memory for an event");
    return event;
}

static void event_release(unsigned thread, struct event *event) {
    struct desk *desk = &desks[thread];
    if (event->seal != seal_of(event)) load_fail("an event does not hold what was written to it");
    /* A second release would find no seal. */
    event->seal = ~event->seal;
    desk->over[desk->over_count++] = event;
    if (desk->over_count < GROUP) return;
    uint64_t start = timing_ticks_fenced();
    for (unsigned i = 0; i < GROUP; i++) method->release(thread, desk->over[i]);
    average_add(&desk->release, timing_ticks_fenced() - start);
    desk->over_count = 0;
    desk->released += GROUP;
}

/* Releases what is no whole group, and what was never used. */
static void desk_clear(unsigned thread) {
    struct desk *desk = &desks[thread];
    desk->released += desk->over_count + desk->ready_count;
    while (desk->over_count) method->release(thread, desk->over[--desk->over_count]);
    while (desk->ready_count) method->release(thread, desk->ready[--desk->ready_count]);
}

static int earlier(const struct event *left, const struct event *right) {
    if (left->time != right->time) return left->time < right->time;
    if (left->sender != right->sender) return left->sender < right->sender;
    return left->sequence < right->sequence;
}

static void heap_push(struct process *process, struct event *event) {
    if (process->heap_count == process->heap_room) {
        process->heap_room = process->heap_room ? 2 * process->heap_room : 64;
        process->heap = realloc(process->heap, process->heap_room * sizeof *process->heap);
        if (!process->heap) load_fail("no memory for a heap of events");
    }
    size_t at = process->heap_count++;
    for (; at && earlier(event, process->heap[(at - 1) / 2]); at = (at - 1) / 2) process->heap[at] = process->heap[(at - 1) / 2];
    process->heap[at] = event;
}

static struct event *heap_pop(struct process *process) {
    struct event *first = process->heap[0], *last = process->heap[--process->heap_count];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < process->heap_count; at = child) {
        if (child + 1 < process->heap_count && earlier(process->heap[child + 1], process->heap[child])) child++;
        if (!earlier(process->heap[child], last)) break;
        process->heap[at] = process->heap[child];
    }
    process->heap[at] = last;
    return first;
}

void process_send(struct process *sender, unsigned target, double time, uint32_t kind, uint64_t subject) {
    struct event *event = event_allocate(sender->thread);
    *event = (struct event){.time = time, .subject = subject, .sequence = sender->sequence++, .sender = sender->index, .kind = kind};
    event->seal = seal_of(event);
    if (target == sender->index) {
        heap_push(sender, event);
        return;
    }
    struct process *receiver = &processes[target];
    event->next = atomic_load_explicit(&receiver->inbox, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&receiver->inbox, &event->next, event, memory_order_release, memory_order_relaxed)) {}
}

void process_release(struct process *process, struct event *event) { event_release(process->thread, event); }

double process_exponential(struct process *process, double mean) {
    /* In (0, 1]: 0 has no logarithm. */
    double uniform = ((double)(rng_next(&process->rng) >> 11) + 1) * 0x1p-53;
    return -mean * log(uniform);
}

static void take_inbox(struct process *process) {
    if (!atomic_load_explicit(&process->inbox, memory_order_relaxed)) return;
    struct event *event = atomic_exchange_explicit(&process->inbox, NULL, memory_order_acquire);
    while (event) {
        struct event *next = event->next;
        heap_push(process, event);
        event = next;
    }
}

/* Deals with all that is safe. Returns whether the LP's clock has moved. */
static int advance(struct process *process) {
    double safe = INFINITY;
    for (unsigned i = 0; i < process->input_count; i++)
        safe = fmin(safe, atomic_load_explicit(&process->inputs[i]->clock, memory_order_acquire) + process->slack);
    safe = fmin(safe, process->reached + STRIDE);
    process->reached = safe;
    take_inbox(process);
    while (process->heap_count && process->heap[0]->time < fmin(safe, end_time)) {
        struct event *event = heap_pop(process);
        uint64_t seal = event->seal;
        process->handled++;
        process->result = process->result * UINT64_C(0x2545f4914f6cdd1d) + seal;
        if (model->handle(process, event)) event_release(process->thread, event);
    }
    double bound = process->heap_count ? fmin(safe, process->heap[0]->time) : safe;
    process->done = bound >= end_time;
    double clock = process->done ? INFINITY : bound + LOOKAHEAD;
    if (clock <= atomic_load_explicit(&process->clock, memory_order_relaxed)) return 0;
    atomic_store_explicit(&process->clock, clock, memory_order_release);
    return 1;
}

static void release_rest(struct process *process) {
    struct event *event;
    take_inbox(process);
    while (process->heap_count) event_release(process->thread, heap_pop(process));
    while ((event = model->give_up(process))) event_release(process->thread, event);
    free(process->heap);
}

static void simulate(unsigned thread, void *context, struct tally *tally) {
    unsigned left = 0;
    (void)context;
    timing_pin(thread);
    for (unsigned i = 0; i < model->processes; i++) left += thread_of(i) == thread;
    while (left) {
        int moved = 0;
        for (unsigned i = 0; i < model->processes; i++) {
            struct process *process = &processes[i];
            if (thread_of(i) != thread || process->done) continue;
            moved |= advance(process);
            left -= (unsigned)process->done;
        }
        if (!moved) sched_yield();
    }
    /* Others may still be sending what is dated after the end. */
    pthread_barrier_wait(&all_done);
    for (unsigned i = 0; i < model->processes; i++) {
        if (thread_of(i) != thread) continue;
        release_rest(&processes[i]);
        tally->operations += processes[i].handled;
        tally->checksum += processes[i].result;
    }
    desk_clear(thread);
}

static void average_join(struct average *sum, const struct average *one) {
    sum->ticks += one->ticks;
    sum->samples += one->samples;
    sum->left_out += one->left_out;
}

static double average_ns(const struct average *average) { return timing_group_mean_ns(&scale, average->ticks, average->samples, GROUP); }

static void prepare(void) {
    processes = aligned_alloc(CACHE_LINE_BYTES, model->processes * sizeof *processes);
    if (!processes) load_fail("no memory for the processes");
    memset(processes, 0, model->processes * sizeof *processes);
    for (unsigned i = 0; i < model->processes; i++) {
        struct process *process = &processes[i];
        process->index = i;
        process->thread = thread_of(i);
        process->rng = rng_seed(i);
        atomic_init(&process->clock, 0);
    }
    for (unsigned i = 0; i < model->processes; i++) model->prepare(&processes[i]);
}

int main(int argc, char **argv) {
    if (argc != 5) load_fail("usage: vh_simulate tandem|superping METHOD THREADS SCALE_PERCENT");
    model = !strcmp(argv[1], tandem_model.name) ? &tandem_model : !strcmp(argv[1], superping_model.name) ? &superping_model : NULL;
    thread_count = (unsigned)strtoul(argv[3], NULL, 10);
    unsigned long scale_percent = strtoul(argv[4], NULL, 10);
    if (!model || !thread_count || thread_count > THREADS_LIMIT || !scale_percent) load_fail("an argument is not allowed");
    method = method_named(argv[2]);
    end_time = model->end_time * (double)scale_percent / 100;

    method->start(thread_count, sizeof(struct event));
    if (pthread_barrier_init(&all_done, NULL, thread_count)) load_fail("pthread_barrier_init failed");
    timing_be_parallel();
    scale = timing_measure();
    left_out_ticks = (uint64_t)(LEFT_OUT_NS / scale.ns_per_tick);
    prepare();
    uint64_t start_ns = load_clock_ns();
    struct tally total = load_threads(thread_count, simulate, NULL);
    uint64_t elapsed_ns = load_clock_ns() - start_ns;

    struct average allocation = {0}, release = {0};
    uint64_t allocated = 0, released = 0;
    for (unsigned i = 0; i < thread_count; i++) {
        average_join(&allocation, &desks[i].allocation);
        average_join(&release, &desks[i].release);
        allocated += desks[i].allocated;
        released += desks[i].released;
    }
    if (allocated != released) load_fail("events were lost");
    printf("{\"events\": %" PRIu64 ", \"check\": \"%016" PRIx64 "\", \"requests\": %" PRIu64 ", \"samples\": %" PRIu64 ", \"left_out\": %" PRIu64
           ", \"seconds\": %.6f, \"group\": %u, \"allocation_ns\": %.3f, \"release_ns\": %.3f, \"blocks\": %" PRIu64 ", \"global_accesses\": %" PRIu64
           "}\n",
           total.operations, total.checksum, allocated + released, allocation.samples, allocation.left_out + release.left_out,
           (double)elapsed_ns / 1e9, GROUP, average_ns(&allocation), average_ns(&release), method->blocks_made(), method->global_accesses());
    method->end();
    free(processes);
    return fflush(stdout) ? 2 : 0;
}
