"""contiguity, figure 11: areas that were emptied for a superpage and lost a frame to somebody else before it was had."""

from contiguity_runs import Way, highalloc, percent
from frame.experiment import Claim, Context, Published, Result, Series, main

WAYS = {
    "regular reclaim": Way(grouped=True, reclaim="regular", compact=False, capture=False),
    "area reclaim": Way(grouped=True, reclaim="area", compact=False, capture=False),
    "area reclaim, capture": Way(grouped=True, reclaim="area", compact=False, capture=True),
    "area reclaim, capture, compaction": Way(grouped=True, reclaim="area", compact=True, capture=True),
}
CAPTURES = [name for name, way in WAYS.items() if way.capture]


def good_percent(run: dict) -> float:
    return 100 * run["areas_good"] / max(1, run["areas_emptied"])


def measure(context: Context) -> Result:
    mib, warm_s = context.choose((2048, 200), (256, 70))
    runs = {name: highalloc(context, way, mib, warm_s) for name, way in WAYS.items()}
    order = {name: number for number, name in enumerate(WAYS, 1)}
    lost = {name: run["areas_raced"] for name, run in runs.items()}
    captured = [runs[name] for name in CAPTURES]
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
        panel_units={"had under load": "per cent of memory"},
        measured=[
            Series("good", [(order[name], run["areas_good"]) for name, run in runs.items()], "areas under reclaim"),
            Series("raced", [(order[name], lost[name]) for name, run in runs.items()], "areas under reclaim"),
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
                "capture loses no race: no frame that was held for a request went to anybody else",
                "section 8.2, and strata's own bar",
                all(run["capture_lost"] == 0 and run["captured"] > 0 for run in captured),
            ),
            Claim(
                f"and more of the areas that are emptied become superpages ({good_percent(runs['area reclaim']):.1f} % without, "
                f"{good_percent(captured[0]):.1f} % with it)",
                "section 8.2",
                good_percent(captured[0]) > good_percent(runs["area reclaim"]),
            ),
        ],
        note=f"{mib:,} MiB, simulated. An area is a superpage from which pages were dropped or moved for a request; raced: before the request ended the load, which goes on while pages "
        "are written, was given a frame of it. With capture these are areas that were given up, as "
        "an owner refused one of their pages.",
    )


if __name__ == "__main__":
    main(measure)
