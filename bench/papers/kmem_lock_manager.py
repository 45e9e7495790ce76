"""kmem, section 4.4: miss rates of each layer under a lock manager for transactions."""

from collections.abc import Callable

from frame.experiment import Claim, Context, Published, Result, Series, main, same

CPUS = 8
NAMES = {"kmem": "the paper's layers", "strata": "strata"}
WAYS = {"alloc": "allocations", "free": "frees"}
# The sizes that the paper names, and its worst cases for them: one in 10, one in 15.
PAPER_SIZES = (256, 512)
CPU_WORST, GLOBAL_WORST = 100 / 10, 100 / 15
COMBINED_PUBLISHED = {"least": 0.02, "most": 0.14}
PANELS: dict[str, tuple[Callable[[dict], float], dict[str, tuple[int, float]]]] = {
    "from the CPUs' caches to the global layer": (lambda way: percent(way["global"], way["requests"]), {"free": (256, 2.1), "alloc": (512, 7.8)}),
    "from the global layer to the coalescing layer": (
        lambda way: percent(way["coalescing"], way["global"]),
        {"free": (256, 1.2), "alloc": (512, 3.0)},
    ),
    "from the program to the coalescing layer": (
        lambda way: percent(way["coalescing"], way["requests"]),
        {"free": (256, COMBINED_PUBLISHED["least"]), "alloc": (512, COMBINED_PUBLISHED["most"])},
    ),
}


def percent(part: float, whole: float) -> float:
    return 100 * part / whole if whole else 0.0


def measure(context: Context) -> Result:
    transactions = context.choose(2_000_000, 100_000)
    runs = {name: context.run("kmem_lock_manager", name, CPUS, transactions) for name in NAMES}
    same("what the lock manager did", [(run["transactions"], run["waits"], run["messages"]) for run in runs.values()])
    to_global, of_global, combined = (of for of, _ in PANELS.values())

    def ways(name: str) -> list[dict]:
        return [one[way] for one in runs[name]["sizes"] for way in WAYS if one["bytes"] in PAPER_SIZES]

    measured, published = [], []
    for panel, (of, points) in PANELS.items():
        for name, title in NAMES.items():
            for way, what in WAYS.items():
                measured.append(Series(f"{title}, {what}", [(one["bytes"], of(one[way])) for one in runs[name]["sizes"]], panel))
        published += [Series(what, [points[way]], panel) for way, what in WAYS.items()]
    holds = []
    for name, title in NAMES.items():
        most = max(combined(way) for way in ways(name))
        holds += [
            Claim(
                f"{title}: at most one request in 10 comes to the global layer, and some do (256 and 512 bytes)",
                "section 4.4",
                all(0 < to_global(way) <= CPU_WORST for way in ways(name)),
            ),
            Claim(
                f"{title}: the visits of the coalescing layer are diluted by 700 at least: {COMBINED_PUBLISHED['most']}% of requests "
                f"(found: at most {most:.4f}%)",
                "section 4.4",
                most <= COMBINED_PUBLISHED["most"],
            ),
        ]
    holds.append(
        Claim(
            "the paper's layers: at most one visit of the global layer in 15 goes on to the coalescing layer (256 and 512 bytes)",
            "section 4.4",
            all(of_global(way) <= GLOBAL_WORST for way in ways("kmem")),
        )
    )
    run = runs["kmem"]
    return Result(
        id="kmem/section-4-4",
        title="A lock manager: misses of each layer",
        unit="%",
        x_label="block size, bytes",
        x_log=True,
        published=[
            Published("to the global layer at worst, by the target of 10", CPU_WORST, "%", "section 4.4"),
            Published("from there to the coalescing layer at worst, by a gbltarget of 15", 6.7, "%", "section 4.4"),
            Published("both together", 0.67, "%", "section 4.4"),
        ],
        published_curves=published,
        measured=measured,
        holds=holds,
        note=(
            f"{run['transactions']:,} transactions of up to 24 locks by servers on {CPUS} virtual CPUs; {run['waits']:,} requests had to wait, "
            f"{run['messages']:,} came from another node. The paper says of its lock manager no more than which sizes missed most and least: 512 bytes "
            "are a resource here, 256 a lock, and 128 a message, which one CPU allocates and another frees. Its layers are built from its "
            "sections 3.3.1 to 3.3.3, with targets of 10 and 15, and flush nothing; strata is the library's code on its simulated machine, with "
            "its defaults: arrays of 32 to 256 objects, half of which move at a time. Its depot holds 32 KiB or a sixteenth of a size, its slabs "
            "are the coalescing layer."
        ),
    )


if __name__ == "__main__":
    main(measure)
