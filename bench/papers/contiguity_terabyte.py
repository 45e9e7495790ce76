"""contiguity, figures 6 and 7 on 1 TiB: the same load as at the other sizes, a thousand times the paper's machine."""

from contiguity_runs import ALL, Run, highalloc, percent
from frame.experiment import Claim, Context, Published, Result, Series, main

# What strata promises with everything on.
AT_REST_MIN, UNDER_LOAD_MIN = 90, 60


def measure(context: Context) -> Result:
    mib = context.choose(1 << 20, 256)
    run = highalloc(context, {"all": Run(ALL, mib, 0)})["all"]
    shares = {what: percent(run, what) for what in ("under_load", "at_rest")}
    size = f"{mib >> 10:,} GiB" if mib >= 1024 else f"{mib} MiB"
    return Result(
        id="contiguity/figures-6-7-large",
        title="Share of memory that can be had as superpages, of 1 TiB",
        unit="per cent of memory",
        x_label="1 under load; 2 at rest",
        published=[
            Published("at rest, area reclaim, x86-64", 73.15, "per cent", "figure 7"),
            Published("at rest, area reclaim, PPC64", 70.12, "per cent", "figure 7"),
        ],
        measured=[Series("grouped, area reclaim, compaction, capture", list(enumerate(shares.values(), 1)))],
        holds=[
            Claim(
                f"of {size}, {run['superpages']:,} superpages, at least {AT_REST_MIN} % can be had at rest ({shares['at_rest']:.1f} %)",
                "strata's own bar",
                shares["at_rest"] >= AT_REST_MIN,
            ),
            Claim(f"and at least {UNDER_LOAD_MIN} % under load ({shares['under_load']:.1f} %)", "strata's own bar", shares["under_load"] >= UNDER_LOAD_MIN),
            Claim(
                f"capture loses no race: {run['captured']:,} requests were captured, and {run['races_lost']} frames emptied for one went to another",
                "section 8",
                run["captured"] > 0 and run["races_lost"] == 0 and run["frames_lost"] == 0,
            ),
        ],
        note="Highalloc-stress as in figures 6 and 7, with a compile job for each 256 MiB and superpages asked for at the same rate of 16 MiB a second of 1 GiB, all "
        f"contents checked: here {run['allocations']:,} allocations in {run['steps']:,} steps, {run['pages_moved']:,} pages moved. Two things differ from the sizes "
        "there: jobs don't run for a minute before anything is asked for, and the compaction thread looks as often in the load's time as at 64 GiB, no oftener. "
        + ("It takes 9.5 GiB of memory." if not context.quick else "A small zone."),
    )


if __name__ == "__main__":
    main(measure)
