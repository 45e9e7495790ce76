"""What the tool has to know of an ELF file: for whom it was built, how it is loaded, which symbols it has.

pyelftools does the parsing, but not of every symbol: a big program has hundreds of thousands, which would take it ten seconds.
"""

import mmap
import re
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, wraps
from pathlib import Path
from typing import NamedTuple, ParamSpec, TypeVar

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import Symbol, SymbolTableSection

from strata.errors import StrataError

ELF_MAGIC = b"\x7fELF"
SYMBOL_BYTES = (16, 24)  # Elf32_Sym, Elf64_Sym


# What pyelftools raises where a file's tables are wrong.
BROKEN = (ELFError, OSError, ValueError, KeyError, IndexError, AttributeError, AssertionError, OverflowError, MemoryError)


def _unreadable(path: Path, error: Exception) -> StrataError:
    return StrataError(f"{path}: not an ELF file that can be read: {str(error) or type(error).__name__}")


P = ParamSpec("P")
R = TypeVar("R")


def _of_a_sound_file(method: Callable[P, R]) -> Callable[P, R]:
    """A method of Elf that raises StrataError where the file's tables are wrong."""

    @wraps(method)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except BROKEN as error:
            raise _unreadable(args[0].path, error) from error

    return checked


@dataclass(frozen=True)
class Target:
    """The machine that a file is for. Two files can live in one process only if these are equal."""

    machine: str | int  # a number where nobody has given it a name
    bits: int
    little_endian: bool

    def __str__(self) -> str:
        name = f"machine {self.machine}" if isinstance(self.machine, int) else self.machine.removeprefix("EM_").replace("_", "-").lower()
        return f"{name} ({self.bits}-bit, {'little' if self.little_endian else 'big'}-endian)"


class Symbols(NamedTuple):
    """The outcome of a search for symbols."""

    defined: set[str]
    imported: set[str]


class Elf:
    """An open ELF file. Use as a context manager."""

    def __init__(self, path: Path):
        self.path = path
        try:
            self._stream = path.open("rb")
        except OSError as error:
            raise StrataError(f"{path}: cannot be read: {error.strerror}") from error
        try:
            self._file = ELFFile(self._stream)
            self.target = Target(self._file["e_machine"], self._file.elfclass, self._file.little_endian)
            self.file_type: str = self._file["e_type"]
            self._segments = list(self._file.iter_segments())
        except BROKEN as error:
            self._stream.close()
            raise _unreadable(path, error) from error

    def __enter__(self) -> "Elf":
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stream.close()

    @cached_property
    @_of_a_sound_file
    def interpreter(self) -> str | None:
        """The dynamic loader that the program asks for; a static program has none."""
        for segment in self._segments:
            if segment["p_type"] == "PT_INTERP":
                return segment.get_interp_name()
        return None

    @cached_property
    @_of_a_sound_file
    def needed(self) -> tuple[str, ...]:
        """The libraries that the file is linked with (DT_NEEDED), in order."""
        for segment in self._segments:
            if segment["p_type"] == "PT_DYNAMIC":
                return tuple(tag.needed for tag in segment.iter_tags("DT_NEEDED"))
        return ()

    def libc(self) -> str | None:
        """'glibc', 'musl' or None where the file doesn't say."""
        names = [self.interpreter.rsplit("/", 1)[-1]] if self.interpreter else []
        names += self.needed
        for name in names:
            if name.startswith(("ld-musl-", "libc.musl-")) or name == "libc.so":
                return "musl"
            if name.startswith(("ld-linux", "ld64.so")) or name == "libc.so.6" or name == "ld.so.1":
                return "glibc"
        return None

    @_of_a_sound_file
    def shows_imports(self) -> bool:
        """Whether there is a table that tells what the file takes from libraries. Without sections there is none to be found."""
        section = self._file.get_section_by_name(".dynsym")
        return isinstance(section, SymbolTableSection) and section["sh_entsize"] in SYMBOL_BYTES

    @_of_a_sound_file
    def symbols(self, names: Iterable[str], exported_only: bool = False) -> "Symbols":
        """Which of `names` the file defines itself, and which it takes from a library.

        Looks in the dynamic and, unless `exported_only`, the full symbol table.
        """
        found = Symbols(set(), set())
        for table in (".dynsym",) if exported_only else (".dynsym", ".symtab"):
            section = self._file.get_section_by_name(table)
            if not isinstance(section, SymbolTableSection):
                continue
            for symbol in self._named(section, names):
                if symbol["st_info"]["type"] == "STT_FILE":
                    continue
                (found.imported if symbol["st_shndx"] == "SHN_UNDEF" else found.defined).add(symbol.name)
        return found

    def _named(self, section: SymbolTableSection, names: Iterable[str]) -> Iterator[Symbol]:
        """The symbols of `section` with these names. A symbol starts with the offset of its name, so one that has another is not parsed."""
        strings = section.stringtable.data()
        offsets = {match.start() for name in names for match in re.finditer(re.escape(name.encode()) + b"\0", strings)}
        size = section["sh_entsize"]
        if not offsets or size not in SYMBOL_BYTES:
            return
        table = section.data()
        name_offset = struct.Struct(f"{'<' if self.target.little_endian else '>'}I{size - 4}x")
        for index, (offset,) in enumerate(name_offset.iter_unpack(table[: len(table) // size * size])):
            if offset in offsets:
                yield section.get_symbol(index)

    @_of_a_sound_file
    def shows_functions(self) -> bool:
        """Whether the symbol table has the functions that no library can see. Stripping takes them, with that table or by themselves."""
        section = self._file.get_section_by_name(".symtab")
        if not isinstance(section, SymbolTableSection):
            return False
        # Local symbols come first, and some of the start-up code is among them.
        locals_end = min(section["sh_info"], section.num_symbols())
        return any(section.get_symbol(i)["st_info"]["type"] == "STT_FUNC" for i in range(locals_end))

    @_of_a_sound_file
    def texts(self, wanted: Iterable[bytes]) -> list[bytes]:
        """Which of these byte strings are in what is loaded of the file."""
        with mmap.mmap(self._stream.fileno(), 0, access=mmap.ACCESS_READ) as image:
            loaded = [(part["p_offset"], part["p_offset"] + part["p_filesz"]) for part in self._segments if part["p_type"] == "PT_LOAD"]
            return [text for text in wanted if any(image.find(text, start, end) >= 0 for start, end in loaded)]

    @cached_property
    def zeroed_bytes(self) -> int:
        """Memory that the program has from the start and that is not in the file (.bss)."""
        return sum(part["p_memsz"] - part["p_filesz"] for part in self._segments if part["p_type"] == "PT_LOAD")


def is_elf(path: Path) -> bool:
    """True if the file can be read and starts like an ELF file."""
    try:
        with path.open("rb") as stream:
            return stream.read(4) == ELF_MAGIC
    except OSError:
        return False
