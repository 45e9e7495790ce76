"""contiguity, figures 6 and 7: how much of memory can be had as superpages, under load and at rest."""

from contiguity_runs import ALL, GROUPED_AREA, GROUPED_REGULAR, STANDARD, Run, Way, highalloc, percent
from frame.experiment import Claim, Context, Published, Result, Series, main

WAYS = {
    "standard placement": STANDARD,
    "grouped by mobility": GROUPED_REGULAR,
    "grouped, area reclaim": GROUPED_AREA,
    "grouped, area reclaim, compaction, capture": ALL,
}
# What strata promises with everything on.
AT_REST_MIN, UNDER_LOAD_MIN = 90, 60
# Figure 7: what the paper calls comparable differs by 8.62 points.
COMPARABLE_POINTS = 10
STRATA = list(WAYS)[-1]


def places(context: Context) -> dict[str, tuple[str, int, int, dict[str, Way]]]:
    """Backend, MiB, how long the load runs first, and which ways."""
    ends = {name: WAYS[name] for name in (list(WAYS)[0], STRATA)}
    if context.quick:
        return {"sim, 256 MiB": ("sim", 256, 60, WAYS)}
    return {
        "memfd, 2 GiB": ("memfd", 2048, 60, ends),
        "sim, 2 GiB": ("sim", 2048, 120, WAYS),
        "sim, 64 GiB": ("sim", 64 << 10, 60, ends),
    }


def capabilities(context: Context) -> dict[str, tuple[str, int, dict[str, Way]]]:
    """Of HugeTLB-capability: backend, MiB, and which ways."""
    ends = {name: WAYS[name] for name in (list(WAYS)[0], STRATA)}
    sim, memfd = context.choose((2048, 1024), (128, 64))
    return {f"sim, {sim:,} MiB": ("sim", sim, WAYS), f"memfd, {memfd:,} MiB": ("memfd", memfd, ends)}


def measure(context: Context) -> Result:
    # The largest first, so that no CPU waits for another at the end.
    stress = {
        (place, name): Run(way, mib, warm_s, backend)
        for place, (backend, mib, warm_s, ways) in sorted(places(context).items(), key=lambda place: -place[1][1])
        for name, way in ways.items()
    }
    capability_of = {
        (place, name): Run(way, mib, 70, backend, test="capability") for place, (backend, mib, ways) in capabilities(context).items() for name, way in ways.items()
    }
    runs = highalloc(context, stress | capability_of)
    capability = {place: {name: runs[place, name] for name in ways} for place, (_, _, ways) in capabilities(context).items()}
    numbers = {place: number for number, place in enumerate(places(context), 1)}

    def curve(name: str, what: str) -> list[tuple[float, float]]:
        return [(number, percent(runs[place, name], what)) for place, number in numbers.items() if (place, name) in runs]

    def least(name: str, what: str) -> float:
        return min(y for _, y in curve(name, what))

    def most(name: str, what: str) -> float:
        return max(y for _, y in curve(name, what))

    panels = {"under_load": "Highalloc-stress, under load", "at_rest": "Highalloc-stress, at rest"}
    apart = max(
        abs(percent(runs[place, "grouped by mobility"], "at_rest") - percent(runs[place, "grouped, area reclaim"], "at_rest"))
        for place in numbers
        if (place, "grouped by mobility") in runs
    )
    standard = next(iter(WAYS))
    return Result(
        id="contiguity/figures-6-7",
        title="Share of memory that can be had as superpages",
        unit="per cent of memory",
        x_label="; ".join(f"{number} {place}" for place, number in numbers.items()),
        published=[
            Published("at rest, regular reclaim, x86-64", 64.53, "per cent", "figure 7"),
            Published("at rest, area reclaim, x86-64", 73.15, "per cent", "figure 7"),
            Published("at rest, regular reclaim, PPC64", 72.11, "per cent", "figure 7"),
            Published("at rest, area reclaim, PPC64", 70.12, "per cent", "figure 7"),
        ],
        panel_units={f"HugeTLB-capability, {place}": "per cent (1 under load, 2 at rest)" for place in capability},
        measured=[
            *[Series(name, curve(name, what), panel) for what, panel in panels.items() for name in WAYS],
            *[
                Series(name, [(1, percent(run, "under_load")), (2, percent(run, "at_rest"))], f"HugeTLB-capability, {place}")
                for place, found in capability.items()
                for name, run in found.items()
            ],
        ],
        holds=[
            Claim(
                f"grouping significantly improves success rates: at rest the standard placement has at most {most(standard, 'at_rest'):.1f} %, "
                f"grouping at least {least('grouped by mobility', 'at_rest'):.1f} %",
                "section 6, figure 6",
                most(standard, "at_rest") < least("grouped by mobility", "at_rest"),
            ),
            Claim(
                f"both algorithms of reclaim come to comparable shares at rest (within {COMPARABLE_POINTS} points; here {apart:.1f})",
                "section 6, figure 7",
                apart <= COMPARABLE_POINTS,
            ),
            Claim(
                f"with grouping, area reclaim, compaction and capture at least {AT_REST_MIN} % can be had at rest (least: {least(STRATA, 'at_rest'):.1f} %)",
                "strata's own bar",
                least(STRATA, "at_rest") >= AT_REST_MIN,
            ),
            Claim(
                f"and at least {UNDER_LOAD_MIN} % under load (least: {least(STRATA, 'under_load'):.1f} %)",
                "strata's own bar",
                least(STRATA, "under_load") >= UNDER_LOAD_MIN,
            ),
            Claim(
                "HugeTLB-capability: the same order, standard placement below grouping, at rest",
                "section 6",
                all(percent(found[standard], "at_rest") < percent(found.get("grouped by mobility", found[STRATA]), "at_rest") for found in capability.values()),
            ),
            Claim(
                f"HugeTLB-capability, too: at least {AT_REST_MIN} % can be had at rest with everything on, "
                + ", ".join(f"{place} {percent(found[STRATA], 'at_rest'):.1f} % (standard placement {percent(found[standard], 'at_rest'):.1f} %)" for place, found in capability.items()),
                "strata's own bar",
                all(percent(found[STRATA], "at_rest") >= AT_REST_MIN for found in capability.values()),
            ),
        ],
        note="Loads are made of frames, not processes: a compile job for each 256 MiB, updatedb, superpages asked for at the rate of 16 MiB a second of 1 GiB; larger "
        "machines have as many times the jobs, processors and disks. Time is the load's own. All contents are checked. For 1 TiB see figures-6-7-large. Standard placement: no groups, and frames come "
        "from the superpage that was freed into last, as a buddy allocator's free lists have it.",
    )


if __name__ == "__main__":
    main(measure)
