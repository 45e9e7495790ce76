"""magazines, section 4.4.4: latency of an arena's allocation and free, over the number of threads, with and without quantum caches."""

from frame.experiment import (
    Claim,
    Context,
    Published,
    Result,
    Series,
    interleaved,
    main,
    median,
)

NAMES = {"cached": "with quantum caches", "segments": "without"}
LINEAR_SHARE = 0.8


def measure(context: Context) -> Result:
    most = context.several_cpus()
    counts = sorted({1, 2, 4, 8, 16, 32, 64, most} & set(range(1, most + 1)))
    milliseconds = context.choose(1000, 100)

    def job(name: str, threads: int):
        return lambda: context.run("vmem_quantum", name, "pairs", threads, milliseconds)

    runs = interleaved(context.choose(5, 3), {(name, threads): job(name, threads) for name in NAMES for threads in counts})
    latency = {key: median(done, "ns_per_pair") for key, done in runs.items()}
    rate = {key: median(done, "pairs_per_second") for key, done in runs.items()}
    return Result(
        id="magazines/section-4-4-4",
        title="Latency and scaling of an arena with and without quantum caches",
        unit="ns per pair",
        x_label="threads, one a CPU",
        y_log=True,
        published=[
            Published("with quantum caches", 482, "ns", "section 4.5.1"),
            Published("without", 1560, "ns", "section 4.5.1"),
        ],
        measured=[Series(title, [(threads, latency[name, threads]) for threads in counts]) for name, title in NAMES.items()],
        holds=[
            Claim(
                "quantum caches make a single CPU faster, by a factor of two at least",
                "section 4.5.1",
                2 * latency["cached", 1] <= latency["segments", 1],
            ),
            Claim(
                f"with quantum caches throughput is linear: {most} threads do at least {LINEAR_SHARE * most:g} times the pairs of one",
                "section 4.4.4",
                rate["cached", most] >= LINEAR_SHARE * most * rate["cached", 1],
            ),
            Claim(
                "without them, under the one lock of the arena, more threads do less than one",
                "section 4.4.3",
                all(rate["segments", threads] < rate["segments", 1] for threads in counts[1:]),
            ),
        ],
        note=(
            "One arena for all threads; sizes of 1 to 8 quanta in turn, for each of which there is a quantum cache. A latency that stays as it is with more "
            "threads is linear scaling."
        ),
    )


if __name__ == "__main__":
    main(measure)
