"""Writes the input of `git fast-import` for the workload "git" to standard output: COMMITS commits to some hundred files."""

import random
import sys

COMMITS = 300
FILES = 150


def main() -> None:
    rng = random.Random(20050407)
    files = {f"d{i % 12}/f{i}.txt": [f"line {rng.getrandbits(48):x}" for _ in range(150)] for i in range(FILES)}
    out = sys.stdout
    for commit in range(COMMITS):
        out.write(f"commit refs/heads/main\ncommitter A <a@example.org> {1700000000 + commit * 60} +0000\ndata 7\nchange\n\n")
        for name in files if commit == 0 else rng.sample(sorted(files), 8):
            lines = files[name]
            for _ in range(6):
                lines[rng.randrange(len(lines))] = f"changed {rng.getrandbits(48):x}"
            if rng.random() < 0.2:
                lines.insert(rng.randrange(len(lines)), f"new {commit}")
            text = "\n".join(lines) + "\n"
            out.write(f"M 100644 inline {name}\ndata {len(text)}\n{text}\n")


if __name__ == "__main__":
    main()
