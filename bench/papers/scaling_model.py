"""A model of how allocation scales with CPUs, from counts of visits and locks, and from times measured on the machine at hand.

One CPU needs for an operation, on average:

    Z        its own work: the program's, and the array of its CPU; nobody waits for anybody there
    D(lock)  for each lock: taken * hold + handed_over * lines * line

where `taken` and `handed_over` are counted per operation, on as many virtual CPUs as are asked about; `hold` is the time of a visit over the locks
taken in it, as if all of a visit were under its locks, and less where one thread was measured to need less for all of them together; `line` is the time
that a cache line takes from one CPU to another, and `lines` follow a lock: its own, that of what it guards, and those of the magazine that a depot moves.

n CPUs are then a closed network of queues: each thinks for Z, and visits each lock's queue for D(lock). Its throughput comes from exact mean value
analysis; it approaches n / (Z + sum of D) while nobody waits, and 1 / max D once one lock is always taken. What the model leaves out makes it
optimistic beyond that point (locks that are fought for cost more than a queue: spinning, sleeping, waking), and pessimistic before it (work outside of
locks is counted as under them; arrays that grow under contention halve the visits, but the clock of the simulation stands still). And the simulation makes
one operation after another: what two CPUs do at the same moment below the depot, where an operation takes the zone's lock several times in a row, and
whose descriptors and tags others read, it counts as one hand-over, or as none. For loads that spend their time there it is no more than an upper bound.
"""

from collections.abc import Sequence
from dataclasses import dataclass

LINES = 2
# Beside them, of a depot: 64 rounds of 8 bytes.
MAGAZINE_LINES = 8


@dataclass(frozen=True)
class Constants:
    """Nanoseconds, measured by scaling_constants.c."""

    fast_ns: float
    depot_ns: float
    slab_ns: float
    zone_ns: float
    line_ns: float


@dataclass(frozen=True)
class Lock:
    """Counts of one lock, per operation."""

    layer: str
    taken: float
    handed_over: float


@dataclass(frozen=True)
class Counts:
    """What one run of scaling_visits.c counted, per operation."""

    depot_visits: float
    slab_visits: float
    locks: Sequence[Lock]
    contention: int  # how often the depot's lock, or a shelf's, was found taken in all

    def handed_over(self) -> float:
        return sum(lock.handed_over for lock in self.locks)


def counts_of(run: dict) -> Counts:
    operations = run["operations"]
    locks = [Lock(one["layer"], one["taken"] / operations, one["handed_over"] / operations) for one in run["locks"]]
    return Counts(run["depot_visits"] / operations, run["slab_visits"] / operations, locks, run["contention"])


def hold_ns(counts: Counts, constants: Constants, layer: str) -> float:
    """How long a lock of this layer is held: a visit's time over the locks that it takes."""
    visit_ns = {"depot": constants.depot_ns, "slab": constants.slab_ns}.get(layer, constants.zone_ns)
    visits = {"depot": counts.depot_visits, "slab": counts.slab_visits}.get(layer, 0)
    taken = sum(lock.taken for lock in counts.locks if lock.layer == layer)
    return visit_ns * min(1.0, visits / taken) if visits and taken else visit_ns


def lines(layer: str) -> int:
    """Cache lines that come from the CPU that had the lock before."""
    return LINES + (MAGAZINE_LINES if layer == "depot" else 0)


def demands(counts: Counts, constants: Constants, hold_share: float = 1) -> list[float]:
    """D of each lock; of the time of visits as it was measured, `hold_share`."""
    return [
        lock.taken * hold_ns(counts, constants, lock.layer) * hold_share + lock.handed_over * lines(lock.layer) * constants.line_ns for lock in counts.locks
    ]


def busiest_layer(counts: Counts, constants: Constants) -> str:
    """Whose lock it is that ends the throughput; "" where no lock is taken."""
    return max(zip(demands(counts, constants), [lock.layer for lock in counts.locks], strict=True), default=(0, ""))[1]


def own_ns(measured_ns: float, counts: Counts, constants: Constants) -> float:
    """Z: what one thread was measured to need for an operation, without its visits of locks; at least what the array alone takes."""
    return max(constants.fast_ns, measured_ns - sum(demands(counts, constants)))


def hold_share(measured_ns: float, counts: Counts, constants: Constants) -> float:
    """Visits of another load may be dearer than those of this one, and can't take more than one thread needed: how much of their time is left."""
    demand = sum(demands(counts, constants))
    return min(1.0, (measured_ns - constants.fast_ns) / demand) if demand and measured_ns > constants.fast_ns else 1.0


def throughput(think_ns: float, demand_ns: Sequence[float], cpus: int) -> float:
    """Operations a nanosecond of so many CPUs: mean value analysis of a closed network with one kind of customers."""
    queues = [demand for demand in demand_ns if demand > 0]
    lengths = [0.0] * len(queues)
    rate = 0.0
    for n in range(1, cpus + 1):
        times = [demand * (1 + length) for demand, length in zip(queues, lengths, strict=True)]
        rate = n / (think_ns + sum(times))
        lengths = [rate * time for time in times]
    return rate
