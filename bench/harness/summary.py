"""Turns what was collected into the one document that everything else is made from: build/bench/summary.json.

Loads marked as controls are in the document and in no mean.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

from . import bar, figures, pages
from .allocators import FALLBACK, STRATA, Allocator
from .catalogue import LOADS, STARTUPS
from .measuring import Collected

SCHEMA = 4


def build(
    collected: Collected, allocators: Sequence[Allocator], machine: dict[str, str], commit: str, settings: dict, complete: bool, abouts: dict[str, str]
) -> dict:
    """The document; `abouts` says of each program what it is. Its shape is that of summary.schema.json."""
    names = [allocator.name for allocator in allocators]
    rivals = [allocator.name for allocator in allocators if allocator.in_bar]
    core = [STRATA, *rivals] if STRATA in names else rivals
    medians = {load: {name: figures.medians_of(s) for name, s in row.items()} for load, row in collected.samples.items()}
    about = {load.name: load.about for load in (*LOADS, *STARTUPS)} | abouts
    controls = {load.name for load in LOADS if load.control}
    counted = {load: row for load, row in medians.items() if load not in controls}
    micro = {name: {a: figures.medians_of(s) for a, s in row.items()} for name, row in collected.micro.items()}
    return {
        "schema": SCHEMA,
        "date": datetime.now(UTC).date().isoformat(),
        "complete": complete,
        "commit": commit,
        "machine": machine,
        "settings": settings,
        "allocators": [{"name": a.name, "version": a.version, "in_bar": a.in_bar, "options": a.env} for a in allocators],
        "loads": {load: _load(about.get(load, ""), row, medians[load], names, rivals) for load, row in collected.samples.items()},
        "against_best_other": _against_best_other(collected, counted, names, core, rivals),
        "means": _means(counted, names, core, rivals, figures.RATIO_METRICS),
        "mean_loads": figures.complete_loads(counted, core),
        "scaling": _scaling(collected, names),
        "depot_visits": collected.depot_visits,
        "micro": {name: {a: round(m["ns"], 3) for a, m in row.items()} for name, row in micro.items()},
        "micro_means": _means(micro, names, core, rivals, ("ns",)),
        "mean_micro": figures.complete_loads(micro, core),
        "pages": pages.build(collected.pages),
        "bar": _bar(collected, counted, names, rivals),
        "problems": collected.problems,
        "skipped": collected.skipped,
    }


def _load(about: str, samples: dict, medians: dict, names: Sequence[str], rivals: Sequence[str]) -> dict:
    document = {"about": about, "allocators": {}}
    for name in names:
        if name not in samples:
            continue
        others = [rival for rival in rivals if rival != name and rival in medians]
        ratios, best, intervals = {}, {}, {}
        for metric in figures.RATIO_METRICS if others else ():
            best[metric] = figures.best_other(medians, name, others, metric)
            ratios[metric] = figures.ratio(medians[name], medians[best[metric]], metric)
        if name == STRATA and others:
            for metric in figures.BAR_METRICS:
                intervals[metric] = figures.interval({about: samples}, [about], name, best[metric], metric)
        document["allocators"][name] = {
            "median": medians[name],
            "spread": {metric: figures.spread_of(samples[name], metric) for metric in figures.BAR_METRICS},
            "to_best_other": ratios,
            "best_other": best,
            "intervals": intervals,
            "runs": samples[name],
        }
    return document


def _against_best_other(collected: Collected, medians: dict, names: Sequence[str], core: Sequence[str], rivals: Sequence[str]) -> dict:
    """For each allocator and metric of the bar: the rival that is best over all loads, the geometric mean against it, and its interval."""
    found: dict[str, dict] = {}
    for name in names:
        found[name] = {}
        for metric in figures.BAR_METRICS:
            loads = figures.complete_loads(medians, [*core, name])
            best = figures.best_as_a_whole({load: medians[load] for load in loads}, name, rivals, metric)
            if best is not None:
                low, high = figures.interval(collected.samples, loads, name, best[0], metric)
                found[name][metric] = {"best_other": best[0], "ratio": best[1], "low": low, "high": high, "loads": len(loads)}
    return found


def _means(medians: dict, names: Sequence[str], core: Sequence[str], rivals: Sequence[str], metrics: Sequence[str]) -> dict:
    return {
        metric: {
            "to_each": figures.against_peers(medians, names, core, metric),
            "to_best_on_each_load": figures.against_best_other(medians, names, core, rivals, metric),
        }
        for metric in metrics
    }


def _scaling(collected: Collected, names: Sequence[str]) -> dict[str, dict[str, float]]:
    """For each group of loads that differ only in their threads: how the work of one thread multiplies."""
    groups: dict[str, dict[str, float]] = {}
    for group in {load.scaling_group for load in LOADS if load.scaling_group}:
        one = next(load for load in LOADS if load.scaling_group == group and load.threads == 1)
        many = next(load for load in LOADS if load.scaling_group == group and load.threads > 1)
        rows = collected.samples.get(one.name, {}), collected.samples.get(many.name, {})
        groups[group] = {
            name: figures.scaling(rows[0][name], rows[1][name], many.threads) for name in names if name in rows[0] and name in rows[1]
        }
    return groups


def _bar(collected: Collected, counted: dict, names: Sequence[str], rivals: Sequence[str]) -> list[dict]:
    if STRATA not in names:
        return []
    scaling = _scaling(collected, names)["work"].get(STRATA)
    tiny = [startup.name for startup in STARTUPS if startup.tiny]
    failed = any(STRATA not in row for row in collected.samples.values()) or any(f" under {STRATA}: " in p for p in collected.problems)
    fallback_failed = any(f" under {FALLBACK}: " in problem for problem in collected.problems)
    return bar.verdicts(counted, rivals, tiny, scaling, collected.depot_visits, failed, pages.build(collected.pages), fallback_failed)


def with_pages_of(document: dict, later: dict) -> dict:
    """The document with what a later run found of blocks of pages, and the bars on these."""
    others = {one["what"]: one for one in later["bar"] if one["what"].startswith("pages:")}
    bar = [others.get(one["what"], one) for one in document["bar"]]
    return document | {"pages": later["pages"], "bar": bar, "pages_commit": later["commit"]}
