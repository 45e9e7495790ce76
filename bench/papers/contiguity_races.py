"""contiguity, figure 11: areas that were emptied for a superpage and lost a frame to somebody else before it was had."""

from contiguity_runs import Run, Way, highalloc, percent
from frame.experiment import Claim, Context, Published, Result, Series, main

WAYS = {
    "regular reclaim": Way(grouped=True, reclaim="regular", compact=False, capture=False),
    "area reclaim": Way(grouped=True, reclaim="area", compact=False, capture=False),
    "area reclaim, capture": Way(grouped=True, reclaim="area", compact=False, capture=True),
    "area reclaim, capture, compaction": Way(grouped=True, reclaim="area", compact=True, capture=True),
}
AREAS = [name for name, way in WAYS.items() if way.reclaim == "area"]
CAPTURES = [name for name, way in WAYS.items() if way.capture]


def good_percent(run: dict) -> float:
    """Figure 11's rate."""
    return 100 * run["areas_good"] / max(1, run["areas_good"] + run["areas_raced"])


def measure(context: Context) -> Result:
    mib, warm_s = context.choose((2048, 200), (256, 70))
    runs = highalloc(context, {name: Run(way, mib, warm_s) for name, way in WAYS.items()})
    order = {name: number for number, name in enumerate(WAYS, 1)}
    lost = {name: run["areas_raced"] for name, run in runs.items()}
    captured = [runs[name] for name in CAPTURES]
    racing = runs["area reclaim"]
    kept = {what: sum(run[what] for run in captured) for what in ("frames_lost", "races_lost", "captured")}
    return Result(
        id="contiguity/figure-11",
        title="Areas lost to racing allocations",
        unit="areas",
        x_label="; ".join(f"{number} {name}" for name, number in order.items()),
        published=[
            Published("good allocations, x86-64", 500, "areas", "figure 11"),
            Published("raced, x86-64", 19125, "areas", "figure 11"),
            Published("rate, x86-64", 2.61, "per cent", "figure 11"),
            Published("good allocations, PPC64", 152, "areas", "figure 11"),
            Published("raced, PPC64", 13544, "areas", "figure 11"),
            Published("rate, PPC64", 1.12, "per cent", "figure 11"),
        ],
        panel_units={"had under load": "per cent of memory", "lost while an area was emptied": "frames"},
        measured=[
            Series("good", [(order[name], run["areas_good"]) for name, run in runs.items()], "areas under reclaim"),
            Series("raced", [(order[name], lost[name]) for name, run in runs.items()], "areas under reclaim"),
            Series("as the load counts", [(order[name], runs[name]["frames_lost"]) for name in AREAS], "lost while an area was emptied"),
            Series("as the zone counts", [(order[name], runs[name]["races_lost"]) for name in AREAS], "lost while an area was emptied"),
            Series("share of memory", [(order[name], percent(run, "under_load")) for name, run in runs.items()], "had under load"),
        ],
        holds=[
            Claim(
                f"without capture racing allocations take frames of areas that are being emptied ({lost['area reclaim']:,} areas with area reclaim)",
                "section 8.1, figure 11",
                lost["area reclaim"] > 0,
            ),
            Claim(
                "they steal more than 97 % of all areas",
                "section 8.1",
                lost["area reclaim"] > 0.97 * (lost["area reclaim"] + runs["area reclaim"]["areas_good"]),
            ),
            Claim(
                f"capture loses no race: {kept['frames_lost']:,} frames of areas went to the load while they were emptied, in {kept['captured']:,} captures that ended well "
                f"(without capture {racing['frames_lost']:,}, or {racing['races_lost']:,} by the zone's count, which leaves out what a first walk through an area meets, and areas that an owner refused a page of)",
                "section 8.2, and strata's own bar",
                all(run["frames_lost"] == run["races_lost"] == 0 and run["captured"] > 0 for run in captured)
                and racing["frames_lost"] > 0
                and racing["races_lost"] > 0,
            ),
            Claim(
                f"and of the areas that were good or raced more are good ({good_percent(runs['area reclaim']):.1f} % without, "
                f"{good_percent(captured[0]):.1f} % with it)",
                "section 8.2",
                good_percent(captured[0]) > good_percent(runs["area reclaim"]),
            ),
        ],
        note=f"{mib:,} MiB, simulated. An area is a superpage from which pages were dropped or moved for a request; raced: before the request ended the load, which goes on while pages "
        "are written, was given a frame of it. With capture these are areas that were given up, as an owner refused one of their pages, before the load had its frame. "
        "Without capture, what was dropped of an area becomes free at once in the end, so that only frames which were free before can be lost meanwhile. "
        "Lost: the load was given a frame while its area was being emptied, which ends with the first page that stays. Compaction for a request, which the last way adds, "
        "holds what it empties, whatever the way.",
    )


if __name__ == "__main__":
    main(measure)
