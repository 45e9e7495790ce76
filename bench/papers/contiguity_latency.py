"""contiguity, figures 4, 8 and 9: delays between superpages that are had, and what reclaim costs, by regular and by area reclaim.

Two times are told apart. The paper's (section 5.5, figure 9) goes from one success to the next: where superpages are asked for at a constant rate, as
there, it is at least about their period, however fast a request is; so what it has beyond that is compared, too, as a difference: a ratio would divide by
what may be nothing. The other is the part of it that was spent within requests, failed ones included: the latency of a request. Policies are compared
where all else is the same, over runs that differ in how long the load ran before: in each a few requests, near the end, wait for seconds where others take
milliseconds, and decide the mean; how many they are is chance, as single runs show, of which the least and the most are told. Where compaction alone serves
nearly all requests of a run, hardly any waits by either way, and the policy can't show in its mean. What holds in single runs, too, is told of the requests
that do wait.
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
# A request that takes longer has waited for reclaim or compaction: others take what there is, or what a few copies make.
WAITS_MS = 5


def cost(run: dict) -> float:
    return math.log10(max(1, sum(run[what] * weight for what, weight in WEIGHTS.items())))


def cost_of_one(run: dict) -> float:
    return cost(run) - math.log10(max(1, run["under_load"]))


def first_of(runs: list[dict], common: int, column: int) -> float:
    """The mean over the first `common` superpages of each run; column: 1 since the last success, 2 of it within requests."""
    return mean(one[column] for run in runs for one in run["delays"][:common]) if common else math.inf


def times_less(asked: dict[str, list[float]], measured: str, where: str) -> list[Claim]:
    """For each pair of ways: whether area reclaim takes TIMES_BETTER times less than regular reclaim, in the mean of all runs."""
    found = []
    for settings, (regular, area) in PAIRS.items():
        slow, fast = mean(asked[regular]), mean(asked[area])
        single = [one / max(other, 1e-9) for one, other in zip(asked[regular], asked[area], strict=True)]
        shown = f"{slow:.1f} ms and {fast:.1f} ms, {slow / max(fast, 1e-9):.1f} times; in single runs {min(single):.1f} to {max(single):.1f} times"
        statement = f"{measured}: area reclaim takes at least {TIMES_BETTER} times less than regular reclaim, {settings} ({shown})"
        found.append(Claim(statement, where, slow >= TIMES_BETTER * fast))
    return found


def waiting(runs: list[dict], common: int) -> list[float]:
    """Of each run the mean time within those of the first `common` requests that waited; 0 where none did."""
    found = ([one[2] for one in run["delays"][:common] if one[2] > WAITS_MS] for run in runs)
    return [mean(waited) if waited else 0 for waited in found]


def waits_less(runs: dict[str, list[dict]], common: int) -> Claim:
    """Whether that holds in every single run of those requests that wait at all, with compaction, where the mean of all need not."""
    settings = next(iter(PAIRS))
    regular, area = PAIRS[settings]
    pairs = list(zip(waiting(runs[regular], common), waiting(runs[area], common), strict=True))
    single = [slow / max(fast, 1e-9) for slow, fast in pairs]
    shown = f"{mean(slow for slow, _ in pairs):.0f} ms and {mean(fast for _, fast in pairs):.0f} ms in the mean; {min(single):.1f} to {max(single):.1f} times"
    statement = (
        f"in each single run, too, a request under load that waits at all, longer than {WAITS_MS} ms, waits at least {TIMES_BETTER} times less by area reclaim than by "
        f"regular reclaim, {settings} ({shown})"
    )
    return Claim(statement, "strata's own bar", min(single) >= TIMES_BETTER)


def less_beyond(means: dict[str, float], period_ms: float, measured: str, where: str) -> tuple[list[Claim], str]:
    """The same of what delays have beyond the period. And what can't be told by that, as regular reclaim has nothing beyond it either."""
    found, undecided = [], []
    for settings, (regular, area) in PAIRS.items():
        slow, fast = means[regular] - period_ms, means[area] - period_ms
        if slow <= 0:
            undecided.append(f"{settings} ({means[regular]:.1f} ms and {means[area]:.1f} ms)")
            continue
        ratio = f"{slow / fast:.1f} times" if fast > 0 else "no ratio, as the delays of the one lie within the period"
        statement = f"{measured}: area reclaim has at most a third of what regular reclaim has, {settings} ({slow:.2f} ms and {fast:.2f} ms: {slow - fast:.2f} ms less, {ratio})"
        found.append(Claim(statement, where, fast * TIMES_BETTER <= slow))
    return found, f" Undecided by delays between successes, as neither has any beyond the period: {'; '.join(undecided)}." if undecided else ""


def measure(context: Context) -> Result:
    mib, warms_s = context.choose((2048, (160, 180, 200, 220, 240)), (256, (50, 60, 70, 80, 90)))
    every = highalloc(context, {(name, warm_s): Run(way, mib, warm_s) for name, way in WAYS.items() for warm_s in warms_s})
    of_way = {name: [every[name, warm_s] for warm_s in warms_s] for name in WAYS}
    # The one in the middle is what figures show.
    runs = {name: found[len(warms_s) // 2] for name, found in of_way.items()}
    # At equal effectiveness: as many superpages as the one that got fewest.
    common = min(len(run["delays"]) for run in every.values())
    asked_each = {name: [first_of([run], common, 2) for run in found] for name, found in of_way.items()}
    asked = {name: mean(found) for name, found in asked_each.items()}
    means = {name: first_of(found, common, 1) for name, found in of_way.items()}
    period_ms = 64000 / (mib / 2)
    whole = {name: mean(run["mean_ms"] for run in found) for name, found in of_way.items()}
    # Section 6.1: a consumer asks for a few, early.
    early = {name: mean(one[1] for one in run["delays"][: run["superpages"] // 2]) if run["delays"] else math.inf for name, run in runs.items()}
    rest = {name: 1000 * run["rest_s"] / max(1, run["at_rest"]) for name, run in runs.items()}
    beyond, undecided = less_beyond(
        means,
        period_ms,
        f"mean delay between successes under load beyond the {period_ms:.1f} ms between requests, of the first {common} of each of {len(warms_s)} runs",
        "section 5.5, figure 9, and strata's own bar",
    )
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
            *times_less(
                asked_each, f"mean latency of a superpage under load, the time within its requests, of the first {common} of each of {len(warms_s)} runs", "strata's own bar"
            ),
            waits_less(of_way, common),
            *beyond,
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
        f"disk of 16 MiB a second); the load runs meanwhile. In {len(next(iter(runs.values()))['map_before']):,} superpages. Runs after {', '.join(map(str, warms_s))} s of load; "
        f"courses, cost and shares are of that after {warms_s[len(warms_s) // 2]} s. Where compaction alone serves nearly all requests of a single run, hardly any waits by either "
        f"way of reclaim, and the mean of all can't show a difference; of those that wait it does.{undecided}",
    )


if __name__ == "__main__":
    main(measure)
