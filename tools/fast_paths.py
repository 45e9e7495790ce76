#!/usr/bin/env python3
"""Compares the machine code of the fast paths with a golden file, so that an instruction more is seen in the change that brings it.

    tools/fast_paths.py build/release            compares
    tools/fast_paths.py build/release --write    makes the golden file anew: look at its diff before you commit it

The file is tests/golden/fast_paths.ARCHITECTURE.txt. Addresses, offsets into structures and padding are left out, as they change with everything. The very
instructions are compared where the compiler is the file's own (name and major version); another one is only held to the number of instructions, within
a tenth.
"""
from __future__ import annotations

import argparse
import difflib
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FUNCTIONS = ["malloc", "free", "calloc", "_Znwm", "_ZdlPv", "_ZdlPvm", "strata_cache_alloc", "strata_cache_free", "strata_kmem_cookie_alloc",
             "strata_kmem_cookie_free", "strata_kmem_free"]
VARIABLES = {"heap", "platform_cpu"}
ARCHITECTURE = platform.machine()
SLACK = 0.1


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | {"LC_ALL": "C"}).stdout


def compiler(library: Path) -> str:
    """Such as "GCC 12", from what the compiler left in the library."""
    words = run("readelf", "-p", ".comment", str(library))
    if match := re.search(r"clang version (\d+)", words):
        return f"clang {match[1]}"
    match = re.search(r"GCC: \(.*\) (\d+)", words)
    return f"GCC {match[1]}" if match else "unknown"


def addresses(library: Path) -> dict[str, int]:
    return {name: int(address, 16) for address, _, name in re.findall(r"^(\w+) (\w) (\S+)$", run("nm", "-D", "--defined-only", str(library)), re.M)}


def without_addresses(operands: str, here: dict[int, int]) -> str:
    """Jumps within the function go to #N, its N-th instruction; other names stay, without offsets."""
    if match := re.match(r"^(?:call )?([0-9a-f]+) <([^+>]+).*>$", operands):  # "addr32 call": lengthened by the linker
        target = int(match[1], 16)
        return f"#{here[target]}" if target in here else match[2]
    if "(%rip)" in operands:
        name = re.search(r"# [0-9a-f]+ <([^+>@]+)", operands)
        known = name[1] if name and name[1] in VARIABLES else "data"  # elsewhere the nearest symbol is an accident
        operands = re.sub(r"-?0x[0-9a-f]+\(%rip\)", f"{known}(%rip)", operands.split("#")[0].strip())
    return re.sub(r"-?0x[0-9a-f]{3,}\(", "FIELD(", operands)


def instructions(library: Path, start: int) -> list[str]:
    """The function at an address, up to the next symbol."""
    lines = []
    text = run("objdump", "-d", "--no-show-raw-insn", f"--start-address={start}", f"--stop-address={start + 4096}", str(library))
    for line in text.splitlines():
        if re.match(r"^[0-9a-f]+ <.*>:$", line) and int(line.split()[0], 16) != start:
            break
        if match := re.match(r"^\s+([0-9a-f]+):\t(\S+)\s*(.*?)\s*$", line):
            operation = match[2]
            operands = match[3]
            if operation == "cs" or operation.startswith(("nop", "data16")) or (operation == "xchg" and operands == "%ax,%ax"):
                continue
            lines.append((int(match[1], 16), operation, operands))
    here = {address: number for number, (address, _, _) in enumerate(lines)}
    return [f"{number:3} {operation} {without_addresses(operands, here)}".rstrip() for number, (_, operation, operands) in enumerate(lines)]


def disassembly(library: Path) -> dict[str, list[str]]:
    known = addresses(library)
    missing = [name for name in FUNCTIONS if name not in known]
    if missing:
        sys.exit(f"fast paths: {library} has no {', '.join(missing)}")
    return {name: instructions(library, known[name]) for name in FUNCTIONS}


def read_golden(path: Path) -> tuple[str, dict[str, list[str]]]:
    first, *rest = path.read_text().splitlines()
    functions: dict[str, list[str]] = {}
    for line in rest:
        if line.endswith(":"):
            functions[line[:-1]] = current = []
        elif line:
            current.append(line)
    return first.removeprefix("compiled by "), functions


def differences(golden: dict[str, list[str]], found: dict[str, list[str]], same_compiler: bool) -> list[str]:
    problems = []
    for name in FUNCTIONS:
        before, now = golden.get(name, []), found[name]
        if same_compiler and before != now:
            problems.append(f"{name}: {len(before)} instructions were {len(now)} now")
            problems += ["  " + line for line in difflib.unified_diff(before, now, "golden", "built", lineterm="", n=2)]
        elif not same_compiler and len(now) > len(before) * (1 + SLACK):
            problems.append(f"{name}: {len(now)} instructions, more than a tenth above the golden file's {len(before)}")
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    parser.add_argument("--golden", type=Path, default=ROOT / f"tests/golden/fast_paths.{ARCHITECTURE}.txt")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    library, golden_path = options.build / "libstrata.so", options.golden
    made_by, found = compiler(library), disassembly(library)
    if options.write:
        parts = [f"{name}:\n" + "\n".join(lines) for name, lines in found.items()]
        golden_path.write_text(f"compiled by {made_by}\n\n" + "\n\n".join(parts) + "\n")
    if not golden_path.exists():
        print(f"fast paths: no golden file for {ARCHITECTURE}, 0 differences")
        return 0
    golden_by, golden = read_golden(golden_path)
    problems = differences(golden, found, golden_by == made_by)
    print("\n".join(problems))
    total = sum(len(lines) for lines in found.values())
    how = "instruction by instruction" if golden_by == made_by else f"by number, as {golden_by} made the golden file"
    wrong = sum(not line.startswith(" ") for line in problems)
    print(f"fast paths: {len(found)} functions, {total} instructions of {made_by}, compared {how}, {wrong} differences")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
