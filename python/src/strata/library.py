"""Finds libstrata.so: the one that this command was installed with.

Order, first hit wins: --lib, $STRATA_LIB, the package's own lib/ folder, the prefix recorded at install, lib folders of the
Python's prefix, the build tree that this source file lies in or was installed from. A place that a person named (the first
two) must have the library; the others are only looked into.
"""

import errno
import os
import stat
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from strata.elf import Elf, Target, is_elf
from strata.errors import StrataError

LIBRARY_NAME = "libstrata.so"
# What only strata exports; it tells the library from any other that --lib may name.
MARK_SYMBOL = "strata_malloc"


@dataclass(frozen=True)
class Place:
    """One place where the library may be: why it is looked into, and the file."""

    reason: str
    path: Path


def lib_folders(prefix: Path) -> list[Path]:
    """The folders under a prefix where an install may put libraries."""
    folders = [prefix / "lib"]
    if multiarch := sysconfig.get_config_var("MULTIARCH"):
        folders.append(prefix / "lib" / multiarch)
    folders.append(prefix / "lib64")
    return folders


def recorded_path(name: str) -> Path | None:
    """A path that python/setup.py wrote into the package: the prefix of `STRATA_PREFIX=... pip install`, or the source tree."""
    try:
        text = (Path(__file__).parent / name).read_text(encoding="utf-8").strip()
    except OSError:
        return None
    return Path(text) if text else None


def built_in(tree: Path) -> list[Path]:
    """Where a source tree has the library: the release preset builds beside python/."""
    return [tree / folder / LIBRARY_NAME for folder in ("build/release", "build")]


def searched_places() -> Iterator[Place]:
    """The places that are looked into when nobody named one, in order."""
    package = Path(__file__).resolve().parent
    yield Place("package data", package / "lib" / LIBRARY_NAME)
    if prefix := recorded_path("prefix.txt"):
        for folder in lib_folders(prefix):
            yield Place("prefix recorded at install", folder / LIBRARY_NAME)
    for folder in lib_folders(Path(sys.prefix)):
        yield Place("prefix of this Python", folder / LIBRARY_NAME)
    # python/src/strata/library.py of a source tree.
    if package.parent.name == "src" and package.parent.parent.name == "python":
        for path in built_in(package.parent.parent.parent):
            yield Place("build tree", path)
    if tree := recorded_path("build_tree.txt"):
        for path in built_in(tree):
            yield Place("build tree recorded at install", path)


def find_library(named: str | None = None) -> Place:
    """The library to use, as an absolute path, or StrataError that says where it was looked for."""
    if named is not None:
        return Place("--lib", _named_file("--lib", named))
    if from_env := os.environ.get("STRATA_LIB"):
        return Place("STRATA_LIB", _named_file("STRATA_LIB", from_env))
    looked: list[str] = []
    for place in searched_places():
        # Not Path.is_file, which raises where a folder can't be looked into.
        if os.path.isfile(place.path):
            return Place(place.reason, check_preloadable(place.path.absolute()))
        looked.append(f"  {place.path} ({place.reason})")
    raise StrataError(f"{LIBRARY_NAME} not found; name it with --lib PATH or STRATA_LIB=PATH. Looked for:\n" + "\n".join(looked))


def _named_file(source: str, value: str) -> Path:
    path = Path(os.path.abspath(value))
    if os.path.isdir(path):
        path = path / LIBRARY_NAME
    try:
        is_file = stat.S_ISREG(path.stat().st_mode)
    except OSError as error:
        raise _no_library(source, value, error.strerror.lower()) from error
    if not is_file:
        raise _no_library(source, value, "not a file")
    return check_preloadable(path)


def _no_library(source: str, value: str, reason: str) -> StrataError:
    return StrataError(f"{source}: {value}: {reason}; allowed: the path of {LIBRARY_NAME}, or a folder with it")


def check_preloadable(path: Path) -> Path:
    """`path` if LD_PRELOAD can carry it; otherwise StrataError."""
    # The dynamic loader splits LD_PRELOAD at colons and blanks, puts its own words in for $LIB and $ORIGIN, and can't be told not to.
    if bad := sorted({char for char in str(path) if char in ":$" or char.isspace()}):
        raise StrataError(f"{path}: LD_PRELOAD cannot carry a path with {' or '.join(map(repr, bad))}; move the library")
    if not os.access(path, os.R_OK):
        raise StrataError(f"{path}: cannot be read: {os.strerror(errno.EACCES)}")
    if not is_elf(path):
        raise StrataError(f"{path}: not a shared library (no ELF header)")
    return path


def is_strata(path: Path) -> bool:
    """True if the library is strata's, whatever its file is called."""
    with Elf(path) as elf:
        return bool(elf.symbols([MARK_SYMBOL], exported_only=True).defined)


def target_of(path: Path) -> Target:
    """The machine that the library is for."""
    with Elf(path) as elf:
        return elf.target
