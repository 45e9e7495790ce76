"""`strata run --verify`: programs that strata would not serve are refused with the reason, and others are not."""

import os
import shutil
import stat
from pathlib import Path

import pytest
from strata.candidates import installed_peers
from strata.elf import Elf
from strata.errors import StrataError
from strata.library import target_of
from strata.program import ALLOCATOR_TEXTS, inspect, resolve
from tool_command import ORDINARY_RIGHTS

MAIN = "int main(void) { return 0; }\n"
OWN_MALLOC = """
#include <stddef.h>
static char pool[1 << 20];
static size_t used;
void *malloc(size_t size) { void *p = pool + used; used += (size + 15) & ~(size_t)15; return p; }
void *calloc(size_t n, size_t size) { return malloc(n * size); }
void *realloc(void *p, size_t size) { (void)p; return malloc(size); }
void free(void *p) { (void)p; }
int main(void) { return malloc(10) == NULL; }
"""
EI_ABIVERSION = 8
E_MACHINE_AT = 18
EM_AARCH64, EM_X86_64 = 183, 62


def refused(tool, *command):
    done = tool("run", "--verify", "--", *command)
    assert done.returncode == 125, done
    assert done.stdout == ""
    return done.stderr


def test_a_dynamic_program_passes_silently(tool):
    done = tool("run", "--verify", "--", "sh", "-c", "echo ran; exit 3")
    assert (done.returncode, done.stdout, done.stderr) == (3, "ran\n", "")


def test_static_program(tool, compile_c):
    path = compile_c("static", MAIN, "-static")
    assert f"{path}: a static program" in refused(tool, path)
    # Without --verify it runs, and one line warns; -q takes that line away.
    done = tool("run", path)
    assert done.returncode == 0 and done.stderr.startswith("strata run: warning: malloc will not be strata's:")
    assert tool("run", "-q", path).stderr == ""


def test_static_pie_program(tool, compile_c):
    assert "a static program" in refused(tool, compile_c("static-pie", MAIN, "-static-pie"))


@pytest.mark.parametrize("flags", [[], ["-s"], ["-no-pie", "-s"]], ids=["full", "stripped", "stripped-no-pie"])
def test_own_malloc(tool, compile_c, flags):
    path = compile_c("own", OWN_MALLOC, *flags)
    assert f"{path}: brings its own malloc (defines malloc, calloc, realloc, free)" in refused(tool, path)


def test_built_in_allocator_under_another_name(tool, compile_c):
    path = compile_c("private", "void *_rjem_malloc(unsigned long n) { (void)n; return 0; }\n" + MAIN)
    assert "brings its own allocator, jemalloc (Rust's tikv-jemallocator)" in refused(tool, path)


# The same malloc where no symbol of the dynamic table shows it, and one that is called by the linker's --wrap.
HIDDEN_MALLOC = '#pragma GCC visibility push(hidden)\n' + OWN_MALLOC
WRAPPED_MALLOC = """
#include <stdlib.h>
static char pool[1 << 20];
static size_t used;
void *__wrap_malloc(size_t size) { void *p = pool + used; used += (size + 15) & ~(size_t)15; return p; }
void __wrap_free(void *p) { (void)p; }
int main(void) { void *volatile p = malloc(10); free(p); return p == NULL; }
"""
COUNTED_MALLOC = """
#include <stdlib.h>
static int calls;
void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size) { calls++; return __real_malloc(size); }
int main(void) { free(malloc(10)); return calls != 1; }
"""
WRAP = "-Wl,--wrap=malloc,--wrap=free"
CANNOT_TELL = "--verify: cannot tell whether malloc would be strata's:"


def doubted(tool, path):
    """What can't be proved is refused, also by -q, and runs without --verify."""
    for options in (["--verify"], ["--verify", "-q"]):
        done = tool("run", *options, "--", path)
        assert done.returncode == 125, done
        assert CANNOT_TELL in done.stderr
    assert tool("run", "--", path).returncode == 0
    return done.stderr


def test_hidden_malloc(tool, compile_c):
    path = compile_c("hidden", HIDDEN_MALLOC)
    assert f"{path}: brings its own malloc (defines malloc, calloc, realloc, free)" in refused(tool, path)


def test_hidden_malloc_of_a_stripped_program(tool, compile_c):
    path = compile_c("hidden-stripped", HIDDEN_MALLOC, "-s")
    assert "it is stripped and imports no malloc, and may have an allocator of its own (it has 10486" in doubted(tool, path)


def test_a_program_whose_sections_were_stripped(tool, compile_c):
    """What it imports is not to be seen then, as pyelftools finds tables by sections."""
    path = Path(compile_c("sections-stripped", HIDDEN_MALLOC, "-s"))
    image = bytearray(path.read_bytes())
    image[40:48] = bytes(8)  # e_shoff
    image[60:64] = bytes(4)  # e_shnum, e_shstrndx
    path.write_bytes(image)
    assert "has no table that tells what it imports" in doubted(tool, path)


@pytest.mark.parametrize("change", [(18, b"\xff\x7f"), (32, b"\xff" * 8), (54, b"\x07\x00"), (56, b"\xff\xfe"), (40, b"\xf0\xff\x00"), (62, b"\x01\x00")])
def test_a_file_with_broken_tables_is_told_of(tool, compile_c, change):
    """Each of the header's fields with something else in it: no traceback, whatever the kernel would say."""
    path = Path(compile_c("broken", MAIN))
    image = bytearray(path.read_bytes())
    image[change[0] : change[0] + len(change[1])] = change[1]
    path.write_bytes(image)
    done = tool("run", "--verify", "--", path)
    assert done.returncode in (0, 125, 126), done
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("text, name", [("<jemalloc>: Error in x", "jemalloc"), ("mimalloc: warning: ", "mimalloc"), ("tcmalloc.x", "tcmalloc")])
def test_hidden_allocator_that_names_itself(tool, compile_c, text, name):
    path = compile_c("named", f'const char *volatile message = "{text}";\n' + HIDDEN_MALLOC, "-s")
    assert f"{path}: brings its own allocator, {name} (has " in refused(tool, path)


def test_the_names_are_those_of_the_allocators(strata_lib):
    """Of the texts that are looked for, each that can be had here is in its allocator."""
    peers = installed_peers(target_of(strata_lib))
    for text, name in ALLOCATOR_TEXTS.items():
        if name in peers:
            with Elf(Path(peers[name])) as elf:
                assert elf.texts([b"no such text", text]) == [text], name
    assert {"jemalloc", "mimalloc", "tcmalloc"} <= peers.keys()


def test_a_program_that_imports_malloc_and_names_an_allocator(tool, compile_c):
    source = '#include <stdlib.h>\nconst char *volatile message = "<jemalloc>: x";\nint main(void) { free(malloc(10)); return 0; }\n'
    assert "it imports malloc, but has '<jemalloc>' of jemalloc in it" in doubted(tool, compile_c("both", source, "-s"))


def test_wrapped_malloc(tool, compile_c):
    path = compile_c("wrapped", WRAPPED_MALLOC, WRAP)
    assert f"{path}: its calls of malloc were linked to __wrap_malloc of its own (--wrap)" in refused(tool, path)
    assert "may have an allocator of its own" in doubted(tool, compile_c("wrapped-stripped", WRAPPED_MALLOC, WRAP, "-s"))


def test_wrapped_malloc_that_calls_the_real_one(tool, compile_c):
    path = compile_c("counted", COUNTED_MALLOC, "-Wl,--wrap=malloc")
    assert "calls go through __wrap_malloc of its own (--wrap)" in doubted(tool, path)


def test_memory_from_the_system_is_room_for_an_allocator(tool, compile_c):
    source = "#include <sys/mman.h>\nint main(void) { return mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED; }\n"
    assert "(it has mmap)" in doubted(tool, compile_c("maps", source, "-s"))
    # Where the functions of the program can be seen, there is no malloc among them.
    assert tool("run", "--verify", "--", compile_c("maps-full", source)).stderr == ""


def test_a_program_that_leaves_allocation_to_the_c_library(tool, compile_c):
    source = """
#include <stdio.h>
int main(void) { char *line = NULL; size_t room = 0; return getline(&line, &room, fopen("/etc/passwd", "r")) < 1; }
"""
    for flags in ([], ["-s"]):
        done = tool("run", "--verify", "--", compile_c("reads", "#define _GNU_SOURCE\n" + source, *flags))
        assert (done.returncode, done.stderr) == (0, "")
    done = tool("run", "--verify", "--", "/bin/true")
    assert (done.returncode, done.stderr) == (0, "")


def test_sanitized_program(tool, compile_c):
    assert "built with AddressSanitizer" in refused(tool, compile_c("asan", MAIN, "-fsanitize=address"))


@pytest.fixture
def jemalloc(strata_lib):
    peers = installed_peers(target_of(strata_lib))
    assert "jemalloc" in peers, "libjemalloc2 is not installed"
    return peers["jemalloc"]


def test_linked_allocator_is_no_obstacle(tool, compile_c, jemalloc):
    path = compile_c("linked", MAIN, f"-Wl,--no-as-needed,{jemalloc}")
    done = tool("run", "--verify", "--", path)
    assert done.returncode == 0
    assert "note:" in done.stderr and "linked with libjemalloc.so.2" in done.stderr
    assert tool("run", "--verify", "-q", "--", path).stderr == ""


def test_calls_past_malloc_are(tool, compile_c, jemalloc):
    source = "void *mallocx(unsigned long, int);\nint main(void) { return mallocx(8, 0) == 0; }\n"
    path = compile_c("past", source, f"-Wl,{jemalloc}")
    assert "calls mallocx of another allocator" in refused(tool, path)


def test_another_machine(tool, compile_c, tmp_path):
    image = bytearray(compile_c("native", MAIN).read_bytes())
    other = EM_AARCH64 if image[E_MACHINE_AT] != EM_AARCH64 else EM_X86_64
    image[E_MACHINE_AT : E_MACHINE_AT + 2] = other.to_bytes(2, "little")
    path = tmp_path / "foreign"
    path.write_bytes(image)
    path.chmod(0o755)
    assert f"{path}: built for " in refused(tool, path)


def test_another_libc(tool, compile_c, strata_lib):
    path = compile_c("musl", MAIN, "-Wl,--dynamic-linker=/lib/ld-musl-any.so.1")
    assert "runs on musl (loader /lib/ld-musl-any.so.1), the library on glibc" in refused(tool, path)


def test_a_file_that_is_no_program(tool, tmp_path):
    path = tmp_path / "broken"
    path.write_bytes(b"\x7fELF" + b"\0" * 10)
    path.chmod(0o755)
    assert "not an ELF file that can be read" in refused(tool, path)


def test_script_is_judged_by_its_interpreter(tool, compile_c, script):
    static = compile_c("static-interpreter", MAIN, "-static")
    assert f"{static}: a static program" in refused(tool, script("direct", f"#!{static}\n"))
    nested = script("nested", f"#!{script('inner', f'#!{static} -x')}\n")
    assert f"{static}: a static program" in refused(tool, nested)
    done = tool("run", "--verify", "--", script("good", "#!/bin/sh\necho ran\n"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n", "")


THROUGH_ENV = [
    "inner-program",
    "-S A=1 inner-program -x",
    "-S -u FOO inner-program",
    "-S -C /tmp inner-program",
    "-vS --unset=FOO --block-signal=PIPE A='b c' inner-program # and no more",
    "--split-string=--chdir /tmp inner-program",
]


@pytest.mark.parametrize("line", [f"#!/usr/bin/env {words}" for words in THROUGH_ENV])
def test_script_through_env_is_judged_by_the_program_that_env_finds(tool, compile_c, script, tmp_path, line):
    compile_c("inner-program", MAIN, "-static")
    path = script("through-env", line + "\n")
    done = tool("run", "--verify", "--", path, env={"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert done.returncode == 125 and "inner-program: a static program" in done.stderr


@pytest.mark.parametrize("words", ["-S -i /bin/sh", "-S - /bin/sh", "-iS /bin/sh", "-S LD_PRELOAD= /bin/sh", "-S -u LD_PRELOAD /bin/sh"])
def test_script_that_takes_the_library_away(tool, script, words):
    path = script("takes-away", f"#!/usr/bin/env {words}\n")
    assert f"{path}: its first line takes LD_PRELOAD from what it starts (env {words})" in refused(tool, path)
    assert "warning: malloc will not be strata's" in tool("run", "--", path).stderr


@pytest.mark.parametrize("words", ["-S 'sh", "-S ${SHELL}", "-S --no-such-option sh"])
def test_script_whose_first_line_cannot_be_followed(tool, script, words):
    path = script("strange", f"#!/usr/bin/env {words}\n")
    assert f"{CANNOT_TELL}\n  {path}: its first line cannot be followed: " in refused(tool, path)


def test_what_env_sets_counts_for_the_program_behind_it(tool, compile_c, script, tmp_path):
    """PATH, where the name is looked for, and what the loader sees."""
    compile_c("inner-program", MAIN)
    path = script("sets", f"#!/usr/bin/env -S PATH={tmp_path} inner-program\n")
    assert tool("run", "--verify", "--", path).returncode == 0
    assert "inner-program: not found in PATH" in refused(tool, script("lost", "#!/usr/bin/env -S PATH=/no/such inner-program\n"))


def test_a_library_that_the_loader_refuses(tool, strata_lib, tmp_path):
    """As on a file system that is mounted noexec: the loader passes over it, and the program starts without."""
    image = bytearray(strata_lib.read_bytes())
    image[EI_ABIVERSION] = 255
    library = tmp_path / "libstrata.so"
    library.write_bytes(image)
    done = tool("run", "--verify", "--lib", library, "--", "true")
    assert done.returncode == 125, done
    assert f"{library} is not loaded: ERROR: ld.so: object '{library}' from LD_PRELOAD cannot be preloaded" in done.stderr
    assert tool("run", "--lib", library, "--", "true").returncode == 0


def test_another_preloaded_library_that_is_missing_is_no_obstacle(tool):
    done = tool("run", "--verify", "--", "echo", "ran", env={"LD_PRELOAD": "/no/such/library.so"})
    assert (done.returncode, done.stdout) == (0, "ran\n")


def test_script_with_a_missing_interpreter(tool, script):
    assert "its interpreter /no/such: No such file or directory" in refused(tool, script("orphan", "#!/no/such\n"))
    assert "nowhere-to-be-found: not found in PATH" in refused(tool, script("lost", "#!/usr/bin/env nowhere-to-be-found\n"))


def test_script_whose_first_line_has_a_zero_byte(tool, script):
    """The kernel reads the line up to there."""
    done = tool("run", "--verify", "--", script("cut", "#!/bin/sh\0 -x\necho ran\n"))
    assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr
    assert "its interpreter /bin is not a file" in refused(tool, script("folder", "#!/bin/\0sh\n"))


def test_script_whose_interpreter_cannot_be_looked_at(tool, script, tmp_path):
    folder = tmp_path / "closed"
    path = script("shut-out", f"#!{folder}/sh\n")
    folder.mkdir(mode=0)
    for options, status in ((["-q"], 126), ([], 126), (["--verify"], 125)):
        done = tool("run", *options, "--", path, before=ORDINARY_RIGHTS)
        assert done.returncode == status and "Permission denied" in done.stderr and "Traceback" not in done.stderr


def test_a_library_that_is_not_strata_proves_nothing(tool, jemalloc):
    done = tool("run", "--verify", "--lib", jemalloc, "--", "true")
    assert done.returncode == 125 and "not strata's library" in done.stderr


def test_setuid_program(strata_lib, tmp_path, monkeypatch):
    path = Path(shutil.copy("/bin/true", tmp_path / "gains-rights"))
    path.chmod(0o4755)
    # The same user gains nothing by it.
    assert inspect(path, strata_lib).problems == []
    monkeypatch.setattr(os, "getuid", lambda: path.stat().st_uid + 1)
    mount = os.statvfs(path)
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result((*mount[:8], mount[8] & ~os.ST_NOSUID, mount[9])))
    assert any("setuid" in problem for problem in inspect(path, strata_lib).problems)
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result((*mount[:8], mount[8] | os.ST_NOSUID, mount[9])))
    assert inspect(path, strata_lib).problems == []


def test_file_capabilities(strata_lib, tmp_path, monkeypatch):
    path = Path(shutil.copy("/bin/true", tmp_path / "capable"))
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    monkeypatch.setattr(os, "getxattr", lambda *_: b"\1")
    assert any("file capabilities" in problem for problem in inspect(path, strata_lib).problems)


def test_resolve_follows_execvp(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "prog"
    program.write_text("")
    program.chmod(0o755)
    assert resolve("prog", {"PATH": f"/nowhere:{tmp_path}"}) == program
    assert resolve("./prog") == Path("./prog")
    # An empty part of PATH is the current folder.
    assert resolve("prog", {"PATH": ":/nowhere"}).resolve() == program
    (tmp_path / "folder").mkdir()
    with pytest.raises(StrataError) as caught:
        resolve("folder", {"PATH": str(tmp_path)})
    assert caught.value.exit_status == 126
    program.chmod(stat.S_IRUSR)
    with pytest.raises(StrataError) as caught:
        resolve("prog", {"PATH": str(tmp_path)})
    assert caught.value.exit_status == 126
