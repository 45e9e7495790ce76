"""magazines, section 3.8, beyond this machine: visits and locks of the same code on up to 4,096 virtual CPUs, and the speed-up that a model predicts."""

import scaling_model as model
from frame.experiment import Claim, Context, Published, Result, Series, main, median

# Loads of scaling_load.h; the last one has its arrays closed.
LOADS = {
    "pairs": "best case: a pair in a loop",
    "bursts": "bursts beyond the arrays, one size",
    "mixed": "bursts of mixed sizes",
    "passed": "all blocks passed to a neighbour",
    "none": "best case without magazines",
}
# Those that scaling_constants.c runs on threads of this machine, for the model's constants and for comparison.
ABOVE_SLABS, TO_SLABS = ("pairs", "bursts"), ("mixed",)
ON_THREADS = (*ABOVE_SLABS, *TO_SLABS)
# Those for which visits are counted once more where they take time, so that CPUs find depots' locks taken and arrays grow.
CONTENDED = ("bursts", "passed")
VISITS_FALL = 0.75
# A visit then keeps its lock for as long as so many operations in an array take; a figure of a quiet machine, as counts are not to depend on today's.
HELD_OPERATIONS = 12
# Half of the smallest array that moves here, one that a depot gives 64-byte blocks to.
TRANSFER = 64
LINEAR_SHARE = 0.99
# Up to so many CPUs that work for themselves have a shelf each, and meet nobody there (src/cache/shelf.c).
SHELVES = 8
PREDICTION_SLACK = 0.3
# A program that does something with its blocks: so much of its own work for each operation, beside the worst load's visits.
WORK_NS = 1000
SPEED_UP, VISITS, SLAB_VISITS, HANDED_OVER = "predicted speed-up", "visits of depots", "visits of slabs", "locks taken after another CPU"


def measure(context: Context) -> Result:
    most = context.several_cpus()
    counts_of_cpus = context.choose([1 << power for power in range(13)], [1, 2, 64, 512])
    cpu_counts = sorted({*counts_of_cpus, most})
    milliseconds = context.choose(1000, 100)
    repetitions = context.choose(5, 3)

    constants_runs = [context.run("scaling_constants", "constants") for _ in range(repetitions)]
    # The least: whatever else a machine does, it makes nothing faster.
    constants = model.Constants(**{name: min(one[name] for one in constants_runs) for name in constants_runs[0]})
    threads = {
        (load, count): [context.run("scaling_constants", load, count, milliseconds) for _ in range(repetitions)]
        for load in ON_THREADS
        for count in (1, most)
    }

    def visits(load: str, cpus: int, held: int | None = None) -> model.Counts:
        operations = max(context.choose(2000, 250), context.choose(400_000, 40_000) // cpus)
        kind, arrays = ("pairs", "none") if load == "none" else (load, "magazines")
        return model.counts_of(context.run("scaling_visits", kind, cpus, operations, arrays, *([held] if held else [])))

    counts = {(load, cpus): visits(load, cpus) for load in LOADS for cpus in cpu_counts}
    contended = {(load, cpus): visits(load, cpus, HELD_OPERATIONS) for load in CONTENDED for cpus in cpu_counts}

    def own_ns(load: str) -> float:
        if load not in ON_THREADS:
            return constants.fast_ns
        return model.own_ns(median(threads[load, 1], "ns_per_operation"), counts[load, 1], constants)

    def hold_share(load: str) -> float:
        return model.hold_share(median(threads[load, 1], "ns_per_operation"), counts[load, 1], constants) if load in ON_THREADS else 1

    def rate(load: str, cpus: int) -> float:
        return model.throughput(own_ns(load), model.demands(counts[load, cpus], constants, hold_share(load)), cpus)

    speed_up = {(load, cpus): rate(load, cpus) / rate(load, 1) for load in LOADS for cpus in cpu_counts}
    measured_speed_up = {
        load: median(threads[load, most], "operations_per_second") / median(threads[load, 1], "operations_per_second") for load in ON_THREADS
    }
    last = cpu_counts[-1]

    def with_work(cpus: int) -> float:
        return model.throughput(own_ns("bursts") + WORK_NS, model.demands(counts["bursts", cpus], constants, hold_share("bursts")), cpus)

    def curves(panel: str, of) -> list[Series]:
        return [Series(title, [(cpus, of(load, cpus)) for cpus in cpu_counts], panel) for load, title in LOADS.items()]

    busiest = ", ".join(f"{load}: {model.busiest_layer(counts[load, last], constants)}" for load in LOADS if counts[load, last].locks)

    def found(loads: tuple[str, ...]) -> str:
        return ", ".join(f"{load} {measured_speed_up[load]:.2f} for {speed_up[load, most]:.2f}" for load in loads)

    return Result(
        id="magazines/section-3-8-many-cpus",
        title="Scaling beyond this machine: visits, locks and a prediction",
        unit="times one CPU",
        x_label="virtual CPUs",
        x_log=True,
        y_log=True,
        published=[
            Published("throughput of 16 CPUs, with magazines, against one", 16, "times", "section 3.8"),
            Published("throughput of 16 CPUs, with against without", 340, "times", "section 3.8"),
        ],
        panel_units={VISITS: "of an operation", SLAB_VISITS: "of an operation", HANDED_OVER: "of an operation"},
        measured=[
            *curves(SPEED_UP, lambda load, cpus: speed_up[load, cpus]),
            Series(f"bursts, one size, {WORK_NS:,} ns of work each", [(cpus, with_work(cpus) / with_work(1)) for cpus in cpu_counts], SPEED_UP),
            *curves(VISITS, lambda load, cpus: counts[load, cpus].depot_visits),
            *(
                Series(f"{LOADS[load]}; locks found taken", [(cpus, contended[load, cpus].depot_visits) for cpus in cpu_counts], VISITS)
                for load in CONTENDED
            ),
            *curves(SLAB_VISITS, lambda load, cpus: counts[load, cpus].slab_visits),
            *curves(HANDED_OVER, lambda load, cpus: counts[load, cpus].handed_over()),
        ],
        holds=[
            Claim(
                f"in the best case no CPU meets another: no lock is taken on {last:,} CPUs, and the speed-up is linear",
                "section 3.8",
                not counts["pairs", last].locks and speed_up["pairs", last] >= LINEAR_SHARE * last,
            ),
            Claim(
                f"without magazines throughput ends at a few CPUs: never 16 times that of one (at most {max(speed_up['none', n] for n in cpu_counts):.1f})",
                "section 3.8",
                all(speed_up["none", cpus] < 16 for cpus in cpu_counts),
            ),
            Claim(
                f"bursts and blocks that are passed on come to the depot at most once in {TRANSFER} operations, on any number of CPUs",
                "section 3.1; VH, theorem 2.5",
                all(counts[load, cpus].depot_visits <= 1 / TRANSFER * 1.01 for load in ("bursts", "passed") for cpus in cpu_counts),
            ),
            Claim(
                f"where CPUs find the depot's lock taken arrays grow, and visits become less than {VISITS_FALL:.0%} of what they were: blocks that are passed on from 2, bursts from {SHELVES * 2} to {last:,} CPUs",
                "section 3.4",
                all(
                    contended[load, cpus].depot_visits < VISITS_FALL * counts[load, cpus].depot_visits
                    for load in CONTENDED
                    for cpus in cpu_counts
                    if cpus > (1 if load == "passed" else SHELVES)
                ),
            ),
            Claim(
                f"up to {SHELVES} CPUs whose bursts are their own find no lock taken, once they have met in the depot",
                "section 3.4",
                all(contended["bursts", cpus].contention == 0 for cpus in cpu_counts if cpus <= SHELVES),
            ),
            *(
                Claim(
                    f"{title}: linear scaling to any number of CPUs ({last:,}: {speed_up[load, last]:,.0f} times)",
                    "section 3.10",
                    speed_up[load, last] >= LINEAR_SHARE * last,
                )
                for load, title in LOADS.items()
                if load in ("bursts", "mixed", "passed")
            ),
            Claim(
                f"the model predicts what {most} CPUs of this machine do with arrays and depots, to within {PREDICTION_SLACK:.0%} (measured, and predicted: "
                f"{found(ABOVE_SLABS)})",
                "this experiment",
                all(abs(measured_speed_up[load] / speed_up[load, most] - 1) <= PREDICTION_SLACK for load in ABOVE_SLABS),
            ),
            Claim(
                f"where a load comes to slabs and zone it is an upper bound (measured, and predicted: {found(TO_SLABS)})",
                "this experiment",
                all(measured_speed_up[load] <= speed_up[load, most] for load in TO_SLABS),
            ),
        ],
        note=(
            "The library's own code on its simulated machine, in which a CPU drawn at random makes the next operation. The model (its definition: "
            "docs/scaling.md) is a closed network of queues, one a lock, solved by mean value analysis for as many customers as CPUs. Its constants, measured "
            f"here: an operation in the CPU's array {constants.fast_ns:.1f} ns, a visit of the depot {constants.depot_ns:.0f} ns, of slabs "
            f"{constants.slab_ns:.0f} ns, of the zone {constants.zone_ns:.0f} ns, the way of a cache line to another CPU {constants.line_ns:.0f} ns. The "
            "program's own work is what one thread was measured to need for an operation beside its visits; for blocks that are passed on and for the "
            "case without magazines it is none, which is the hardest case. Where locks are found taken a visit keeps its lock for as long as "
            f"{HELD_OPERATIONS} operations take, and ticks come before the counting; that is not in the model. Bursts here are the worst that a program can do to "
            "a depot: all CPUs go up and down by more than their arrays hold, in one size, and do nothing else. Then one depot serves as many CPUs as an operation is longer "
            f"than its share of a visit under the lock. The layer whose lock is busiest on {last:,} CPUs: {busiest}."
        ),
    )


if __name__ == "__main__":
    main(measure)
