"""The allocators that `strata compare` measures: the system's, strata, and the peers that are installed.

Each is a name and a value for LD_PRELOAD. The system's malloc is preloaded as well, as libc.so.6: that changes nothing for
most programs, and takes one that is linked with another allocator (Debian's redis-server with jemalloc) back to glibc's, so
that "system" means the same for every program.
"""

import os
import re
import subprocess
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from strata.elf import Elf, Target
from strata.errors import StrataError
from strata.library import check_preloadable

SYSTEM, STRATA = "system", "strata"

# Libraries of Debian's packages that replace malloc when preloaded, in the order of the table.
PEER_LIBRARIES = {
    "mimalloc": re.compile(r"libmimalloc\.so\.\d+"),
    "jemalloc": re.compile(r"libjemalloc\.so\.\d+"),
    "tcmalloc-min": re.compile(r"libtcmalloc_minimal\.so\.\d+"),
    "tcmalloc": re.compile(r"libtcmalloc\.so\.\d+"),
    "tbbmalloc": re.compile(r"libtbbmalloc_proxy\.so\.\d+"),
}
LDCONFIG_LINE = re.compile(r"\s*(\S+) \([^)]*\) => (\S+)")
LDCONFIG_PLACES = ("/sbin/ldconfig", "/usr/sbin/ldconfig")


@dataclass(frozen=True)
class Candidate:
    """One allocator under comparison."""

    name: str
    preload: str
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_peer(self) -> bool:
        return self.name not in (SYSTEM, STRATA)


def system_candidate(library: Path, as_is: bool) -> Candidate:
    """The system's malloc; `as_is` preloads nothing, so that the program keeps an allocator that it is linked with."""
    with Elf(library) as elf:
        libc = elf.libc()
    # No folder: the program's own loader finds the C library that it uses anyway.
    return Candidate(SYSTEM, "libc.so.6" if libc == "glibc" and not as_is else "")


def strata_candidate(library: Path, options: list[str]) -> Candidate:
    """strata, with options of its own behind those in the environment."""
    conf = ",".join(part for part in (os.environ.get("STRATA_CONF", ""), *options) if part)
    return Candidate(STRATA, str(library), {"STRATA_CONF": conf} if conf else {})


def installed_peers(target: Target) -> dict[str, Path]:
    """Name to library of each peer that the loader's cache, or without one the usual folders, has for this machine."""
    libraries = _from_loader_cache() or _from_folders()
    found: dict[str, Path] = {}
    for name, pattern in PEER_LIBRARIES.items():
        # The highest version of several; the cache lists foreign architectures too.
        for path in sorted((p for p in libraries if pattern.fullmatch(p.name)), key=_version, reverse=True):
            if _is_for(path, target):
                found[name] = path
                break
    return found


def choose_peers(choice: str, target: Target) -> list[Candidate]:
    """The peers that --peers asks for: 'auto', 'none', or names and paths with commas between."""
    installed = installed_peers(target)
    if choice == "auto":
        return [Candidate(name, str(path)) for name, path in installed.items()]
    if choice == "none":
        return []
    chosen: dict[str, Candidate] = {}
    for word in choice.split(","):
        name, path = word, installed.get(word)
        if "/" in word:
            path = Path(os.path.abspath(word))
            if not os.path.isfile(path):
                raise StrataError(f"--peers: {word}: no such file")
            check_preloadable(path)
            name = path.name.removeprefix("lib").split(".so")[0]
        if path is None:
            known = f"known: {', '.join(PEER_LIBRARIES)}; installed: {', '.join(installed) or 'none'}"
            raise StrataError(f"--peers: {word!r}: allowed: auto, none, or a list of installed peers and paths ({known})")
        if not _is_for(path, target):
            raise StrataError(f"--peers: {word}: not a library for {target}")
        while name in chosen or name in (SYSTEM, STRATA):
            name += "'"
        chosen[name] = Candidate(name, str(path))
    return list(chosen.values())


def _from_loader_cache() -> list[Path]:
    for ldconfig in LDCONFIG_PLACES:
        try:
            done = subprocess.run([ldconfig, "-p"], capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})
        except OSError:
            continue
        if done.returncode == 0:
            return [Path(match[2]) for line in done.stdout.splitlines() if (match := LDCONFIG_LINE.match(line))]
    return []


def _from_folders() -> list[Path]:
    folders = ["/lib", "/usr/lib", "/usr/local/lib", "/usr/lib64"]
    if multiarch := sysconfig.get_config_var("MULTIARCH"):
        folders.append(f"/usr/lib/{multiarch}")
    return [path for folder in folders for path in sorted(Path(folder).glob("lib*malloc*.so.*"))]


def _version(path: Path) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", path.name)))


def _is_for(path: Path, target: Target) -> bool:
    try:
        with Elf(path) as elf:
            return elf.target == target
    except StrataError:
        return False
