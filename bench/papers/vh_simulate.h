/*
 * vh_simulate.h - a parallel discrete-event simulator whose events come from the allocator under test, and what a model of it is.
 *
 * A model is a set of logical processes (LPs) that send each other events with times. Every message is dated at least LOOKAHEAD after the event that
 * caused it, so an LP knows from the clocks of those that send to it up to which time nothing further can arrive: its safe time.
 */
#ifndef STRATA_PAPERS_VH_SIMULATE_H
#define STRATA_PAPERS_VH_SIMULATE_H

#include <stdatomic.h>
#include <stdint.h>

#include "load.h"

#define LOOKAHEAD 0.5
#define INPUTS_MAX 2

struct event {
    struct event *next; /* in an inbox or a queue of the model */
    double time;
    uint64_t subject;  /* the model's: which job, which ping */
    uint64_t sequence; /* of its sender; with it and `sender`, events of one time have an order */
    uint32_t sender;
    uint32_t kind;
    uint64_t seal; /* of all of the above but next: memory that was handed out twice does not keep it */
};

struct process;

struct model {
    const char *name;
    unsigned processes;
    double end_time; /* at --scale 100 */
    void (*prepare)(struct process *process);
    /* Deals with an event. Returns whether the event is done with; if not, the model keeps it. */
    int (*handle)(struct process *process, struct event *event);
    /* Takes back an event that the model kept, at the end of the simulation; NULL where there is none. */
    struct event *(*give_up)(struct process *process);
};

/* One LP. Of the thread that simulates it, but for `clock` and `inbox`. */
struct process {
    _Alignas(CACHE_LINE_BYTES) _Atomic double clock; /* no message from this LP will be dated earlier */
    _Atomic(struct event *) inbox;                   /* pushed by senders, taken as a whole */
    _Alignas(CACHE_LINE_BYTES) unsigned index;
    unsigned thread;
    unsigned input_count;
    struct process *inputs[INPUTS_MAX];
    double slack;   /* added to the clocks of the inputs: 0 but for a source, which must not run away from the rest */
    double reached; /* the safe time of the step before */
    struct rng rng;
    uint64_t sequence;
    uint64_t handled;
    uint64_t result; /* depends on all events of this LP and their order */
    int done;
    struct event **heap; /* by time, least first */
    size_t heap_count, heap_room;
    /* The model's. */
    unsigned busy;
    struct event *waiting, **waiting_end;
};

/* Sends an event to `target`, which may be the sender itself; for others, `time` is LOOKAHEAD after the event being handled, or more. */
void process_send(struct process *sender, unsigned target, double time, uint32_t kind, uint64_t subject);

/* Exponentially distributed, from the LP's own generator. */
double process_exponential(struct process *process, double mean);

/* Ends an event that a model kept. */
void process_release(struct process *process, struct event *event);

extern const struct model tandem_model, superping_model;

#endif
