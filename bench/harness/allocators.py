"""The allocators under comparison, each a name and a value for LD_PRELOAD, proven to be the one that answers malloc.

The bar is set by glibc, Debian's mimalloc, jemalloc and gperftools, and whatever --peer names besides: each is an allocator that
a user could pick instead. strata itself is no rival of its own, neither with other options (--variant) nor as another build (--peer).
"""

import json
import os
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from .launching import Launcher, RunFailed

GLIBC, STRATA = "glibc", "strata"
# strata with per-thread caches, as where rseq is missing.
FALLBACK, FALLBACK_CONF = "strata-no-rseq", "rseq:off"
DEBIAN_PEERS = {
    "mimalloc": "libmimalloc.so.2",
    "jemalloc": "libjemalloc.so.2",
    "tcmalloc": "libtcmalloc_minimal.so.4",
}
LIBRARY_FOLDERS = ("/usr/lib/{triplet}", "/lib/{triplet}", "/usr/lib64", "/usr/lib", "/usr/local/lib")


@dataclass(frozen=True)
class Allocator:
    """One allocator; `in_bar` says whether strata has to be as good as it."""

    name: str
    preload: str = ""
    env: dict[str, str] = field(default_factory=dict)
    in_bar: bool = False
    version: str = ""

    @property
    def is_strata(self) -> bool:
        return self.name == STRATA


def find_library(name: str) -> Path | None:
    triplet = f"{os.uname().machine}-linux-gnu"
    for folder in LIBRARY_FOLDERS:
        path = Path(folder.format(triplet=triplet)) / name
        if path.exists():
            return path
    return None


def named_path(option: str, text: str) -> tuple[str, str]:
    """NAME=VALUE of --peer and --variant."""
    name, equals, value = text.partition("=")
    if not equals or not re.fullmatch(r"[\w.+-]+", name) or not value:
        raise RunFailed(f"{option} {text}: allowed: NAME=VALUE")
    return name, value


def named_library(text: str) -> tuple[str, str, dict[str, str]]:
    """NAME=FILE.so[,VARIABLE=VALUE]... of --peer."""
    name, rest = named_path("--peer", text)
    path, *variables = re.split(r",(?=[A-Z][A-Z0-9_]*=)", rest)
    if not Path(path).is_file():
        raise RunFailed(f"--peer {name}: {path}: no such file")
    env = dict(variable.split("=", 1) for variable in variables)
    if refused := [variable for variable in env if variable == "LD_PRELOAD"]:
        raise RunFailed(f"--peer {name}: {', '.join(refused)} is what the library itself is named by")
    return name, str(Path(path).resolve()), env


def collect(strata: Path | None, peers: Iterable[str], variants: Iterable[str]) -> tuple[list[Allocator], list[str]]:
    """The allocators to measure, strata first, and what is missing."""
    found: list[Allocator] = []
    missing: list[str] = []
    if strata:
        conf = os.environ.get("STRATA_CONF", "")
        found.append(Allocator(STRATA, str(strata.resolve()), {"STRATA_CONF": conf} if conf else {}))
        for text in variants:
            name, conf = named_path("--variant", text)
            found.append(Allocator(name, str(strata.resolve()), {"STRATA_CONF": conf}))
    elif tuple(variants):
        raise RunFailed("--variant needs libstrata.so")
    found.append(Allocator(GLIBC, in_bar=True))
    for name, library in DEBIAN_PEERS.items():
        path = find_library(library)
        if path:
            found.append(Allocator(name, str(path), in_bar=True))
        else:
            missing.append(f"{name} ({library})")
    for text in peers:
        name, path, env = named_library(text)
        found.append(Allocator(name, path, env, in_bar=True))
    names = [allocator.name for allocator in found]
    for name in names:
        if names.count(name) > 1:
            raise RunFailed(f"{name}: two allocators of this name")
    return found, missing


def prove(allocator: Allocator, launcher: Launcher, probe: Path) -> Allocator:
    """The allocator with its version, once a program under it was seen to get malloc and free from it."""
    seen = json.loads(launcher.run([str(probe)], allocator.preload, allocator.env).output)
    wanted = Path(allocator.preload).resolve() if allocator.preload else None
    for function in ("malloc", "free"):
        provider = Path(seen[function]).resolve()
        if wanted and provider != wanted:
            raise RunFailed(f"{allocator.name}: {function} comes from {provider}, not from {wanted}")
        if not wanted and not provider.name.startswith("libc"):
            raise RunFailed(f"{allocator.name}: {function} comes from {provider}, not from the C library")
    # A library that tells no version is at least told by its file; strata's own is that of the commit.
    version = _version(allocator, seen) or (Path(allocator.preload).name if allocator.in_bar else "")
    return replace(allocator, version=version, in_bar=allocator.in_bar and not seen["strata"])


def _version(allocator: Allocator, seen: dict) -> str:
    if allocator.name == GLIBC:
        return seen["libc"]
    if allocator.preload and (package := _debian_version(allocator.preload)):
        return f"Debian {package}"
    return seen["version"]


def _debian_version(path: str) -> str:
    try:
        owner = subprocess.run(["dpkg-query", "-S", path], capture_output=True, text=True)
        if owner.returncode:
            return ""
        package = owner.stdout.split(": ")[0].split(",")[0]
        shown = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", package], capture_output=True, text=True)
    except OSError:
        return ""
    return shown.stdout.strip() if shown.returncode == 0 else ""
