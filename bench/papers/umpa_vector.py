"""umpa, section 2: a vector that grows by moving its pages, against std::vector, which copies: push_back, time and peak of memory."""

from frame.experiment import Claim, Context, Published, Result, Series, interleaved, main, median

WAYS = {"libc": "std::vector, glibc's malloc", "std": "std::vector, strata's malloc", "strata": "strata::vector"}
MIB = 1 << 20
# From here on a vector is large: growth is by pages alone. What the process has beside the vector.
LARGE_BYTES = 16 * MIB
PROCESS_MIB = 16


def measure(context: Context) -> Result:
    sizes = [size * MIB for size in context.choose((1, 16, 256, 762), (1, 16))]
    jobs = {
        (way, size): lambda way=way, size=size: context.run("umpa_vector", way, size, max(3, min(50, context.choose(512, 64) * MIB // size)))
        for way in WAYS
        for size in sizes
    }
    runs = interleaved(context.choose(5, 3), jobs)
    first, again = ({key: median(done, what) * 8 / key[1] for key, done in runs.items()} for what in ("first_ns", "again_ns"))
    peak = {key: median(done, "peak_mib") for key, done in runs.items()}
    large = [size for size in sizes if size >= LARGE_BYTES]
    gain = {size: min(first["libc", size], first["std", size]) / first["strata", size] for size in large}
    more = 100 * (min(peak["libc", sizes[-1]], peak["std", sizes[-1]]) / peak["strata", sizes[-1]] - 1)
    most_mib = max(peak["strata", size] - size / MIB for size in large)

    def curves(values: dict, panel: str) -> list[Series]:
        return [Series(title, [(size, values[way, size]) for size in sizes], panel) for way, title in WAYS.items()]

    return Result(
        id="umpa/section-2-vector",
        title="A vector of 64-bit numbers grows by push_back",
        unit="ns per element",
        x_label="size at the end, bytes",
        x_log=True,
        panel_units={"peak of memory": "MiB"},
        published=[
            Published("memory that a traditional vector takes beside one that grows by pages, at least", 50, "per cent", "section 2, item 1"),
            Published("and at most", 200, "per cent", "section 2, item 1"),
            Published("improvement of execution time", 50, "per cent", "section 2, item 1"),
        ],
        measured=[
            *curves(first, "time, the first vector of its process"),
            *curves(again, "time, the following ones"),
            *curves(peak, "peak of memory"),
        ],
        holds=[
            Claim(
                f"from 16 MiB on it takes less time than std::vector on either malloc (1/{min(gain.values()):.2f} to 1/{max(gain.values()):.2f} of the better one)",
                "section 2, item 1",
                all(value > 1 for value in gain.values()),
            ),
            Claim(
                f"and its peak is its size: at most {PROCESS_MIB} MiB beside it ({most_mib:.0f} MiB)",
                "section 2, item 1",
                most_mib <= PROCESS_MIB,
            ),
            Claim(
                f"a traditional vector takes half as much memory again, at least (its peak at {sizes[-1] // MIB} MiB, on the better malloc: {more:.0f} % more)",
                "section 2, item 1",
                more >= 50,
            ),
            Claim(
                "also where pages need not be new: the following vectors take less time, too, from 16 MiB on",
                "section 2, item 1",
                all(min(again["libc", size], again["std", size]) > again["strata", size] for size in large),
            ),
        ],
        note="Each run is a process of its own; nobody says beforehand how large the vector will be. The end of the vector is not in the times.",
    )


if __name__ == "__main__":
    main(measure)
