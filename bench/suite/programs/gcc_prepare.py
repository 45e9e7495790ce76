"""Makes the input of the workload "gcc" in the scratch folder: a C program of many functions, and what it prints when built without optimisation."""

import random
import subprocess
from pathlib import Path

FUNCTIONS = 80
OPERATORS = ("+", "-", "*", "^", "|", "&")


def function(rng: random.Random, number: int) -> str:
    lines = [f"static uint32_t f{number}(uint32_t a, uint32_t b, struct s *s) {{", "    uint32_t x = a, y = b;"]
    for step in range(rng.randrange(6, 16)):
        kind, constant = rng.randrange(4), rng.randrange(1, 1 << 16)
        operator = rng.choice(OPERATORS)
        if kind == 0:
            lines.append(f"    for (unsigned i = 0; i < {rng.randrange(3, 20)}; i++) s->v[(i + {step}) % 16] += x {operator} (y + i);")
        elif kind == 1:
            lines.append(f"    if ((x {operator} y) % {rng.randrange(2, 9)} == 1) x = x * {constant}u + s->v[{rng.randrange(16)}]; else y ^= x >> {rng.randrange(1, 9)};")
        elif kind == 2:
            cases = " ".join(f"case {i}: y += {rng.randrange(1000)}u {operator} x; break;" for i in range(rng.randrange(3, 9)))
            lines.append(f"    switch (x % 11) {{ {cases} default: x -= y; }}")
        else:
            callee = f"f{rng.randrange(number)}" if number else "g"
            lines.append(f"    if (s->depth < 3) {{ s->depth++; y += {callee}(x, y {operator} {constant}u, s); s->depth--; }}")
    return "\n".join([*lines, "    return x ^ y;", "}"])


def main() -> None:
    rng = random.Random(19870323)
    body = [function(rng, number) for number in range(FUNCTIONS)]
    calls = "\n".join(f"    sum = sum * 31 + f{number}(sum, {number}u, &s);" for number in range(FUNCTIONS))
    Path("gcc_source.c").write_text(
        "#include <stdint.h>\n#include <stdio.h>\nstruct s { uint32_t v[16], depth; };\n"
        "static uint32_t g(uint32_t a, uint32_t b, struct s *s) { return a + b * s->v[3]; }\n" + "\n".join(body)
        + "\nint main(void) {\n    static struct s s;\n    uint32_t sum = g(1, 2, &s);\n" + calls + '\n    printf("%u\\n", sum);\n    return 0;\n}\n',
        encoding="ascii",
    )  # fmt: skip
    subprocess.run(["gcc", "-O0", "-w", "gcc_source.c", "-o", "plain"], check=True)
    Path("expected.txt").write_bytes(subprocess.run(["./plain"], check=True, capture_output=True).stdout)


if __name__ == "__main__":
    main()
