"""Turns what was collected into the one document that everything else is made from: build/bench/summary.json.

Loads marked as controls are in the document and in no mean.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

from . import figures
from .allocators import STRATA, Allocator
from .catalogue import LOADS
from .measuring import Collected

SCHEMA = 1


def build(
    collected: Collected, allocators: Sequence[Allocator], machine: dict[str, str], commit: str, settings: dict, complete: bool
) -> dict:
    names = [allocator.name for allocator in allocators]
    rivals = [allocator.name for allocator in allocators if allocator.in_bar]
    core = [STRATA, *rivals] if STRATA in names else rivals
    medians = {load: {name: figures.medians_of(s) for name, s in row.items()} for load, row in collected.samples.items()}
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
        "loads": {load: _load(load, row, medians[load], names, rivals) for load, row in collected.samples.items()},
        "means": _means(counted, names, core, rivals, figures.RATIO_METRICS),
        "mean_loads": figures.complete_loads(counted, core),
        "scaling": _scaling(collected, names),
        "micro": {name: {a: round(m["ns"], 3) for a, m in row.items()} for name, row in micro.items()},
        "micro_means": _means(micro, names, core, rivals, ("ns",)),
        "bar": _bar(collected, counted, names, rivals),
        "problems": collected.problems,
        "skipped": collected.skipped,
    }


def _load(load: str, samples: dict, medians: dict, names: Sequence[str], rivals: Sequence[str]) -> dict:
    about = next((entry.about for entry in LOADS if entry.name == load), "")
    document = {"about": about, "allocators": {}}
    for name in names:
        if name not in samples:
            continue
        others = [rival for rival in rivals if rival != name and rival in medians]
        ratios, best = {}, {}
        for metric in figures.RATIO_METRICS if others else ():
            best[metric] = figures.best_other(medians, name, others, metric)
            ratios[metric] = figures.ratio(medians[name], medians[best[metric]], metric)
        document["allocators"][name] = {
            "median": medians[name],
            "spread": {metric: figures.spread_of(samples[name], metric) for metric in figures.BAR_METRICS},
            "to_best_other": ratios,
            "best_other": best,
            "runs": samples[name],
        }
    return document


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


def _bar(collected: Collected, counted: dict, names: Sequence[str], rivals: Sequence[str]) -> dict:
    if STRATA not in names:
        return {}
    verdicts = figures.bar(counted, STRATA, rivals)
    scaling = _scaling(collected, names)["work"].get(STRATA)
    if scaling is not None:
        verdicts["scaling"] = {"value": scaling, "wanted": figures.SCALING_BAR, "met": scaling >= figures.SCALING_BAR}
    # A load that strata failed in is in no mean, and must not make the bar easier.
    if any(STRATA not in row for row in collected.samples.values()):
        for verdict in verdicts.values():
            verdict["met"] = False
    return verdicts
