"""Finds the program that a command line names, and says whether LD_PRELOAD can replace its malloc.

`locate` follows execvp(3). `inspect` follows scripts to the program that the kernel would really start, and collects what
stands in the way, and what leaves a doubt. Such lists that are empty are no proof yet that malloc leads to strata: the library's own check at
start, verify:on, is.
"""

import errno
import getopt
import os
import re
import shlex
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from strata.elf import Elf, Target, is_elf
from strata.errors import EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND, StrataError

# The kernel follows this many interpreters of interpreters and then says ELOOP.
MAX_SCRIPT_DEPTH = 5
SHEBANG_BYTES = 256

NAME_BYTES_MAX = 255
# After these, execvp tries the next folder of PATH; at the end the last of them is what it fails with.
SEARCH_GOES_ON = (errno.ENOENT, errno.ESTALE, errno.ENOTDIR, errno.ENODEV, errno.ETIMEDOUT)

# A program that defines one of these comes before every preloaded library in the order of lookup.
MALLOC_SYMBOLS = ("malloc", "calloc", "realloc", "free")
# The prefixed names under which allocators are built into a program: its calls never reach malloc.
PRIVATE_ALLOCATORS = {
    "je_malloc": "jemalloc",
    "_rjem_malloc": "jemalloc (Rust's tikv-jemallocator)",
    "mi_malloc": "mimalloc",
    "tc_malloc": "tcmalloc",
    "rpmalloc": "rpmalloc",
    "sn_malloc": "snmalloc",
    "sn_rust_alloc": "snmalloc (Rust)",
    "scudo_malloc": "Scudo",
    "hoard_malloc": "Hoard",
}
# A sanitizer's runtime is an allocator of its own, built in or linked, and insists on being first.
SANITIZERS = {"__asan_init": "AddressSanitizer", "__tsan_init": "ThreadSanitizer", "__msan_init": "MemorySanitizer"}
# Calls past malloc to a linked allocator. What they return would reach strata's free.
FOREIGN_CALLS = ("mallocx", "rallocx", "je_mallocx", "mi_malloc", "mi_zalloc", "mi_heap_malloc", "tc_malloc", "tc_new")
ALLOCATOR_LIBRARIES = ("libjemalloc", "libmimalloc", "libtcmalloc", "libtbbmalloc_proxy", "libhoard", "librpmalloc")
# A program that imports one of these allocates by malloc or operator new, as far as it calls them.
ALLOCATING_IMPORTS = frozenset(
    ["malloc", "calloc", "realloc", "reallocarray", "aligned_alloc", "memalign", "posix_memalign", "valloc", "pvalloc"]
    + [f"__libc_{name}" for name in ("malloc", "calloc", "realloc", "memalign", "valloc", "pvalloc")]
    + [f"_Zn{kind}m{form}" for kind in "wa" for form in ("", "RKSt9nothrow_t", "St11align_val_t", "St11align_val_tRKSt9nothrow_t")]
)
# Where the linker was told --wrap=malloc, calls of malloc go here.
WRAPPERS = ("__wrap_malloc", "__wrap_calloc", "__wrap_realloc", "__wrap__Znwm")
# Of the messages and settings of allocators: what strip leaves of them.
ALLOCATOR_TEXTS = {
    b"<jemalloc>": "jemalloc",
    b"mimalloc: ": "mimalloc",
    b"tcmalloc.": "tcmalloc",
    b"snmalloc": "snmalloc",
    b"rpmalloc": "rpmalloc",
    b"Scudo ERROR": "Scudo",
}
# An allocator has its memory by one of these calls, or an array of zeros that is larger than a buffer or two.
MEMORY_CALLS = ("mmap", "mmap64", "mremap", "sbrk", "brk", "syscall")
OWN_ROOM_BYTES = 16 * 1024


@dataclass
class Inspection:
    """What is known of a program before it runs.

    `problems` mean that strata won't serve it, `doubts` that it may have a malloc of its own which nothing shows, so that who asks for a proof
    gets none; `notes` are worth a line. `env` is what the program gets, which a script's `#!/usr/bin/env -S` may have changed.
    """

    path: Path
    env: dict[str, str]
    chain: list[Path] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def final(self) -> Path:
        """The program that the kernel starts in the end: a script's interpreter, or the path itself."""
        return self.chain[-1] if self.chain else self.path


def resolve(program: str, env: Mapping[str, str] | None = None) -> Path:
    """The file that execvp would start, as `locate`."""
    return Path(locate(program, env))


def locate(program: str, env: Mapping[str, str] | None = None) -> str:
    """The file that execvp would start, by the name that it would give to the system: a script sees that, and a Path would drop "./" from it.

    StrataError where there is none, with the status of coreutils' env: 127 for ENOENT alone, else 126.
    """
    env = os.environ if env is None else env
    if not program:
        raise StrataError("the program's name is empty", EXIT_NOT_FOUND)
    if "/" in program:
        candidates = [program]
    elif len(os.fsencode(program)) > NAME_BYTES_MAX:
        # Told before the search, which a folder of PATH that is missing would otherwise end with ENOENT.
        raise StrataError(f"{program}: {os.strerror(errno.ENAMETOOLONG)}", EXIT_NOT_EXECUTABLE)
    else:
        candidates = [os.path.join(folder or ".", program) for folder in env.get("PATH", os.defpath).split(":")]
    refused = None
    last = errno.ENOENT
    for candidate in candidates:
        try:
            mode = os.stat(candidate).st_mode
        except PermissionError:
            refused = refused or f"{candidate}: permission denied"
            continue
        except OSError as error:
            last = error.errno
            if last in SEARCH_GOES_ON:
                continue
            raise StrataError(f"{candidate}: {error.strerror}", EXIT_NOT_EXECUTABLE) from error
        if stat.S_ISDIR(mode):
            refused = refused or f"{candidate}: is a folder"
        elif not stat.S_ISREG(mode) or not os.access(candidate, os.X_OK):
            refused = refused or f"{candidate}: permission denied (not an executable file)"
        else:
            return candidate
    if refused:
        raise StrataError(refused, EXIT_NOT_EXECUTABLE)
    if last != errno.ENOENT:
        raise StrataError(f"{program}: {os.strerror(last)}", EXIT_NOT_EXECUTABLE)
    where = "no such file" if "/" in program else "not found in PATH"
    raise StrataError(f"{program}: {where}", EXIT_NOT_FOUND)


def inspect(path: Path, library: Path, thorough: bool = True, env: Mapping[str, str] | None = None) -> Inspection:
    """Looks at the program at `path` as LD_PRELOAD of `library` would meet it.

    `thorough` also searches the symbol tables, which takes half a second for a very large program.
    """
    inspection = Inspection(path, dict(os.environ if env is None else env))
    with Elf(library) as elf:
        target, libc = elf.target, elf.libc()
    pending = [path]
    while pending:
        current = pending.pop(0)
        if len(inspection.chain) > MAX_SCRIPT_DEPTH:
            inspection.problems.append(f"{current}: more than {MAX_SCRIPT_DEPTH} interpreters of interpreters")
            break
        inspection.chain.append(current)
        _look_at_privileges(current, inspection)
        if not os.access(current, os.R_OK):
            inspection.problems.append(f"{current}: cannot be read, so it cannot be checked")
        elif is_elf(current):
            _look_at_elf(current, target, libc, thorough, inspection)
        else:
            pending += _interpreters(current, inspection)
    return inspection


def _look_at_privileges(path: Path, inspection: Inspection) -> None:
    """The loader ignores LD_PRELOAD where the program gains rights by being started."""
    info = path.stat()
    if not is_elf(path) or os.statvfs(path).f_flag & os.ST_NOSUID:
        return  # the kernel ignores the bits of scripts and of file systems mounted with nosuid
    if info.st_mode & stat.S_ISUID and info.st_uid != os.getuid():
        inspection.problems.append(f"{path}: setuid (runs as user {info.st_uid}); the loader ignores LD_PRELOAD for it")
    elif info.st_mode & stat.S_ISGID and info.st_mode & stat.S_IXGRP and info.st_gid != os.getgid():
        inspection.problems.append(f"{path}: setgid (runs as group {info.st_gid}); the loader ignores LD_PRELOAD for it")
    elif os.getuid() != 0 and _has_capabilities(path):
        inspection.problems.append(f"{path}: has file capabilities; the loader ignores LD_PRELOAD for it")


def _has_capabilities(path: Path) -> bool:
    try:
        return bool(os.getxattr(path, "security.capability"))
    except OSError:
        return False


def _look_at_elf(path: Path, target: Target, libc: str | None, thorough: bool, inspection: Inspection) -> None:
    try:
        with Elf(path) as elf:
            _look_inside(path, elf, target, libc, thorough, inspection)
    except StrataError as error:
        inspection.problems.append(str(error))


def _look_inside(path: Path, elf: Elf, target: Target, libc: str | None, thorough: bool, inspection: Inspection) -> None:
    problems = inspection.problems
    if elf.target != target:
        problems.append(f"{path}: built for {elf.target}, the library for {target}")
        return
    if elf.interpreter is None:
        problems.append(f"{path}: a static program; LD_PRELOAD works only on dynamically linked ones")
        return
    program_libc = elf.libc()
    if libc and program_libc and program_libc != libc:
        problems.append(f"{path}: runs on {program_libc} (loader {elf.interpreter}), the library on {libc}")
    linked = [name for name in elf.needed if name.startswith(ALLOCATOR_LIBRARIES)]
    if linked:
        inspection.notes.append(f"{path}: linked with {', '.join(linked)}; the preloaded library goes first")
    if not thorough:
        return
    _look_at_symbols(path, elf, inspection)


def _look_at_symbols(path: Path, elf: Elf, inspection: Inspection) -> None:
    problems = inspection.problems
    names = {*MALLOC_SYMBOLS, *PRIVATE_ALLOCATORS, *SANITIZERS, *FOREIGN_CALLS, *ALLOCATING_IMPORTS, *WRAPPERS, *MEMORY_CALLS}
    defined, imported = elf.symbols(names)
    own = [name for name in MALLOC_SYMBOLS if name in defined]
    private = [name for name in PRIVATE_ALLOCATORS if name in defined]
    sanitizers = [name for name in SANITIZERS if name in defined | imported]
    wrappers = [name for name in WRAPPERS if name in defined]
    foreign = [name for name in FOREIGN_CALLS if name in imported]
    allocates = not imported.isdisjoint(ALLOCATING_IMPORTS)
    if sanitizers:
        problems.append(f"{path}: built with {SANITIZERS[sanitizers[0]]}, which brings its own malloc")
    elif own:
        problems.append(f"{path}: brings its own malloc (defines {', '.join(own)})")
    elif private:
        name = private[0]
        problems.append(f"{path}: brings its own allocator, {PRIVATE_ALLOCATORS[name]} (defines {name})")
    elif wrappers and not allocates:
        problems.append(f"{path}: its calls of malloc were linked to {', '.join(wrappers)} of its own (--wrap), and it imports no malloc")
    elif wrappers:
        inspection.doubts.append(f"{path}: calls go through {', '.join(wrappers)} of its own (--wrap)")
    elif elf.shows_imports():
        _look_for_hidden_allocator(path, elf, imported, allocates, inspection)
    else:
        inspection.doubts.append(f"{path}: has no table that tells what it imports (its sections were stripped)")
    if foreign:
        problems.append(f"{path}: calls {', '.join(foreign)} of another allocator, past malloc")


def _look_for_hidden_allocator(path: Path, elf: Elf, imported: set[str], allocates: bool, inspection: Inspection) -> None:
    """An allocator that no symbol shows: hidden when the program was linked, and stripped."""
    found = elf.texts(ALLOCATOR_TEXTS)
    if found:
        text, name = found[0].decode(), ALLOCATOR_TEXTS[found[0]]
        if allocates:
            inspection.doubts.append(f"{path}: it imports malloc, but has {text!r} of {name} in it")
        else:
            inspection.problems.append(f"{path}: brings its own allocator, {name} (has {text!r} in it, and imports no malloc)")
    elif not allocates and not elf.shows_functions():
        room = [name for name in MEMORY_CALLS if name in imported]
        if elf.zeroed_bytes >= OWN_ROOM_BYTES:
            room.append(f"{elf.zeroed_bytes} bytes of zeros")
        # Without any, it has nothing to allocate from, and leaves that to its libraries.
        if room:
            inspection.doubts.append(
                f"{path}: it is stripped and imports no malloc, "
                f"and may have an allocator of its own (it has {', '.join(room)})"
            )


def _interpreters(path: Path, inspection: Inspection) -> list[Path]:
    """What a script starts: its interpreter, and after `#!/usr/bin/env NAME` also NAME."""
    with path.open("rb") as stream:
        # For the kernel a zero byte ends the line, too.
        line = os.fsdecode(re.split(rb"[\n\0]", stream.read(SHEBANG_BYTES), maxsplit=1)[0])
    if not line.startswith("#!"):
        # execvp hands a text file without a first line of its own to the shell.
        return [Path("/bin/sh")]
    words = line[2:].strip().split(None, 1)
    if not words:
        inspection.problems.append(f"{path}: its first line names no interpreter")
        return []
    interpreter = Path(words[0])
    try:
        is_file = stat.S_ISREG(interpreter.stat().st_mode)
    except OSError as error:
        inspection.problems.append(f"{path}: its interpreter {interpreter}: {error.strerror}")
        return []
    if not is_file:
        inspection.problems.append(f"{path}: its interpreter {interpreter} is not a file")
        return []
    found = [interpreter]
    if interpreter.name == "env" and len(words) > 1:
        try:
            found += _program_of_env(path, words[1], inspection)
        except StrataError as error:
            inspection.problems.append(f"{path}: its interpreter {error}")
        except (getopt.GetoptError, ValueError) as error:
            inspection.doubts.append(f"{path}: its first line cannot be followed: {error}")
    return found


# The options of GNU env, for getopt; those on signals, which may have a value or not, change nothing here.
ENV_OPTIONS = "a:C:iS:u:v0"
ENV_LONG_OPTIONS = ["argv0=", "chdir=", "ignore-environment", "split-string=", "unset=", "debug", "null"]
ENV_SIGNAL_OPTIONS = ("--block-signal", "--default-signal", "--ignore-signal", "--list-signal-handling")


def _program_of_env(script: Path, argument: str, inspection: Inspection) -> list[Path]:
    """NAME in `#!/usr/bin/env NAME` or `#!/usr/bin/env -S [OPTIONS] [VARIABLE=VALUE] NAME ARGS`; does to `inspection.env` what env does."""
    folder, env = "", inspection.env
    preload = env.get("LD_PRELOAD")
    options, words = getopt.getopt([argument], ENV_OPTIONS, ENV_LONG_OPTIONS)
    if options and options[-1][0] in ("-S", "--split-string"):
        split = [word for word in _split_as_env(options.pop()[1]) if not word.startswith(ENV_SIGNAL_OPTIONS)]
        more, words = getopt.getopt(split, ENV_OPTIONS.replace("S:", ""), ENV_LONG_OPTIONS)
        options += more
    if words and words[0] == "-":
        options.append(("-i", words.pop(0)))
    for option, value in options:
        if option in ("-i", "--ignore-environment"):
            env.clear()
        elif option in ("-u", "--unset"):
            env.pop(value, None)
        elif option in ("-C", "--chdir"):
            folder = value
    while words and "=" in words[0]:
        name, value = words.pop(0).split("=", 1)
        env[name] = value
    if env.get("LD_PRELOAD") != preload:
        inspection.problems.append(f"{script}: its first line takes LD_PRELOAD from what it starts (env {argument})")
    if not words:
        return []
    # A name without a slash is looked for in PATH, as env does after all this.
    return [resolve(os.path.join(folder, words[0]) if "/" in words[0] else words[0], env)]


def _split_as_env(text: str) -> list[str]:
    """The words of `env -S`. Its quotes are those of a shell; its escapes and ${VARIABLE} are its own."""
    if special := next((char for char in "\\$" if char in text), None):
        raise ValueError(f"{special!r} after env -S")
    return shlex.split(text, comments=True)
