"""Makes the input of the workload "ripgrep" in the scratch folder: a tree of text files, and what is found in it, worked out by Python."""

import random
import re
from collections import Counter
from pathlib import Path

FILES = 4000
WORDS = ["reaction", "undone", "retention", "unused", "recorded", "plain", "text", "seldom", "unaffected", "regulation"]


def main() -> None:
    rng = random.Random(20160923)
    found: Counter[str] = Counter()
    for number in range(FILES):
        folder = Path("tree") / f"d{number % 40}"
        folder.mkdir(parents=True, exist_ok=True)
        lines = [" ".join([*rng.choices(WORDS, k=9), f"{rng.getrandbits(14):x}"]) for _ in range(120)]
        text = "\n".join(lines) + "\n"
        (folder / f"f{number}.txt").write_text(text, encoding="ascii")
        found.update(re.findall(r"(?:re|un)[a-z]+(?:tion|ed) [0-9a-f]{4,}", text))
    # As `uniq -c | wc -lc` counts it: seven columns of number, a blank, the text, an end of line.
    characters = sum(max(7, len(str(count))) + 1 + len(text) + 1 for text, count in found.items())
    Path("expected.txt").write_text(f"{len(found):7d} {characters:7d}\n", encoding="ascii")


if __name__ == "__main__":
    main()
