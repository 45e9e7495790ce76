#!/usr/bin/env python3
"""The layer rules, checked on the sources by their #include and #if lines, and on object files by their symbols.

    tools/check_layers.py [--root DIR] [--objects BUILD_DIR]...
    tools/check_layers.py --self-test

A layer may include its own files, base/, and the facade header of each layer below it. Its object files may refer to
symbols of those layers only, and, where it isn't platform/ or api/, to nothing of the C library but pure functions on
memory. Conditions on the operating system belong into platform/.

src/umem/, a library of its own, is no layer: it includes its own files, public headers and the C library, nothing of the layers.
"""
from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

# Top to bottom. A layer sees what stands to its right.
LAYERS = ["api", "cache", "slab", "page", "arena", "platform", "base"]

# The facade of platform/ has two headers: the second holds only the inlined sequences of the CPU layer.
FACADES = {layer: {f"{layer}/{layer}.h"} for layer in LAYERS}
FACADES["platform"].add("platform/cpu_ops.h")
# That of slab/, too: the slabs of malloc, which know the heap, and those of object caches, which know only where theirs come from.
FACADES["slab"].add("slab/objects.h")
# And debugged buffers of both.
FACADES["slab"].add("slab/debug.h")
# And that of cache/: object caches stand on the same mechanism as malloc's, and malloc knows nothing of them.
FACADES["cache"].add("cache/object_cache.h")

# And that of page/: a pager stands apart from the zone.
FACADES["page"].add("page/pager.h")
# And zones of frames from both.
FACADES["page"].add("page/frames.h")
FACADES["page"].add("page/frames_compact.h")
FACADES["page"].add("page/frames_reclaim.h")
FACADES["page"].add("page/frames_backing.h")

# Headers of the language: types, limits and functions that touch nothing but their arguments.
LANGUAGE_HEADERS = {"limits.h", "stdalign.h", "stdarg.h", "stdatomic.h", "stdbool.h", "stddef.h", "stdint.h", "string.h"}
# api/ implements functions of the C library, so it needs their declarations and the types in them; and dlsym, to see whose malloc is
# in force and to leave operator new to a program that has its own.
API_HEADERS = LANGUAGE_HEADERS | {"dlfcn.h", "errno.h", "malloc.h", "pthread.h", "search.h", "stdio.h", "stdlib.h"}

# What a compiler may call on its own or for a language header; the same for every layer.
PURE_SYMBOLS = re.compile(
    r"mem(cpy|set|move|cmp|chr)|str(len|nlen|cmp|ncmp|chr|rchr)|__stack_chk_(fail|guard)|_GLOBAL_OFFSET_TABLE_|__tls_get_addr"
    r"|__aarch64_\w+|__\w+[sdt]i[234]|__(asan|ubsan|tsan|sanitizer)_\w+|__gcc_personality_v0|DW\.ref\.\w+|_Unwind_Resume"
)
# What api/ needs beyond: errno, its own fork and exit handlers, the stream of malloc_info, dlsym, and the C++ run-time for bad_alloc.
API_SYMBOLS = re.compile(r"__errno_location|pthread_atfork|__register_atfork|atexit|__cxa_\w+|__dso_handle|_Z\w+|fwrite|flockfile|funlockfile|dlsym|dlopen|dlclose|pthread_setcancelstate")

SYSTEM_CONDITION = re.compile(
    r"^\s*#\s*(if|ifdef|ifndef|elif)\b.*(__linux|\blinux\b|__unix|\bunix\b|__GLIBC|__GNU_LIBRARY__|__UCLIBC__|__MUSL|__BIONIC__"
    r"|__APPLE__|__MACH__|__ANDROID__|_WIN32|_WIN64|__CYGWIN__|BSD__|__sun\b|__has_include)"
)
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')
# Any other spelling of an include (a macro) would escape the rules.
OTHER_INCLUDE = re.compile(r"^\s*#\s*(include|include_next|import)\b")


def below(layer: str) -> list[str]:
    return LAYERS[LAYERS.index(layer) + 1 :]


def without_comments(text: str) -> str:
    """Comments become spaces; strings stay, newlines stay."""
    pattern = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|/\*.*?\*/|//[^\n]*', re.S)
    blank = lambda match: match[0] if match[0][0] in "\"'" else " " + "\n" * match[0].count("\n")
    return pattern.sub(blank, text).replace("\\\n", " ")


@dataclass
class Report:
    problems: list[str] = field(default_factory=list)
    files: int = 0
    objects: int = 0

    def add(self, where: str, what: str) -> None:
        self.problems.append(f"{where}: {what}")


def check_program_include(report: Report, where: str, quote: str, name: str) -> None:
    """What src/umem/ may include."""
    if quote == '"' and name != "umem_internal.h":
        report.add(where, f'umem/ includes "{name}", which is not its own')
    elif quote == "<" and name.split("/")[0] in LAYERS:
        report.add(where, f"umem/ includes <{name}>, which is inside strata")


def check_include(report: Report, where: str, layer: str, quote: str, name: str) -> None:
    first = name.split("/")[0]
    if first == "strata":
        if layer != "api":
            report.add(where, f"{layer}/ includes the public header {name}; only api/ may")
    elif quote == '"':
        if first == layer or first == "base":
            return
        if first not in LAYERS:
            report.add(where, f'"{name}" is not of the form "layer/file.h"')
        elif first not in below(layer):
            report.add(where, f'{layer}/ includes "{name}", which is above it')
        elif name not in FACADES[first]:
            report.add(where, f'{layer}/ includes "{name}", which is not the facade of {first}/')
    elif first in LAYERS and "/" in name:
        report.add(where, f"<{name}> is a file of ours and belongs into quotes")
    elif layer != "platform" and name not in (API_HEADERS if layer == "api" else LANGUAGE_HEADERS):
        report.add(where, f"{layer}/ includes <{name}>; the operating system is platform/'s")


def check_sources(root: Path, report: Report) -> None:
    found = {layer: 0 for layer in LAYERS}
    files = sorted(path for pattern in ("*.c", "*.h", "*.def", "*.S") for path in (root / "src").rglob(pattern))
    for path in files:
        relative = path.relative_to(root / "src")
        layer = relative.parts[0]
        if layer == "umem":
            report.files += 1
            for number, line in enumerate(without_comments(path.read_text()).split("\n"), 1):
                if match := INCLUDE.match(line):
                    check_program_include(report, f"src/{relative}:{number}", match[1], match[2])
                elif OTHER_INCLUDE.match(line):
                    report.add(f"src/{relative}:{number}", "an include that names no file")
            continue
        if layer not in found or len(relative.parts) < 2:
            report.add(str(relative), "is in no layer")
            continue
        found[layer] += 1
        for number, line in enumerate(without_comments(path.read_text()).split("\n"), 1):
            where = f"src/{relative}:{number}"
            if match := INCLUDE.match(line):
                check_include(report, where, layer, match[1], match[2])
            elif OTHER_INCLUDE.match(line):
                report.add(where, "an include that names no file")
            if layer != "platform" and SYSTEM_CONDITION.match(line):
                report.add(where, f"a condition on the operating system in {layer}/")
    for path in sorted((root / "include").rglob("*.h")):
        found["public"] = found.get("public", 0) + 1
        for number, line in enumerate(without_comments(path.read_text()).split("\n"), 1):
            where = str(path.relative_to(root)) + f":{number}"
            if (match := INCLUDE.match(line)) and match[2].split("/")[0] in LAYERS:
                report.add(where, f"a public header includes the internal {match[2]}")
            if SYSTEM_CONDITION.match(line):
                report.add(where, "a condition on the operating system in a public header")
    for layer, count in {"public": 0, **found}.items():
        if count == 0:
            report.add("sources", f"no file of {layer} found")
        report.files += count


def symbols_of(paths: list[Path]) -> dict[Path, tuple[set[str], set[str]]]:
    """Defined global and undefined names of each object file; weak ones count as what they are."""
    found: dict[Path, tuple[set[str], set[str]]] = {path: (set(), set()) for path in paths}
    for start in range(0, len(paths), 200):
        some = [str(path) for path in paths[start : start + 200]]
        output = subprocess.run(["nm", "-A", "-P", "-g", *some], check=True, capture_output=True, text=True).stdout
        for line in output.splitlines():
            file, _, rest = line.partition(": ")
            name, kind = rest.split()[:2]
            found[Path(file)][kind in "Uwv"].add(name)
    return found


def check_objects(build: Path, report: Report) -> None:
    """Every object file under a path .../src/LAYER/... counts, whatever target it belongs to.

    A target may use what others define: the library's sources stand in several, as some differ between its variants.
    """
    targets: dict[str, dict[str, list[Path]]] = {}
    for path in sorted(build.rglob("*.o")):
        match = re.search(r"CMakeFiles/([^/]+)\.dir/src/(\w+)/", path.as_posix())
        if match and match[2] in LAYERS:
            targets.setdefault(match[1], {}).setdefault(match[2], []).append(path)
    if not any(len(layers) == len(LAYERS) for layers in targets.values()):
        report.add(str(build), "no target with object files of all layers found")
    symbols = symbols_of([path for layers in targets.values() for paths in layers.values() for path in paths])
    whole = {name: layer for layers in targets.values() for layer, paths in layers.items() for path in paths for name in symbols[path][0]}
    for target, layers in targets.items():
        home = dict(whole)
        needs: list[tuple[str, Path, set[str]]] = []
        for layer in LAYERS:
            for path in layers.get(layer, []):
                defined, undefined = symbols[path]
                report.objects += 1
                home.update(dict.fromkeys(defined, layer))
                needs.append((layer, path, undefined))
        for layer, path, undefined in needs:
            where = f"{build.name}: {target}: {layer}/{path.name}"
            for name in sorted(undefined):
                owner = home.get(name)
                if owner is not None:
                    if owner != layer and owner not in below(layer):
                        report.add(where, f"uses {name} of {owner}/, which is above it")
                elif layer != "platform" and not PURE_SYMBOLS.fullmatch(name) and not (layer == "api" and API_SYMBOLS.fullmatch(name)):
                    report.add(where, f"uses {name}, which no layer below defines")


def self_test() -> int:
    """Plants one violation at a time in a sound tree and demands that it is found, with the words that name it."""
    sound = {f"src/{layer}/{layer}.h": "" for layer in LAYERS}
    for index, layer in enumerate(LAYERS):
        lower = LAYERS[index + 1] if index + 1 < len(LAYERS) else None
        sound[f"src/{layer}/{layer}.h"] = f"int {layer}_get(void);\n"
        include = f'#include "{lower}/{lower}.h"\n' if lower else ""
        call = f"{lower}_get()" if lower else "1"
        sound[f"src/{layer}/{layer}.c"] = f'#include "{layer}/{layer}.h"\n{include}/* #include "api/api.h" */\nint {layer}_get(void) {{ return {call}; }}\n'
    sound["src/page/inner.h"] = "int page_inner(void);\n"
    sound["include/strata/strata.h"] = "#include <stddef.h>\n"
    cases = [
        ("sound tree", "src/slab/more.c", "#include <string.h>\n#include \"base/base.h\"\nint more(char *p);\nint more(char *p) { return (int)strlen(p); }\n", None),
        ("include above", "src/slab/more.c", '#include "cache/cache.h"\n', "which is above it"),
        ("include api", "src/arena/more.c", '  #  include "api/api.h"\n', "which is above it"),
        ("not the facade", "src/cache/more.c", '#include "page/inner.h"\n', "not the facade"),
        ("base sees a layer", "src/base/more.c", '#include "platform/platform.h"\n', "which is above it"),
        ("relative path", "src/slab/more.c", '#include "../cache/cache.h"\n', "not of the form"),
        ("angle brackets", "src/slab/more.c", "#include <cache/cache.h>\n", "belongs into quotes"),
        ("include by macro", "src/slab/more.c", '#define X "cache/cache.h"\n#include X\n', "names no file"),
        ("operating system header", "src/page/more.c", "#include <sys/mman.h>\n", "operating system"),
        ("public header below api", "src/cache/more.c", "#include <strata/strata.h>\n", "only api/ may"),
        ("condition", "src/arena/more.c", "#if defined(__linux__)\n#endif\n", "condition on the operating system"),
        ("condition in a header", "include/strata/more.h", "#ifdef _WIN32\n#endif\n", "condition on the operating system"),
        ("public sees internal", "include/strata/more.h", '#include "base/base.h"\n', "includes the internal"),
        ("file outside the layers", "src/more.c", "", "in no layer"),
        ("symbol above", "src/arena/more.c", "int cache_get(void);\nint more(void);\nint more(void) { return cache_get(); }\n", "uses cache_get of cache/"),
        ("symbol of the system", "src/slab/more.c", "int getpid(void);\nint more(void);\nint more(void) { return getpid(); }\n", "uses getpid, which no layer"),
        ("malloc in a layer", "src/page/more.c", "void *malloc(unsigned long);\nvoid *more(void);\nvoid *more(void) { return malloc(9); }\n", "uses malloc, which no layer"),
        ("umem inside", "src/umem/more.c", '#include "api/api.h"\n', 'umem/ includes "api/api.h", which is not its own'),
        ("umem outside", "src/umem/more.c", "#include <slab/slab.h>\n", "umem/ includes <slab/slab.h>, which is inside strata"),
        ("missing layer", "-src/slab", "", "no file of slab found"),
        ("no objects", "-build", "", "no target with object files of all layers"),
    ]
    compiled: dict[tuple[str, str], bytes] = {}  # what most cases share
    for name, path, text, expected in cases:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            files = {**sound, **({} if path.startswith("-") else {path: text})}
            if path.startswith("-src"):
                files = {key: value for key, value in files.items() if not key.startswith(path[1:] + "/")}
            for file, content in files.items():
                (root / file).parent.mkdir(parents=True, exist_ok=True)
                (root / file).write_text(content)
            for file in files if path != "-build" else []:
                if file.endswith(".c") and file.count("/") > 1:
                    target = root / "build/CMakeFiles/all.dir" / f"{file}.o"
                    target.parent.mkdir(parents=True, exist_ok=True)
                    key = (file, files[file])
                    if key not in compiled:
                        # An include that breaks a rule may not compile; its object file is then not the point of the case.
                        command = ["gcc", "-c", "-I", root / "src", "-I", root / "include", root / file, "-o", target]
                        subprocess.run(command, capture_output=True)
                        compiled[key] = target.read_bytes() if target.exists() else b""
                    if compiled[key]:
                        target.write_bytes(compiled[key])
            (root / "build").mkdir(exist_ok=True)
            report = Report()
            check_sources(root, report)
            check_objects(root / "build", report)
            found = any(expected in problem for problem in report.problems) if expected else not report.problems
            if not found:
                print(f"self-test: {name}: expected {expected!r}, found {report.problems}", file=sys.stderr)
                return 1
    print(f"layers: self-test passed, {len(cases)} cases")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--objects", type=Path, action="append", default=[], help="a build folder")
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args()
    if options.self_test:
        return self_test()
    report = Report()
    check_sources(options.root, report)
    for build in options.objects:
        check_objects(build, report)
    for problem in report.problems:
        print(problem, file=sys.stderr)
    print(f"layers: {report.files} files, {report.objects} object files, {len(report.problems)} violations")
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
