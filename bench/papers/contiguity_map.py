"""contiguity, figure 1: what lies in which superpage, with the standard placement and when grouped by mobility."""

from contiguity_runs import ALL, GROUPED_REGULAR, KINDS, STANDARD, Run, highalloc
from frame.experiment import Claim, Context, Map, Published, Result, Series, main

MAPS = {"map_before": "after some time", "map_rest": "asked for, at rest"}
WAYS = {"standard placement": STANDARD, "grouped by mobility": GROUPED_REGULAR, "with area reclaim, compaction and capture": ALL}
MIXED = "ru#"


def mixed_percent(cells: str) -> float:
    used = len(cells) - cells.count(".")
    return 100 * sum(cells.count(letter) for letter in MIXED) / max(1, used)


def measure(context: Context) -> Result:
    mib, warm_s = context.choose((1024, 120), (256, 60))
    runs = highalloc(context, {name: Run(way, mib, warm_s) for name, way in WAYS.items()})
    mixed = {name: mixed_percent(run["map_before"]) for name, run in runs.items()}
    return Result(
        id="contiguity/figure-1",
        title="Distribution of page types over superpages",
        unit="per cent of those in use",
        x_label="; ".join(f"{number} {name}" for number, name in enumerate(WAYS, 1)),
        published=[Published("reserve of whole areas", 2, "per cent of memory", "section 4")],
        maps=[Map(f"{name}: {text}", run[one]) for one, text in MAPS.items() for name, run in runs.items()],
        map_kinds=KINDS,
        measured=[Series("after some time", list(enumerate(mixed.values(), 1)), "superpages with more than one mobility")],
        holds=[
            Claim(
                f"areas hold pages of mixed types with the standard allocator (here {mixed['standard placement']:.0f} % of them)",
                "section 2.3, figure 1",
                mixed["standard placement"] >= 50,
            ),
            Claim(
                f"but of one type when grouped by mobility (here all but {mixed['grouped by mobility']:.1f} %, at most a tenth)",
                "section 2.3, figure 1",
                mixed["grouped by mobility"] <= 10,
            ),
        ],
        note=f"Each square is a superpage of 2 MiB, the first at the top left. {mib:,} MiB, simulated; the load of Highalloc-stress for {warm_s} s of its time; then "
        "superpages are asked for under load and at rest. The paper's picture is of a system that was booted and "
        "wrote a file of 32 MiB.",
    )


if __name__ == "__main__":
    main(measure)
