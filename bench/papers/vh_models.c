/*
 * vh_models.c - the two simulations of section 4 of the VH paper.
 *
 * Tandem: a source, and 17 stages of 4 servers each; a job passes through all of them, and waits where no server is free. Super-ping: 1,000 LPs
 * that send pings to each other. The paper's figure 2 shows the topology only as a drawing and gives no rates; the choices here are marked as ours.
 */
#include "vh_simulate.h"

/* Section 4: "17 stages while each stage has 4 servers". */
#define STAGES 17
#define SERVERS 4
/* Ours: four servers are four fifths busy. */
#define SERVICE_MEAN 1.0
#define ARRIVAL_MEAN (SERVICE_MEAN / (0.8 * SERVERS))
/* Ours: how far the source may be ahead of the last stage; bounds the events that exist at a time. */
#define SOURCE_AHEAD 200.0

/* Section 4. */
#define PINGERS 1000
/* Ours: a ring, pings to either neighbour, as many and as far between as follows. */
#define PINGS_EACH 4
#define PING_DELAY_MEAN 1.5

enum { NEW_JOB, ARRIVAL, DEPARTURE, PING };

static void tandem_prepare(struct process *process) {
    process->waiting_end = &process->waiting;
    process->inputs[0] = process + (process->index ? -1 : STAGES - 1);
    process->input_count = 1;
    if (process->index == 0) {
        process->slack = SOURCE_AHEAD;
        process_send(process, 0, process_exponential(process, ARRIVAL_MEAN), NEW_JOB, 0);
    }
}

static void serve(struct process *stage, double now, uint64_t job) {
    process_send(stage, stage->index, now + process_exponential(stage, SERVICE_MEAN), DEPARTURE, job);
}

static int arrive(struct process *stage, struct event *event) {
    if (stage->busy < SERVERS) {
        stage->busy++;
        serve(stage, event->time, event->subject);
        return 1;
    }
    event->next = NULL;
    *stage->waiting_end = event;
    stage->waiting_end = &event->next;
    return 0;
}

static struct event *tandem_give_up(struct process *stage) {
    struct event *event = stage->waiting;
    if (event && !(stage->waiting = event->next)) stage->waiting_end = &stage->waiting;
    return event;
}

static int depart(struct process *stage, struct event *event) {
    if (stage->index + 1 < STAGES) process_send(stage, stage->index + 1, event->time + LOOKAHEAD, ARRIVAL, event->subject);
    struct event *next = tandem_give_up(stage);
    if (next) {
        serve(stage, event->time, next->subject);
        process_release(stage, next);
    } else {
        stage->busy--;
    }
    return 1;
}

static int tandem_handle(struct process *stage, struct event *event) {
    switch (event->kind) {
    case NEW_JOB:
        process_send(stage, 0, event->time + process_exponential(stage, ARRIVAL_MEAN), NEW_JOB, event->subject + 1);
        process_send(stage, 0, event->time, ARRIVAL, event->subject);
        return 1;
    case ARRIVAL: return arrive(stage, event);
    default: return depart(stage, event);
    }
}

static void superping_prepare(struct process *process) {
    process->inputs[0] = process->index ? process - 1 : process + (PINGERS - 1);
    process->inputs[1] = process->index + 1 < PINGERS ? process + 1 : process - (PINGERS - 1);
    process->input_count = 2;
    for (uint64_t i = 0; i < PINGS_EACH; i++)
        process_send(process, process->index, process_exponential(process, PING_DELAY_MEAN), PING, process->index * PINGS_EACH + i);
}

static int superping_handle(struct process *process, struct event *event) {
    unsigned step = rng_next(&process->rng) >> 63 ? 1 : PINGERS - 1;
    double delay = LOOKAHEAD + process_exponential(process, PING_DELAY_MEAN);
    process_send(process, (process->index + step) % PINGERS, event->time + delay, PING, event->subject);
    return 1;
}

static struct event *nothing_kept(struct process *process) {
    (void)process;
    return NULL;
}

const struct model tandem_model = {"tandem", STAGES, 20000, tandem_prepare, tandem_handle, tandem_give_up};
const struct model superping_model = {"superping", PINGERS, 1000, superping_prepare, superping_handle, nothing_kept};
