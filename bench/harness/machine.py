"""What a reader needs to judge the figures: the kind of machine, in general words, and the state of the sources.

Nothing here tells one machine from another of its kind: no host name, no model name, no local suffix of the kernel's version.
"""

import os
import platform
import re
import subprocess
from pathlib import Path

# Written by bench/bench.py and bench/papers/papers.py.
GENERATED = re.compile(r"docs/(benchmarks\.md|papers\.md|images/papers/.*)$")

VENDORS = {"AuthenticAMD": "AMD", "GenuineIntel": "Intel", "0x41": "Arm", "0xc0": "Ampere", "0x61": "Apple"}


def describe() -> dict[str, str]:
    info = _read("/proc/cpuinfo")
    vendor = _field(info, "vendor_id") or _field(info, "CPU implementer")
    family = _field(info, "cpu family")
    cpu = " ".join(part for part in (platform.machine(), VENDORS.get(vendor, vendor), f"family {family}" if family else "") if part)
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    huge = re.search(r"\[(\w+)\]", _read("/sys/kernel/mm/transparent_hugepage/enabled"))
    return {
        "CPUs": str(len(os.sched_getaffinity(0))),
        "CPU": cpu,
        "virtual machine": "yes" if re.search(r"^flags.*\bhypervisor\b", info, re.MULTILINE) else "no",
        "memory": f"{gib:.0f} GiB",
        "kernel": f"{platform.system()} {kernel_version(platform.release())}",
        "page size": f"{os.sysconf('SC_PAGE_SIZE') // 1024} KiB",
        "transparent huge pages": huge[1] if huge else "unknown",
    }


def kernel_version(release: str) -> str:
    """Major and minor: what comes after says more about a distribution than about speed."""
    match = re.match(r"\d+\.\d+", release)
    return match[0] if match else release


def commit(project: Path) -> str:
    def git(*words: str) -> str:
        try:
            done = subprocess.run(["git", "-C", str(project), *words], capture_output=True, text=True)
        except OSError:
            return ""
        return done.stdout.strip() if done.returncode == 0 else ""

    name = git("rev-parse", "--short=12", "HEAD")
    if not name:
        return "none"
    # The documents that are about to be written do not count as changes.
    changed = [line for line in git("status", "--porcelain", "--untracked-files=no").splitlines() if not GENERATED.search(line)]
    return name + (" with changes" if changed else "")


def load_average() -> float:
    return os.getloadavg()[0]


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def _field(text: str, name: str) -> str:
    match = re.search(rf"^{re.escape(name)}\s*:\s*(.+)$", text, re.MULTILINE)
    return match[1].strip() if match else ""
