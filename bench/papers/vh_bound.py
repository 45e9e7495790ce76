"""VH, section 2.3: accesses to the global pool, at worst, over all transfer sizes, against the bound of theorem 2.3."""

from frame.experiment import Claim, Context, Result, Series, main

M_FULL, M_QUICK = (4, 8, 9, 16, 32, 64), (4, 8, 9, 16)


def bound(requests: int, locals_: int, m: int, m_alpha: int, m_beta: int) -> int:
    """floor(S / (phi_min + 1)) + P. Where phi_min + 1 is 0 every request may be an access."""
    apart = min(m_alpha, m_beta, m - m_alpha, m - m_beta)
    return requests // apart + locals_ if apart else requests


def measure(context: Context) -> Result:
    series, exceeded, best_of_bound, near_best, strictly_half = [], 0, [], [], []
    for m in context.choose(M_FULL, M_QUICK):
        found = context.run("vh_bound", m)
        requests, locals_ = found["requests"], found["locals"]
        worst = {(alpha, beta): max(counts) for alpha, beta, *counts in found["pairs"]}
        limit = {(alpha, beta): bound(requests, locals_, m, alpha, beta) for alpha, beta in worst}
        exceeded += sum(worst[pair] > limit[pair] for pair in worst)
        halves = {m // 2, (m + 1) // 2}
        best_of_bound.append({pair for pair in limit if limit[pair] == min(limit.values())} == {(a, b) for a in halves for b in halves})
        beside = range(min(halves) - 1, max(halves) + 2)
        near_best.append(min(worst[size, size] for size in beside if (size, size) in worst) <= min(worst.values()) + locals_)
        strictly_half.append(min(worst[a, b] for a in halves for b in halves) == min(worst.values()))
        diagonal = [(size, size) for size in range(1, m + 1)]
        series.append(Series("counted, at worst", [(a, worst[a, b] / requests) for a, b in diagonal], f"m = {m}"))
        series.append(Series("bound", [(a, limit[a, b] / requests) for a, b in diagonal], f"m = {m}"))
    return Result(
        id="vh/theorem-2-5",
        title="Accesses to the global pool at worst, over all transfer sizes",
        unit="accesses per request",
        x_label="m_alpha = m_beta",
        measured=series,
        holds=[
            Claim("no program makes more accesses than floor(S / (phi_min + 1)) + P, for any m_alpha and m_beta", "theorem 2.3", exceeded == 0),
            Claim("the bound, as the formula has it, is least where both transfer sizes are half of m, and only there", "theorem 2.5", all(best_of_bound)),
            Claim("the count at worst is least where both are half of m", "theorem 2.5", all(strictly_half)),
            Claim("to within P accesses it is least where both are half of m or one more or less", "theorem 2.5", all(near_best)),
        ],
        note=(
            "The exact number of accesses that strata's fixed pools count, for every pair of transfer sizes; the worst of four programs: only "
            "allocations, only frees, both in swings from end to end, always the way that is shorter. Drawn are the pairs of equal sizes. Lemma 2.4 is a "
            "lower bound of phi, and two short of the truth where an allocation is followed by a free or the other way round: m - m_alpha + 1 "
            "requests lie between such accesses, not m - m_alpha - 1, as the request that fetches also takes one object out, or puts one in. So the "
            "bound holds, but the real optimum of even m is m/2 + 1: one access in m/2 + 1 requests instead of one in m/2."
        ),
    )


if __name__ == "__main__":
    main(measure)
