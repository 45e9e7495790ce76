"""umpa, figures 9 and 10: malloc of 4 KiB to 8 MiB, over the kernel's pages and over the process's own."""

from frame.experiment import Claim, Context, Published, Result, Series, interleaved, main
from umpa_bins import curve

WAYS = {
    "mapping": ("libc", "glibc, mappings from 256 KiB on as dlmalloc has them", {"GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=262144"}),
    "libc": ("libc", "glibc, as it comes", {}),
    "strata": ("malloc", "strata", {}),
}


def measure(context: Context) -> Result:
    members, operations = context.choose((512, 4000), (64, 1000))

    def job(way: str, env: dict):
        return lambda: context.run("umpa_pages", "ring", way, members, operations, env=env)

    runs = interleaved(context.choose(3, 1), {name: job(way, env) for name, (way, _, env) in WAYS.items()})
    bare = {name: curve(done, "notraverse_ns") for name, done in runs.items()}
    sizes = list(bare["strata"])
    ratio = {size: bare["mapping"][size] / max(bare["strata"][size], 1) for size in sizes}
    large = [size for size in sizes if size >= 256 << 10]
    return Result(
        id="umpa/figures-9-10",
        title=f"malloc: a ring of {members} blocks of 4 KiB to 8 MiB, adjusted for traversal",
        unit="ns per block",
        x_label="block size, bytes (from here to twice that)",
        x_log=True,
        y_log=True,
        panel_units={"figure 10: how many times as fast": "times"},
        published=[Published("dlmalloc over the user mode page allocator, very small blocks", 2, "times as fast", "section 3.1, figure 10")],
        measured=[
            *[Series(title, list(bare[name].items()), "figure 9") for name, (_, title, _) in WAYS.items()],
            Series("strata to glibc with mappings", list(ratio.items()), "figure 10: how many times as fast"),
        ],
        holds=[
            Claim(
                "where malloc maps each large block (from 256 KiB on), one over the process's own pages is faster, at every size",
                "section 3.1, figure 9",
                all(ratio[size] > 1 for size in large),
            ),
            Claim(
                "it is faster than glibc as it comes, too, which raises its threshold and then keeps pages in its heap",
                "section 3.1, figure 9",
                all(bare["libc"][size] > bare["strata"][size] for size in large),
            ),
        ],
        note="glibc's malloc is called by its own name in a process whose malloc is strata's. The paper compares dlmalloc over Windows' pages with "
        "dlmalloc over the user mode page allocator.",
    )


if __name__ == "__main__":
    main(measure)
