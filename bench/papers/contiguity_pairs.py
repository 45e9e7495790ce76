"""contiguity, section 2: what placement by mobility costs an allocation of frames and its free, on one CPU and on two."""

from frame.experiment import Claim, Context, Published, Result, Series, interleaved, main

RUNS = {1: "order 0", 512: "order 9"}
MOBILITIES = ("unmovable", "reclaimable", "movable")
# strata's own bar: ns of a pair on one CPU, and what two CPUs do of the work of one.
NS_MAX = {1: 50, 512: 100}
TWO_CPUS_MIN = 1.8


def listed(values: dict, frames: int, form: str) -> str:
    return ", ".join(f"{mobility} {values[frames, mobility]:{form}}" for mobility in MOBILITIES)


def measure(context: Context) -> Result:
    context.several_cpus()
    pairs = context.choose(5_000_000, 200_000)
    counts = (1, 2)
    jobs = {
        (frames, mobility, threads): lambda frames=frames, mobility=mobility, threads=threads: context.run("contiguity_pairs", frames, threads, pairs, mobility)
        for frames in RUNS
        for mobility in MOBILITIES
        for threads in counts
    }
    # The best of several runs: what disturbs a loop of nanoseconds is not its own.
    runs = interleaved(context.choose(9, 3), jobs)
    ns = {key: min(run["ns_per_pair"] for run in done) for key, done in runs.items()}
    cpu_ns = {key: min(run["cpu_ns_per_pair"] for run in done) for key, done in runs.items()}
    one = {(frames, mobility): ns[frames, mobility, 1] for frames in RUNS for mobility in MOBILITIES}
    gain = {(frames, mobility): 2 * ns[frames, mobility, 1] / ns[frames, mobility, 2] for frames in RUNS for mobility in MOBILITIES}
    worst = {frames: max(one[frames, mobility] for mobility in MOBILITIES) for frames in RUNS}
    least = {frames: min(gain[frames, mobility] for mobility in MOBILITIES) for frames in RUNS}

    def course(values: dict, frames: int, mobility: str) -> list[tuple[float, float]]:
        return [(threads, values[frames, mobility, threads]) for threads in counts]

    return Result(
        id="contiguity/section-2",
        title="Frames: an allocation and its free",
        unit="ns of the slowest thread's time",
        x_label="threads",
        published=[Published("mobility types that memory is grouped by", len(MOBILITIES), "", "section 2.1")],
        panel_x_labels={"two CPUs against one": "; ".join(f"{number} {mobility}" for number, mobility in enumerate(MOBILITIES, 1))},
        panel_units={"two CPUs against one": "times the work"},
        measured=[
            *[Series(f"{name}, {mobility}", course(ns, frames, mobility), "a pair, by the clock") for frames, name in RUNS.items() for mobility in MOBILITIES],
            *[
                Series(f"{name}, {mobility}", course(cpu_ns, frames, mobility), "a pair, of processor time")
                for frames, name in RUNS.items()
                for mobility in MOBILITIES
            ],
            *[
                Series(name, [(number, gain[frames, mobility]) for number, mobility in enumerate(MOBILITIES, 1)], "two CPUs against one")
                for frames, name in RUNS.items()
            ],
        ],
        holds=[
            *[
                Claim(
                    f"a pair of {name} takes at most {NS_MAX[frames]} ns by the clock on one CPU, whatever the mobility ({listed(one, frames, '.1f')} ns)",
                    "strata's own bar",
                    worst[frames] <= NS_MAX[frames],
                )
                for frames, name in RUNS.items()
            ],
            *[
                Claim(
                    f"two CPUs do at least {TWO_CPUS_MIN} times the work of one, {name}, whatever the mobility ({listed(gain, frames, '.2f')} times)",
                    "strata's own bar",
                    least[frames] >= TWO_CPUS_MIN,
                )
                for frames, name in RUNS.items()
            ],
        ],
        note=f"A simulated zone of 1 GiB, {pairs:,} pairs a thread, the slowest thread, the best of several runs taken by turns. The clock goes on while a thread waits for a lock "
        "or its CPU is another's, so that a busy machine shows more of it than of processor time.",
    )


if __name__ == "__main__":
    main(measure)
