"""magazines, section 4.4.4: latency of an arena's allocation and free, over the number of threads, with and without quantum caches."""

from frame.experiment import Claim, Context, Published, Result, main, scaling

NAMES = {"cached": "with quantum caches", "segments": "without"}
LINEAR_SHARE = 0.8


def measure(context: Context) -> Result:
    runs = scaling(context, list(NAMES), lambda name, threads, milliseconds: context.run("vmem_quantum", name, "pairs", threads, milliseconds))
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
        measured=[runs.curve(title, name) for name, title in NAMES.items()],
        holds=[
            Claim(
                "quantum caches make a single CPU faster, by a factor of two at least",
                "section 4.5.1",
                2 * runs.latency["cached", 1] <= runs.latency["segments", 1],
            ),
            Claim(
                f"with quantum caches throughput is linear: {runs.most} threads do at least {LINEAR_SHARE * runs.most:g} times the pairs of one",
                "section 4.4.4",
                runs.is_linear("cached", LINEAR_SHARE),
            ),
            Claim(
                "without them, under the one lock of the arena, more threads do less than one",
                "section 4.4.3",
                runs.is_best_on_one("segments"),
            ),
        ],
        note=(
            "One arena for all threads; sizes of 1 to 8 quanta in turn, for each of which there is a quantum cache. A latency that stays as it is with more "
            "threads is linear scaling."
        ),
    )


if __name__ == "__main__":
    main(measure)
