"""STRATA_CONF and strata_conf: what can't be used costs one line on stderr and changes nothing; files and raised privileges; verify."""

import json
import os
import shutil
import subprocess

import pytest

pytestmark = pytest.mark.strata_only

KEYS = ["background", "thp", "grouping", "decay_ms", "soft_limit", "hard_limit", "rseq", "magazine_max", "stats", "stats_file", "verify", "reserve",
        "populate_pages"]

BAD_VALUES = [
    ("background:sometimes", ["auto", "on", "off"]),
    ("thp:on", ["auto", "always", "never"]),
    ("rseq:yes", ["auto", "off"]),
    ("grouping:none", ["auto", "on", "off"]),
    ("verify:1", ["off", "on"]),
    ("stats:xml", ["off", "table", "json"]),
    ("decay_ms:-1", ["0", "3600000"]),
    ("decay_ms:3600001", ["0", "3600000"]),
    ("decay_ms:5s", ["0", "3600000"]),
    ("decay_ms:", ["0", "3600000"]),
    ("magazine_max:257", ["0", "256"]),
    ("populate_pages:0", ["1", "512"]),
    ("populate_pages:513", ["1", "512"]),
    ("soft_limit:much", ["K", "M", "G", "T"]),
    ("hard_limit:10X", ["K", "M", "G", "T"]),
    ("hard_limit:99999999999999999999999", ["K", "M", "G", "T"]),
    ("reserve:1.5G", ["K", "M", "G", "T"]),
]

GOOD = ["background:off", "background:on", "thp:never", "thp:always", "decay_ms:0", "decay_ms:3600000", "soft_limit:100M", "soft_limit:0",
        "hard_limit:1G", "hard_limit:1073741824", "rseq:auto", "grouping:off", "magazine_max:0", "magazine_max:256", "populate_pages:512",
        "reserve:4G", "", ",", "thp:never,,decay_ms:10,"]

# Another malloc, loaded before strata: one of its own, and one that hands on to the C library.
OTHER_MALLOC = r"""
#include <string.h>
static char pool[16 << 20];
static size_t used;
void *malloc(size_t n) {
    char *p = pool + used + 16;
    used += 16 + ((n + 15) & ~(size_t)15);
    memcpy(p - 16, &n, sizeof n);
    return p;
}
void *calloc(size_t n, size_t m) { return malloc(n * m); }
void *realloc(void *p, size_t n) {
    size_t old = 0;
    if (p != NULL) memcpy(&old, (char *)p - 16, sizeof old);
    void *fresh = malloc(n);
    return old == 0 ? fresh : memcpy(fresh, p, old < n ? old : n);
}
void free(void *p) { (void)p; }
"""
FORWARDING_MALLOC = r"""
#include <stddef.h>
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void __libc_free(void *);
void *malloc(size_t n) { return __libc_malloc(n); }
void *calloc(size_t n, size_t m) { return __libc_calloc(n, m); }
void *realloc(void *p, size_t n) { return __libc_realloc(p, n); }
void free(void *p) { __libc_free(p); }
"""


def echo(strata, conf, **options):
    """A program that prints "fine", with exactly these options. (Not echo: coreutils close stderr before strata could use it.)"""
    result = strata.run(["perl", "-e", 'print "fine\\n"'], env={"STRATA_CONF": conf}, prove=False, quiet=False, **options)
    assert result.text == "fine\n"
    return result


@pytest.mark.parametrize(("item", "allowed"), BAD_VALUES, ids=[item for item, _ in BAD_VALUES])
def test_bad_value(strata, item, allowed):
    """One line that names the key, the value, and what is allowed."""
    (line,) = echo(strata, item).errors.splitlines()
    key, value = item.split(":")
    assert line.startswith("strata: ") and key in line and value in line
    assert all(word in line for word in allowed), line


@pytest.mark.parametrize("item", ["bogus:1", "Decay_ms:5", "decay:5", "decay_ms", "=", ":", "thp=never"])
def test_unknown_key(strata, item):
    (line,) = echo(strata, item).errors.splitlines()
    assert line.startswith("strata: ") and item.split(":")[0] in line
    if item.rstrip(":=") and ":" in item:
        assert all(key in line for key in KEYS), line


def test_one_line_each_and_the_rest_counts(strata, tmp_path):
    lines = echo(strata, f"bogus:1,thp:maybe,stats:json,other:2,stats_file:{tmp_path}/s.json,soft_limit:3G").errors.splitlines()
    assert [word for line in lines for word in ("bogus", "thp", "other") if f"{word}:" in line.split("(")[0]] == ["bogus", "thp", "other"]
    assert len(lines) == 3 and json.loads((tmp_path / "s.json").read_text())["heap"]["soft_limit"] == 3 << 30


@pytest.mark.parametrize("conf", GOOD)
def test_good_values_are_silent(strata, conf):
    assert echo(strata, conf).errors == ""


def test_options_show(strata, tmp_path):
    path = tmp_path / "%p.json"
    echo(strata, f"stats:json,stats_file:{path},hard_limit:2G,rseq:off")
    (written,) = tmp_path.glob("[0-9]*.json")
    stats = json.loads(written.read_text())
    assert stats["heap"]["hard_limit"] == 2 << 30 and stats["mode"] == "thread" and written.stem == str(stats["pid"])


@pytest.mark.parametrize(("kind", "mark"), [("json", '{"version"'), ("table", "malloc-")])
def test_statistics_on_stderr(strata, kind, mark):
    assert mark in echo(strata, f"stats:{kind}").errors


def test_statistics_file_that_cannot_be_written(strata, tmp_path):
    lines = echo(strata, f"stats:json,stats_file:{tmp_path}/no/such/folder").errors.splitlines()
    assert len(lines) == 1 and "no/such/folder" in lines[0]


def test_statistics_file_that_is_full(strata):
    (line,) = echo(strata, "stats:json,stats_file:/dev/full").errors.splitlines()
    assert line == "strata: stats_file: /dev/full: not all of the statistics could be written"


def test_options_of_the_program(strata, helper, tmp_path):
    """strata_conf is read; the environment wins key by key."""

    def run(conf):
        path = tmp_path / "stats.json"
        result = strata.run([helper("fault/linked_conf")], env={"STRATA_CONF": f"stats:json,stats_file:{path},{conf}"}, preload=False, prove=False,
                            quiet=False)
        lines = result.errors.splitlines()
        assert len(lines) == 2 and "from_program" in lines[0] and "thp" in lines[1] and "sometimes" in lines[1]
        return json.loads(path.read_text())["heap"]["soft_limit"]

    assert run("") == 96 << 20
    assert run("soft_limit:5M") == 5 << 20


def test_raised_privileges(strata, helper, tmp_path):
    """A set-user-id program does nothing that its caller says: it writes no file for him, and has the memory that it wants."""
    if os.geteuid() != 0:
        pytest.fail("only root can make a program that runs with raised privileges", pytrace=False)
    folder = tmp_path
    program = shutil.copy(helper("fault/static_secure"), folder / "secure")
    os.chmod(program, 0o4755)
    for path in [folder, *folder.parents]:
        if path.stat().st_mode & 0o001 == 0:
            path.chmod(path.stat().st_mode | 0o711)  # a test folder of pytest's, which another user must reach
    folder.chmod(0o777)
    conf = f"stats:json,stats_file:{folder}/stolen,hard_limit:4K"

    def run(user):
        process = subprocess.run([program], env={"STRATA_CONF": conf}, user=user, capture_output=True, text=True, timeout=60, check=True)
        return process.stdout, process.stderr

    out, err = run("nobody")
    assert out == "secure=1 given=1\n", "the program did not run with raised privileges (is this file system mounted nosuid?)"
    assert not (folder / "stolen").exists()
    assert err == "strata: STRATA_CONF: ignored, as this program runs with raised privileges\n"
    out, err = run(None)
    assert out == "secure=0 given=0\n" and err == "" and (folder / "stolen").exists()


def test_verify_fails_where_another_malloc_comes_first(strata, compile_c):
    other = compile_c("libother.so", OTHER_MALLOC, "-shared", "-fPIC")
    env = {"LD_PRELOAD": f"{other}:{strata.library}", "STRATA_CONF": "verify:on"}
    result = strata.run(["/bin/echo", "fine"], env=env, expect=None, prove=False, quiet=False)
    assert result.returncode > 0 and result.out == b"", "the program ran on"
    (line,) = result.errors.splitlines()
    assert line.startswith("strata: ") and "malloc" in line
    env["STRATA_CONF"] = "verify:off"
    assert strata.run(["/bin/echo", "fine"], env=env, prove=False, quiet=False).text == "fine\n"


def test_verify_passes_a_malloc_that_hands_on_to_stratas(strata, compile_c):
    """A malloc in front that calls the C library's by its own names calls strata's, which has them."""
    other = compile_c("libforwards.so", FORWARDING_MALLOC, "-shared", "-fPIC")
    env = {"LD_PRELOAD": f"{other}:{strata.library}", "STRATA_CONF": "verify:on"}
    assert strata.run(["/bin/echo", "fine"], env=env, prove=False).text == "fine\n"


def test_verify_is_silent_where_strata_serves(strata):
    assert echo(strata, "verify:on").errors == ""
