"""Makes the input of the workload "z3" in the scratch folder, and the answers, which are known: questions that are hard, and none that is lucky."""

from itertools import combinations
from pathlib import Path

HOLES = 7
BITS = 9


def pigeons() -> list[str]:
    """HOLES + 1 pigeons in HOLES holes: no."""
    names = [[f"p{i}_{j}" for j in range(HOLES)] for i in range(HOLES + 1)]
    lines = ["(push)", *(f"(declare-const {name} Bool)" for row in names for name in row)]
    lines += [f"(assert (or {' '.join(row)}))" for row in names]
    lines += [f"(assert (not (and {names[a][j]} {names[b][j]})))" for j in range(HOLES) for a, b in combinations(range(HOLES + 1), 2)]
    return [*lines, "(check-sat)", "(pop)"]


def product() -> list[str]:
    """Multiplication by bits distributes over addition: a counterexample is asked for, and there is none."""
    vector = f"(_ BitVec {BITS})"
    lines = ["(push)", *(f"(declare-const {name} {vector})" for name in "abc")]
    return [*lines, "(assert (distinct (bvmul a (bvadd b c)) (bvadd (bvmul c a) (bvmul b a))))", "(check-sat)", "(pop)"]


def chains() -> list[str]:
    """Linear arithmetic and uninterpreted functions over a long chain: satisfiable, with much bookkeeping."""
    count = 700
    lines = ["(push)", "(declare-fun f (Int) Int)", *(f"(declare-const x{i} Int)" for i in range(count))]
    for i in range(count - 1):
        lines.append(f"(assert (and (< x{i} x{i + 1}) (<= (- x{i + 1} x{i}) {i % 7 + 2}) (or (= (f x{i}) x{(i * 7) % count}) (= (f x{i}) (+ x{i} 1)))))")
    return [*lines, "(check-sat)", "(pop)"]


def main() -> None:
    Path("input.smt2").write_text("\n".join([*pigeons(), *product(), *chains()]) + "\n", encoding="ascii")
    Path("expected.txt").write_text("unsat\nunsat\nsat\n", encoding="ascii")


if __name__ == "__main__":
    main()
