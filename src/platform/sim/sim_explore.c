/*
 * sim_explore.c - runs a scenario under every schedule that differs from the plain one in at most so many choices.
 *
 * A schedule is a list of deviations: choices other than 0 at numbered points. The schedules with one deviation more than a given one
 * are found by running that one and looking at which points came after its last deviation, and what could be chosen there. So all
 * schedules with n deviations form a tree n deep, walked once for each n; the inner nodes are run again for that, which is little
 * beside the leaves, and the first failure found is one with the fewest deviations.
 */
#include <string.h>

#include "platform/sim/sim_internal.h"

struct walk {
    struct sim_exploration *exploration;
    struct sim_deviation deviations[SIM_DEVIATIONS_MAX];
    uint8_t *logs[SIM_DEVIATIONS_MAX]; /* of the inner node at each depth */
    uint64_t log_bytes[SIM_DEVIATIONS_MAX];
    unsigned count;    /* deviations of the run under way */
    const char *wrong; /* what the scenario returned */
    bool cut;          /* runs_limit was reached */
};

static void call_scenario(void *argument) {
    struct walk *walk = argument;
    sim_cpu_explore(walk->deviations, walk->count);
    walk->wrong = walk->exploration->scenario(walk->exploration->context);
}

static void describe_failure(struct walk *walk, unsigned count, const char *wrong) {
    struct sim_exploration *exploration = walk->exploration;
    size_t room = sizeof exploration->failure;
    size_t length = format_text(exploration->failure, room, "%s [choices:", wrong);
    for (unsigned i = 0; i < count && length < room; i++)
        length += format_text(exploration->failure + length, room - length, " %llu:%u", (unsigned long long)walk->deviations[i].point,
                              walk->deviations[i].choice);
    if (length < room) format_text(exploration->failure + length, room - length, "]");
}

/* One run with the first `count` deviations. */
static bool run(struct walk *walk, unsigned count) {
    struct sim_exploration *exploration = walk->exploration;
    uint64_t points;
    walk->wrong = NULL;
    walk->count = count;
    bool dead = sim_dies(call_scenario, walk);
    sim_cpu_explore_end();
    sim_cpu_explored(&points);
    exploration->points = max_u64(exploration->points, points);
    if (dead)
        walk->wrong = sim_output();
    else if (walk->wrong == NULL && !sim_cpu_explored_all())
        walk->wrong = "the scenario differs between runs: it ended before the last choice";
    if (walk->wrong != NULL) describe_failure(walk, count, walk->wrong);
    return walk->wrong == NULL;
}

/* Runs all schedules with exactly `total` deviations that begin with the first `count`. */
static bool walk_tree(struct walk *walk, unsigned count, unsigned total) {
    struct sim_exploration *exploration = walk->exploration;
    if (count == total) {
        if (exploration->runs_limit != 0 && exploration->runs == exploration->runs_limit) {
            walk->cut = true;
            return false;
        }
        exploration->runs++;
        return run(walk, count);
    }
    if (!run(walk, count)) return false;
    uint64_t points;
    const uint8_t *log = sim_cpu_explored(&points);
    if (points > walk->log_bytes[count]) {
        walk->log_bytes[count] = align_up(points, MIB);
        walk->logs[count] = sim_table_map(walk->log_bytes[count]);
    }
    memcpy(walk->logs[count], log, points);
    for (uint64_t point = count == 0 ? 0 : walk->deviations[count - 1].point + 1; point < points; point++) {
        uint8_t entry = walk->logs[count][point];
        unsigned first = (entry & SIM_POINT_CAN_ABORT) != 0 && !exploration->aborts ? 2 : 1;
        for (unsigned choice = first; choice < (entry & ~(unsigned)SIM_POINT_CAN_ABORT); choice++) {
            walk->deviations[count] = (struct sim_deviation){point, choice};
            if (!walk_tree(walk, count + 1, total)) return false;
        }
    }
    return true;
}

bool sim_explore(struct sim_exploration *exploration) {
    static struct walk walk; /* keeps its logs from one exploration to the next */
    walk.exploration = exploration;
    walk.cut = false;
    exploration->runs = 0;
    exploration->points = 0;
    exploration->failure[0] = 0;
    if (exploration->deviations > SIM_DEVIATIONS_MAX)
        fatal("sim: sim_explore: deviations = %u; at most %u", exploration->deviations, SIM_DEVIATIONS_MAX);
    for (unsigned total = 0; total <= exploration->deviations; total++)
        if (!walk_tree(&walk, 0, total)) return false;
    return true;
}

/* A number at *text, which is moved behind it. */
static uint64_t parse_number(const char **text) {
    uint64_t value = 0;
    if (**text < '0' || **text > '9') fatal("sim: sim_explore_replay: \"%s\"; as in \"12:1 40:2\"", *text);
    for (; **text >= '0' && **text <= '9'; (*text)++) value = value * 10 + (uint64_t)(**text - '0');
    return value;
}

bool sim_explore_replay(struct sim_exploration *exploration, const char *choices) {
    struct walk walk = {.exploration = exploration};
    unsigned count = 0;
    while (*choices != 0) {
        if (count == SIM_DEVIATIONS_MAX) fatal("sim: sim_explore_replay: at most %u choices", SIM_DEVIATIONS_MAX);
        walk.deviations[count].point = parse_number(&choices);
        if (*choices == ':') choices++;
        walk.deviations[count++].choice = (unsigned)parse_number(&choices);
        while (*choices == ' ') choices++;
    }
    exploration->runs = 1;
    exploration->points = 0;
    exploration->failure[0] = 0;
    return run(&walk, count);
}
