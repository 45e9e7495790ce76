"""The measures of one run: their names, units and how a workload may report its own.

A workload that measures better than the outside can (a server under load) writes lines `STRATA_METRIC name=value` to the file
descriptor in $STRATA_METRICS_FD or to the file in $STRATA_METRICS_FILE; they replace what was measured of the process.
"""

import math
import re
from dataclasses import dataclass

from strata.errors import StrataError


@dataclass(frozen=True)
class Metric:
    """One measure: less is better for each."""

    name: str
    heading: str
    kind: str  # "seconds", "bytes" or "count"


METRICS = (
    Metric("wall_s", "wall", "seconds"),
    Metric("user_s", "user", "seconds"),
    Metric("system_s", "system", "seconds"),
    Metric("peak_rss_bytes", "peak RSS", "bytes"),
    Metric("minor_faults", "minor faults", "count"),
    Metric("major_faults", "major faults", "count"),
)
METRIC_NAMES = tuple(metric.name for metric in METRICS)

LINE_PATTERN = re.compile(r"STRATA_METRIC\s+(\S+?)=(\S+)\s*\Z")


def parse_reported(text: str) -> dict[str, float]:
    """The measures in what a workload wrote; of two lines for one measure the later counts. Other lines are not ours."""
    reported: dict[str, float] = {}
    for line in text.splitlines():
        if not line.startswith("STRATA_METRIC"):
            continue
        match = LINE_PATTERN.match(line)
        if not match:
            raise StrataError(f"metric line {line!r}: allowed: STRATA_METRIC name=value")
        name, value = match.groups()
        if name not in METRIC_NAMES:
            raise StrataError(f"metric {name!r}: unknown; allowed: {', '.join(METRIC_NAMES)}")
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not math.isfinite(number) or number < 0:
            raise StrataError(f"metric {name}={value}: allowed: a number that is not negative")
        reported[name] = number
    return reported
