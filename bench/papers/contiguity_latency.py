"""contiguity, figures 4, 8 and 9: delays between superpages that are had, and what reclaim costs, by regular and by area reclaim.

Two times are told apart. The paper's (section 5.5, figure 9) goes from one success to the next: where superpages are asked for at a constant rate, as
there, it is at least about their period, however fast a request is; so what it has beyond that is shown, too. The other is the part of it that was spent
within requests, failed ones included: the latency of a request. Policies are compared where all else is the same.
"""

import math
from statistics import mean, pstdev

from contiguity_runs import ALL, GROUPED_AREA, GROUPED_REGULAR, Run, Way, highalloc, percent
from frame.experiment import Claim, Context, Published, Result, Series, main

WAYS = {
    "regular reclaim": GROUPED_REGULAR,
    "area reclaim": GROUPED_AREA,
    "area reclaim, capture": Way(grouped=True, reclaim="area", compact=False),
    "regular reclaim, compaction": Way(grouped=True, reclaim="regular"),
    "area reclaim, capture, compaction": ALL,
}
REGULAR, AREA, CAPTURE, REGULAR_COMPACTED, AREA_COMPACTED = WAYS
# Which two differ in their policy alone, the settings that zones have at first in front. Regular reclaim empties no area, so that capture is nothing to it.
PAIRS = {
    "all else as zones have it unless told otherwise, with compaction and capture": (REGULAR_COMPACTED, AREA_COMPACTED),
    "both without compaction": (REGULAR, CAPTURE),
    "both without compaction and capture, as in the paper": (REGULAR, AREA),
}
# Section 5.4: a page scanned, unmapped, written.
WEIGHTS = {"scanned": 1, "unmapped": 1000, "written": 1_000_000}
TIMES_BETTER = 3


def cost(run: dict) -> float:
    return math.log10(max(1, sum(run[what] * weight for what, weight in WEIGHTS.items())))


def cost_of_one(run: dict) -> float:
    return cost(run) - math.log10(max(1, run["under_load"]))


def times_less(ms: dict[str, float], measured: str, where: str) -> list[Claim]:
    """For each pair of ways: whether area reclaim takes TIMES_BETTER times less than regular reclaim."""
    found = []
    for settings, (regular, area) in PAIRS.items():
        times = ms[regular] / max(ms[area], 1e-9)
        shown = f"{times:.1f} times" if times < 1000 else "over 1,000 times"
        statement = f"{measured}: area reclaim takes at least {TIMES_BETTER} times less than regular reclaim, {settings} ({ms[regular]:.1f} ms and {ms[area]:.1f} ms, {shown})"
        found.append(Claim(statement, where, times >= TIMES_BETTER))
    return found


def measure(context: Context) -> Result:
    mib, warm_s = context.choose((2048, 200), (256, 70))
    runs = highalloc(context, {name: Run(way, mib, warm_s) for name, way in WAYS.items()})
    # At equal effectiveness: as many superpages as the one that got fewer.
    common = min(len(runs[name]["delays"]) for name in WAYS)
    asked = {name: mean(one[2] for one in run["delays"][:common]) if run["delays"][:common] else math.inf for name, run in runs.items()}
    means = {name: mean(one[1] for one in run["delays"][:common]) if run["delays"][:common] else math.inf for name, run in runs.items()}
    period_ms = 64000 / (mib / 2)
    beyond = {name: max(0.0, mean_ms - period_ms) for name, mean_ms in means.items()}
    whole = {name: run["mean_ms"] for name, run in runs.items()}
    # Section 6.1: a consumer asks for a few, early.
    early = {name: mean(one[1] for one in run["delays"][: run["superpages"] // 2]) if run["delays"] else math.inf for name, run in runs.items()}
    rest = {name: 1000 * run["rest_s"] / max(1, run["at_rest"]) for name, run in runs.items()}
    deviations = {name: pstdev([one[1] for one in run["delays"][:common]]) if common else math.inf for name, run in runs.items()}
    order = {name: number for number, name in enumerate(WAYS, 1)}
    ways = "; ".join(f"{number} {name}" for name, number in order.items())

    def course(name: str, column: int) -> list[tuple[float, float]]:
        return [(point[0], point[column]) for point in runs[name]["course"]]

    panels = {1: "figure 9: mean so far", 2: "figure 9: deviation so far", 3: "figure 9: worst so far"}
    return Result(
        id="contiguity/figures-4-8-9",
        title="Delays between superpages under load, and the cost of reclaim",
        unit="ms of the load's time",
        x_label="per cent of memory had",
        panel_x_labels=dict.fromkeys(("figure 8: cost", "a superpage at rest", "within requests, for one", "between successes", "had under load"), ways),
        panel_units={"figure 8: cost": "log10 of the weighted sum", "had under load": "per cent of memory"},
        published=[
            Published("weight of a page scanned", 1, "", "section 5.4"),
            Published("weight of a page unmapped", 1000, "", "section 5.4"),
            Published("weight of a page written", 1_000_000, "", "section 5.4"),
            Published("of memory before area reclaim fails regularly", 50, "per cent", "section 5.5, figure 4"),
        ],
        measured=[
            *[Series(name, points, panel) for column, panel in panels.items() for name in WAYS if (points := course(name, column))],
            Series("all", [(order[name], cost(run)) for name, run in runs.items()], "figure 8: cost"),
            Series("for one superpage", [(order[name], cost_of_one(run)) for name, run in runs.items()], "figure 8: cost"),
            Series("mean", [(order[name], rest[name]) for name in runs], "a superpage at rest"),
            Series(f"mean of the first {common}", [(order[name], asked[name]) for name in runs], "within requests, for one"),
            Series(f"mean of the first {common}", [(order[name], means[name]) for name in runs], "between successes"),
            Series("mean of all", [(order[name], whole[name]) for name in runs], "between successes"),
            Series("share", [(order[name], percent(run, "under_load")) for name, run in runs.items()], "had under load"),
        ],
        holds=[
            *times_less(asked, f"mean latency of a superpage under load, the time within its requests, of the first {common} of each", "strata's own bar"),
            *times_less(
                beyond,
                f"mean delay between successes under load beyond the {period_ms:.1f} ms between requests, of the first {common} of each",
                "section 5.5, figure 9, and strata's own bar",
            ),
            Claim(
                f"area reclaim (alone, as in all that follows) allocates superpages faster: the mean delay between the first {common} is shorter ({means[REGULAR]:.1f} ms and "
                f"{means[AREA]:.1f} ms, where requests come every {period_ms:.1f} ms)",
                "section 6, figure 9",
                means[AREA] < means[REGULAR],
            ),
            Claim(
                f"early allocations, of half of memory, have lower latency with it ({early[REGULAR]:.1f} ms and {early[AREA]:.1f} ms)",
                "section 6.1",
                early[AREA] < early[REGULAR],
            ),
            Claim(
                f"its delays vary less (deviation {deviations[REGULAR]:.1f} ms and {deviations[AREA]:.1f} ms)",
                "section 6, figure 9",
                deviations[AREA] < deviations[REGULAR],
            ),
            Claim(
                f"area reclaim gets further under load ({percent(runs[REGULAR], 'under_load'):.1f} % and {percent(runs[AREA], 'under_load'):.1f} %)",
                "section 6.1",
                percent(runs[AREA], "under_load") > percent(runs[REGULAR], "under_load"),
            ),
            Claim(
                f"its cost is higher, but not by a considerable margin (log10 {cost(runs[REGULAR]):.2f} and {cost(runs[AREA]):.2f}, at most a tenth apart)",
                "section 6, figure 8",
                cost(runs[REGULAR]) <= cost(runs[AREA]) <= 1.1 * cost(runs[REGULAR]),
            ),
        ],
        note=f"{mib:,} MiB, simulated, grouped by mobility; a request every {period_ms:.1f} ms. A page unmapped takes 1 us of a machine of 1 GiB, one written 244 us (a "
        f"disk of 16 MiB a second); the load runs meanwhile. In {len(next(iter(runs.values()))['map_before']):,} superpages.",
    )


if __name__ == "__main__":
    main(measure)
