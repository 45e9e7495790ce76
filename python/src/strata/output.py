"""Where `strata compare` writes: files that an hour of measuring must not end in vain for, and standard output."""

import errno
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from strata.errors import EXIT_USAGE, StrataError


class OutputFile:
    """A file that is opened before the measuring and written behind it. As a context manager it leaves nothing of itself that is not whole.

    A regular file appears or changes in one step, by way of a file beside it; a link stays, and what it names is written. A pipe or a
    device is written to where it is: to replace it would destroy it.
    """

    def __init__(self, option: str, name: str):
        self._option, self._name = option, name
        self._part: str | None = None
        if not name:
            raise StrataError(f"{option}: the file's name is empty", EXIT_USAGE)
        try:
            self._open()
        except OSError as error:
            self._leave()
            raise StrataError(f"{option}: {name}: {error.strerror}", EXIT_USAGE) from error

    def _open(self) -> None:
        try:
            mode = os.stat(self._name).st_mode
        except FileNotFoundError:
            mode = None
        if mode is not None and not stat.S_ISREG(mode):
            self._stream = open(self._name, "w", encoding="utf-8", errors="replace")
            return
        self._target = os.path.realpath(self._name)
        if mode is not None and not os.access(self._target, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        part = f"{self._target}.{os.getpid()}.part"
        self._stream = open(part, "x", encoding="utf-8", errors="replace")
        self._part = part
        if mode is not None:
            os.chmod(part, stat.S_IMODE(mode))

    def write(self, text: str) -> None:
        try:
            with self._stream:
                self._stream.write(text)
            if self._part:
                os.replace(self._part, self._target)
                self._part = None
        except OSError as error:
            raise StrataError(f"{self._option}: {self._name}: {error.strerror}") from error

    def __enter__(self) -> "OutputFile":
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stream.close()
        self._leave()

    def _leave(self) -> None:
        if self._part:
            with suppress(OSError):
                os.unlink(self._part)


@contextmanager
def printing() -> Iterator[None]:
    """Around what prints: an error of standard output becomes a message."""
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        # Python tries again at its end to write what is left.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise StrataError(f"standard output: {error.strerror}") from error
