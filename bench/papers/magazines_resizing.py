"""magazines, section 3.4: the size of magazines and the contention for the depot's lock over time, while threads meet there, rest, and meet again."""

from frame.experiment import Claim, Context, Published, Result, Series, main

DECAY_MS = 100
CONF = f"background:on,decay_ms:{DECAY_MS}"
# After so many ticks without a visit m is what it was in the beginning; a few more, as ticks may come late.
IDLE_MS = 30 * DECAY_MS
CONTENDED_MAX = 8
SIZE, CONTENTION = "size of a magazine", "lock found held"


def measure(context: Context) -> Result:
    threads = context.several_cpus()
    load_ms, sample_ms = context.choose(10_000, 1500), context.choose(100, 50)
    run = context.run("magazines_resizing", threads, sample_ms, load_ms, IDLE_MS, conf=CONF)
    samples = run["samples"]
    sizes = [(one["seconds"], one["rounds"]) for one in samples]
    pairs = list(zip(samples, samples[1:], strict=False))

    def per_visit(first: dict, last: dict) -> float:
        """Lock found held, in a thousand visits of the depot."""
        objects = last["objects"] - first["objects"]
        return 1000 * (last["contention"] - first["contention"]) / (objects / last["rounds"]) if objects > 0 else 0.0

    def rate(first: dict, last: dict) -> float:
        return (last["contention"] - first["contention"]) / (last["seconds"] - first["seconds"])

    start, most = samples[0]["rounds"], max(one["rounds"] for one in samples)
    loaded = [one for one in samples if one["load"] and one["seconds"] <= load_ms / 1000]
    grown = next((number for number, one in enumerate(samples) if one["rounds"] > start), 0)
    fast_ticks = [rate(first, last) * DECAY_MS / 1000 for first, last in pairs[: max(1, grown)]]
    idle_end = max((one for one in samples if not one["load"]), key=lambda one: one["seconds"])
    late = loaded[len(loaded) // 2 :]
    last_rate = rate(late[0], late[-1])
    return Result(
        id="magazines/section-3-4",
        title="Magazine size and contention over time",
        unit="rounds",
        x_label="seconds",
        panel_units={CONTENTION: "times in 1,000 visits of the depot"},
        published=[Published("contention where the size has settled, after minutes (less than)", 1, "a second", "section 3.4")],
        measured=[
            Series("m/2", sizes, SIZE),
            Series("trylock failed", [(last["seconds"], per_visit(first, last)) for first, last in pairs], CONTENTION),
        ],
        holds=[
            Claim(
                f"magazines begin small and grow under contention ({start:.0f} to {most:.0f} rounds)", "section 3.4", most > start and max(fast_ticks) > 0
            ),
            Claim(
                f"contention passed the threshold before they had grown ({max(fast_ticks):,.0f} failures a tick, threshold {CONTENDED_MAX})",
                "section 3.4",
                max(fast_ticks) > CONTENDED_MAX,
            ),
            Claim(
                "and no further than to their limit: the last size stays while the load does",
                "section 3.4",
                all(one["rounds"] == most for one in late),
            ),
            Claim(
                "a cache that nobody contends for any more has small magazines again (strata's own rule)", "section 3.4", idle_end["rounds"] == start
            ),
            Claim(f"the lock is found held less than once a second in the end (found: {last_rate:,.0f} times)", "section 3.4", last_rate < 1),
        ],
        note=(
            f"{threads} threads, one a CPU, go up and down by up to 512 blocks of 64 bytes and do nothing else, rest for {IDLE_MS / 1000:g} seconds, and do it "
            f"again; ticks come every {DECAY_MS} ms here (500 by default). Malloc's arrays grow by misses, too: which of both did it here is not told apart. An array holds two magazines. strata doubles m once, from half of what 64 KiB of "
            "objects are (at most 256) to all of it: beyond that larger arrays would tie down more memory than the lock is worth. The paper's contention is "
            "that of servers at work; this load is the worst that there is: every burst of every thread goes through one depot, millions of times a second."
        ),
    )


if __name__ == "__main__":
    main(measure)
