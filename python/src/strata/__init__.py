"""The `strata` command: runs programs under the strata allocator and compares allocators on real programs."""

from importlib import metadata

try:
    __version__ = metadata.version("strata")
except metadata.PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0+source"
