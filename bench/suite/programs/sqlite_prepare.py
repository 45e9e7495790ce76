"""Makes the input of the workload "sqlite" in the scratch folder, and the output that a right run has.

orders.csv is a fixed pseudo-random table; expected.txt holds what the queries at the end of sqlite_load.sql say, computed here
without SQLite. The seed and the number of rows are fixed.
"""

import csv
import random
from collections import defaultdict
from pathlib import Path

ROWS = 250_000
CUSTOMERS = 8_000
WORDS = [f"{first}{second}" for first in ("red", "blue", "old", "new", "raw") for second in ("ink", "oak", "tin", "wax", "tea")]


def main() -> None:
    rng = random.Random(19990412)
    total = 0
    by_customer: dict[int, int] = defaultdict(int)
    with_word = 0
    top: list[tuple[int, int]] = []
    with Path("orders.csv").open("w", newline="", encoding="ascii") as stream:
        writer = csv.writer(stream)
        for number in range(ROWS):
            customer = rng.randrange(CUSTOMERS)
            cents = rng.randrange(1, 1_000_000)
            item = " ".join(rng.choice(WORDS) for _ in range(rng.randrange(1, 7)))
            writer.writerow([number, customer, cents, f"{rng.getrandbits(64):016x}", item])
            total += cents
            by_customer[customer] += cents
            with_word += "redtea" in item.split()
            top.append((cents, number))
    best = min(by_customer, key=lambda customer: (-by_customer[customer], customer))
    # The cheap half is deleted and the rest counted, so that the database also shrinks.
    kept = [(cents, number) for cents, number in top if cents >= 500_000]
    lines = [
        f"rows|{ROWS}",
        f"total|{total}",
        f"customers|{len(by_customer)}",
        f"best|{best}|{by_customer[best]}",
        f"word|{with_word}",
        f"kept|{len(kept)}|{sum(number for _, number in kept)}",
        "integrity|ok",
    ]
    Path("expected.txt").write_text("\n".join(lines) + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
