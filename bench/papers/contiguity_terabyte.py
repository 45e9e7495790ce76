"""contiguity, figures 6 and 7 at a size that the paper's machines did not have: the same load on a zone of 1 TiB."""

from contiguity_effectiveness import AT_REST_MIN, UNDER_LOAD_MIN
from contiguity_runs import ALL, Run, highalloc, percent
from frame.experiment import Claim, Context, Published, Result, Series, main

GIB = 1024


def measure(context: Context) -> Result:
    mib = context.choose(1024 * GIB, 256)
    run = highalloc(context, {"all": Run(ALL, mib, 0)})["all"]
    under_load, at_rest = percent(run, "under_load"), percent(run, "at_rest")
    return Result(
        id="contiguity/figures-6-7-terabyte",
        title="Share of memory that can be had as superpages, of 1 TiB",
        unit="per cent of memory",
        x_label="1 under load, 2 at rest",
        published=[Published("at rest, area reclaim, x86-64, 1 GiB", 73.15, "per cent", "figure 7")],
        measured=[Series("grouped, area reclaim, compaction, capture", [(1, under_load), (2, at_rest)])],
        holds=[
            Claim(f"at least {AT_REST_MIN} % can be had at rest ({at_rest:.1f} %)", "strata's own bar", at_rest >= AT_REST_MIN),
            Claim(f"and at least {UNDER_LOAD_MIN} % under load ({under_load:.1f} %)", "strata's own bar", under_load >= UNDER_LOAD_MIN),
        ],
        note=f"The load of figures 6 and 7 on a simulated zone of {mib / GIB:,.2f} GiB, {run['superpages']:,} superpages, with a compile job for each 256 MiB, that does "
        "not run before memory is filled. All contents are checked. At 1 TiB it takes some 10 GiB of memory and half an hour to an hour of one processor.",
    )


if __name__ == "__main__":
    main(measure)
