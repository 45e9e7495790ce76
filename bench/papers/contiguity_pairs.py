"""contiguity, section 2: what placement by mobility costs an allocation of frames and its free, on one CPU and on two; and with owners and reclaim."""

from frame.experiment import Claim, Context, Published, Result, Series, interleaved, main

RUNS = {1: "order 0", 512: "order 9"}
MOBILITIES = ("unmovable", "reclaimable", "movable")
# What runs are to their zone; unmovable ones are never asked about.
OWNED = {"owned": "with an owner", "reclaim": "with an owner, reclaim on"}
OWNED_MOBILITIES = ("reclaimable", "movable")
# Runs that a thread holds, where what comes has left the batches before it goes, so that each is listed.
HELD = 256
# strata's own bar: ns of a pair on one CPU, and what two CPUs do of the work of one.
NS_MAX = {1: 50, 512: 100}
TWO_CPUS_MIN = 1.8


def listed(values: dict, frames: int, form: str) -> str:
    return ", ".join(f"{mobility} {values[frames, mobility, 'bare']:{form}}" for mobility in MOBILITIES)


def measure(context: Context) -> Result:
    context.several_cpus()
    pairs = context.choose(1_000_000, 200_000)
    counts = (1, 2)
    kinds = [(frames, mobility, "bare") for frames in RUNS for mobility in MOBILITIES]
    owned = [(frames, mobility, form) for form in OWNED for frames in RUNS for mobility in OWNED_MOBILITIES]
    jobs = {
        (frames, mobility, form, threads): lambda frames=frames, mobility=mobility, form=form, threads=threads: context.run(
            "contiguity_pairs", frames, threads, pairs, mobility, form
        )
        for frames, mobility, form in kinds + owned
        for threads in counts
    }
    jobs |= {
        (form, threads): lambda form=form, threads=threads: context.run("contiguity_pairs", 1, threads, pairs, "movable", form, HELD)
        for form in OWNED
        for threads in counts
    }
    # The best of several runs: what disturbs a loop of nanoseconds is not its own.
    runs = interleaved(context.choose(9, 3), jobs)
    ns = {key: min(run["ns_per_pair"] for run in done) for key, done in runs.items()}
    cpu_ns = {key: min(run["cpu_ns_per_pair"] for run in done) for key, done in runs.items()}
    one = {kind: ns[(*kind, 1)] for kind in kinds + owned}
    gain = {kind: 2 * ns[(*kind, 1)] / ns[(*kind, 2)] for kind in kinds + owned}
    gain_held = {form: 2 * ns[form, 1] / ns[form, 2] for form in OWNED}
    worst = {(frames, of_owner): max(one[kind] for kind in (owned if of_owner else kinds) if kind[0] == frames) for frames in RUNS for of_owner in (False, True)}
    least = {(frames, of_owner): min(gain[kind] for kind in (owned if of_owner else kinds) if kind[0] == frames) for frames in RUNS for of_owner in (False, True)}

    def listed_owned(values: dict, frames: int, form: str) -> str:
        return "; ".join(f"{said}: " + ", ".join(f"{mobility} {values[frames, mobility, how]:{form}}" for mobility in OWNED_MOBILITIES) for how, said in OWNED.items())

    def name_of(frames: int, mobility: str, form: str) -> str:
        return f"{RUNS[frames]}, {mobility}" + (f", {OWNED[form]}" if form in OWNED else "")

    def course(values: dict, kind: tuple) -> list[tuple[float, float]]:
        return [(threads, values[(*kind, threads)]) for threads in counts]

    return Result(
        id="contiguity/section-2",
        title="Frames: an allocation and its free",
        unit="ns of the slowest thread's time",
        x_label="threads",
        published=[Published("mobility types that memory is grouped by", len(MOBILITIES), "", "section 2.1")],
        panel_x_labels={"two CPUs against one": "; ".join(f"{number} {mobility}" for number, mobility in enumerate(MOBILITIES, 1))},
        panel_units={"two CPUs against one": "times the work"},
        measured=[
            *[Series(name_of(*kind), course(ns, kind), "a pair, by the clock") for kind in kinds],
            *[Series(name_of(*kind), course(cpu_ns, kind), "a pair, of processor time") for kind in kinds],
            *[Series(name_of(*kind), course(ns, kind), "a pair of blocks that an owner may be asked about, by the clock") for kind in owned],
            *[Series(name_of(*kind), course(cpu_ns, kind), "a pair of blocks that an owner may be asked about, of processor time") for kind in owned],
            *[Series(said, [(threads, ns[form, threads]) for threads in counts], f"order 0, movable, {HELD} runs held, by the clock") for form, said in OWNED.items()],
            *[
                Series(name, [(number, gain[frames, mobility, "bare"]) for number, mobility in enumerate(MOBILITIES, 1)], "two CPUs against one")
                for frames, name in RUNS.items()
            ],
            *[
                Series(
                    f"{name}, {said}",
                    [(number, gain[frames, mobility, form]) for number, mobility in enumerate(MOBILITIES, 1) if mobility in OWNED_MOBILITIES],
                    "two CPUs against one",
                )
                for form, said in OWNED.items()
                for frames, name in RUNS.items()
            ],
        ],
        holds=[
            *[
                Claim(
                    f"a pair of {name} takes at most {NS_MAX[frames]} ns by the clock on one CPU, whatever the mobility ({listed(one, frames, '.1f')} ns)",
                    "strata's own bar",
                    worst[frames, False] <= NS_MAX[frames],
                )
                for frames, name in RUNS.items()
            ],
            *[
                Claim(
                    f"a pair of {name} takes at most {NS_MAX[frames]} ns with an owner, too, and with reclaim on ({listed_owned(one, frames, '.1f')} ns)",
                    "strata's own bar",
                    worst[frames, True] <= NS_MAX[frames],
                )
                for frames, name in RUNS.items()
            ],
            *[
                Claim(
                    f"two CPUs do at least {TWO_CPUS_MIN} times the work of one, {name}, whatever the mobility ({listed(gain, frames, '.2f')} times)",
                    "strata's own bar",
                    least[frames, False] >= TWO_CPUS_MIN,
                )
                for frames, name in RUNS.items()
            ],
            *[
                Claim(
                    f"two CPUs do at least {TWO_CPUS_MIN} times the work of one with an owner, too, and with reclaim on, {name} ({listed_owned(gain, frames, '.2f')} times)",
                    "strata's own bar",
                    least[frames, True] >= TWO_CPUS_MIN,
                )
                for frames, name in RUNS.items()
            ],
        ],
        note=f"A simulated zone of 1 GiB, {pairs:,} pairs a thread, the slowest thread, the best of several runs taken by turns. The clock goes on while a thread waits for a lock "
        "or its CPU is another's, so that a busy machine shows more of it than of processor time. With an owner a run has a note and a token; with reclaim on it also stands in a "
        f"list of the whole zone, unless it goes before the CPU's batch of such runs is full. Where a thread takes {HELD} runs and then gives them back, all are listed, and taken out of the list, "
        f"a batch at a time under one lock: two CPUs do {gain_held['reclaim']:.2f} times the work of one then, without reclaim {gain_held['owned']:.2f} times.",
    )


if __name__ == "__main__":
    main(measure)
