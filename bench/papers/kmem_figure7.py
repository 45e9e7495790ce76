"""kmem, figures 7 and 8: pairs of allocation and release a second, over the number of CPUs, against allocators behind one lock."""

from frame.experiment import (
    Claim,
    Context,
    Published,
    Result,
    Series,
    interleaved,
    main,
    median,
)

BLOCK_BYTES = 64
NAMES = {
    "cookie": "strata, cookies",
    "kmem": "strata, kmem_alloc and kmem_free",
    "strata": "strata, malloc and free",
    "mk": "McKusick-Karels, one lock",
    "first-fit": "first fit, one lock",
}
OURS = ("cookie", "kmem", "strata")
# A pair on n CPUs may cost this much more than on one before we say that the speedup is not linear.
LINEAR_SHARE = 0.8


def cpu_counts(cpus: int, quick: bool) -> list[int]:
    """1 to n; of many, those where the curve would show a bend."""
    if quick and cpus > 2:
        return [1, 2, cpus]
    if cpus <= 16:
        return list(range(1, cpus + 1))
    return sorted({1, 2, 4, *range(8, cpus + 1, max(1, cpus // 16)), cpus})


def measure(context: Context) -> Result:
    counts = cpu_counts(context.several_cpus(), context.quick)
    milliseconds = context.choose(1000, 100)

    def job(name: str, cpus: int):
        return lambda: context.run("best_case", name, cpus, milliseconds, BLOCK_BYTES)

    runs = interleaved(context.choose(5, 3), {(name, cpus): job(name, cpus) for name in NAMES for cpus in counts})
    rate = {key: median(done, "pairs_per_second") for key, done in runs.items()}
    most = counts[-1]
    slower = [name for name in NAMES if name not in OURS]
    return Result(
        id="kmem/figure-7-8",
        title="Best case: one block allocated and freed in a loop, on 1 to n CPUs",
        unit="pairs/s",
        x_label="CPUs",
        y_log=True,
        published=[
            Published("cookie interface against oldkma, 1 CPU", 15, "times", "section 4.2"),
            Published("cookie interface against oldkma, 25 CPUs (more than)", 1000, "times", "section 4.2"),
            Published("standard interface against cookie interface, roughly", 0.5, "times", "section 4.2"),
            Published("standard interface, 50 MHz 80486", 315062, "pairs/s", "table 1"),
            Published("standard interface, 450 MHz Xeon", 2486963, "pairs/s", "table 1"),
        ],
        measured=[Series(title, [(cpus, rate[name, cpus]) for cpus in counts]) for name, title in NAMES.items()],
        holds=[
            Claim(
                f"strata's speedup is linear, by each interface: {most} CPUs do at least {LINEAR_SHARE * most:g} times the pairs of one",
                "section 4.2, figure 7",
                all(rate[name, most] >= LINEAR_SHARE * most * rate[name, 1] for name in OURS),
            ),
            Claim(
                "cookies are faster than the standard interface, on any number of CPUs (on one: the latter does "
                f"{rate['kmem', 1] / rate['cookie', 1]:.2f} times the pairs)",
                "section 4.2, figure 7",
                all(rate["cookie", cpus] > rate["kmem", cpus] for cpus in counts),
            ),
            Claim(
                "the standard interface is roughly half as fast as cookies (0.35 to 0.65 times, on one CPU)",
                "section 4.2",
                0.35 <= rate["kmem", 1] / rate["cookie", 1] <= 0.65,
            ),
            Claim(
                "strata is faster than every allocator behind one lock, on any number of CPUs",
                "section 4.2, figure 8",
                all(rate[ours, cpus] > rate[name, cpus] for ours in OURS for cpus in counts for name in slower),
            ),
            Claim(
                "the allocators behind one lock do best on a single CPU",
                "section 4.2",
                all(rate[name, 1] >= rate[name, cpus] for cpus in counts for name in slower),
            ),
            Claim(
                "strata's lead grows with the CPUs",
                "section 4.2",
                all(rate["strata", most] / rate[name, most] > rate["strata", 1] / rate[name, 1] for name in slower),
            ),
        ],
        note=(
            f"Blocks of {BLOCK_BYTES} bytes; each is written and read, which takes its part of every pair. kmem_alloc and kmem_free are the paper's standard "
            "interface, whose caller says the size when it frees too; cookies are for a size that is known to the compiler. All three are calls of "
            "functions, where the paper's cookies were macros: what they save is one load from a table in an allocation, and two that depend on each "
            "other in a free. First fit stands for the paper's oldkma, which resembles Fast Fits: it is simpler, and in this benchmark, where one block is "
            "in use, it has next to nothing to search. The locks are mutexes that sleep, the paper's were spinlocks; on one CPU too they cost what they "
            "cost in a process of several threads."
        ),
    )


if __name__ == "__main__":
    main(measure)
