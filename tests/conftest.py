"""What the integration, fault and stress suites share: where strata is, how a program runs under it, and the proof that it did.

The environment names what is tested: STRATA_LIB (libstrata.so), STRATA_NO_RSEQ_LIB (the build without rseq), STRATA_BUILD (the build
folder whose tests/ holds the helper programs). A test that needs one which is missing fails; it does not skip.

`pytest --reference=glibc`, or `--reference=/path/of/malloc.so`, runs the tests against another malloc, without proof of strata: it
says whether a test states what programs may rely on. Tests of what only strata promises are left out then.
"""

import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from cgroups import MemoryCgroup  # noqa: E402
from logs import last_lines, shortened  # noqa: E402

# A hang is a failure with a name; nothing here takes longer than this on a loaded machine unless it says so.
TIMEOUT_S = 60
KILLED_TIMEOUT_S = 5


def pytest_addoption(parser):
    parser.addoption("--slow", action="store_true", help="also run the long variants (marker slow)")
    parser.addoption("--reference", default=None, metavar="MALLOC", help="run against this malloc ('glibc' or a path) instead of strata")


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: a longer variant, run with --slow")
    config.addinivalue_line("markers", "strata_only: about what only strata promises, so not run with --reference")


def pytest_collection_modifyitems(config, items):
    """Leaves out the slow variants unless asked for, and with --reference what only strata promises; pytest reports them as deselected."""
    left_out = set()
    if not config.getoption("--slow") and "slow" not in (config.getoption("-m") or ""):
        left_out.add("slow")
    if config.getoption("--reference") is not None:
        left_out.add("strata_only")
    deselected = [item for item in items if any(item.get_closest_marker(marker) for marker in left_out)]
    if deselected:
        config.hook.pytest_deselected(items=deselected)
        items[:] = [item for item in items if item not in deselected]


def required_path(name):
    """The path in the environment variable `name`, which has to exist."""
    value = os.environ.get(name)
    if not value:
        pytest.fail(f"{name} is not set: see the docstring of tests/conftest.py", pytrace=False)
    path = Path(value).resolve()
    if not path.exists():
        pytest.fail(f"{name}={value} does not exist", pytrace=False)
    return path


def rseq_is_registered():
    """Whether this system's C library registers restartable sequences: glibc from 2.35 on."""
    name, version = platform.libc_ver()
    return name == "glibc" and tuple(int(part) for part in version.split(".")[:2]) >= (2, 35)


@dataclass
class Result:
    """A program that has ended."""

    argv: list
    returncode: int
    out: bytes
    err: bytes
    stats: dict | None = None  # strata's statistics of the program itself
    all_stats: list = field(default_factory=list)  # of it and of its children, as many as exited

    @property
    def text(self):
        return self.out.decode(errors="replace")

    @property
    def errors(self):
        return self.err.decode(errors="replace")

    def describe(self):
        return f"{shortened(str(self.argv))}\nexit {self.returncode}\n{said(self.out, self.err)}"


def said(out, err):
    """What a process said, the ends of it; where that is not all, the file that has all."""
    return f"--- stdout\n{last_lines(out or b'', 'stdout')}\n--- stderr\n{last_lines(err or b'', 'stderr')}"


def finish(process, input_bytes, timeout_s):
    """Waits for a process that leads its own group, and ends the group where it takes too long."""
    try:
        return process.communicate(input_bytes, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        try:
            out, err = process.communicate(timeout=KILLED_TIMEOUT_S)
        except subprocess.TimeoutExpired as held:  # a pipe of its is somebody's who has left the group
            out, err = held.output, held.stderr
        pytest.fail(f"{shortened(str(process.args))} did not end within {timeout_s} s\n{said(out, err)}", pytrace=False)


class Strata:
    """Runs programs under one build of strata."""

    def __init__(self, mode, library, extra_env, tmp_path, reference=None):
        self.mode = mode
        self.library = library
        self.extra_env = extra_env
        self.tmp_path = tmp_path
        self.reference = reference

    @property
    def per_cpu(self):
        """Whether caches belong to CPUs in this mode (else to threads)."""
        return self.mode == "rseq" and rseq_is_registered()

    def environment(self, conf="", env=None, stats_dir=None, preload=True):
        """The environment that puts a program under strata."""
        full = {key: value for key, value in os.environ.items() if not key.startswith(("STRATA_", "LD_PRELOAD", "GLIBC_TUNABLES"))}
        full.update(self.extra_env)
        if self.reference is not None:
            if self.reference != "glibc" and preload:
                full["LD_PRELOAD"] = self.reference
        else:
            if preload:
                full["LD_PRELOAD"] = str(self.library)
            full["EXPECT_STRATA"] = "1"
            keys = ["verify:on"] if preload else []
            if stats_dir is not None:
                keys += ["stats:json", f"stats_file:{stats_dir}/%p.json"]
            if conf:
                keys.append(conf)
            full["STRATA_CONF"] = ",".join(keys)
        full.update(env or {})
        return full

    def popen(self, argv, conf="", env=None, stats_dir=None, preload=True, **options):
        """Starts a program under strata as the leader of a process group."""
        environment = self.environment(conf, env, stats_dir, preload)
        return subprocess.Popen([str(a) for a in argv], env=environment, start_new_session=True, **options)

    def run(self, argv, conf="", env=None, input=None, cwd=None, expect=0, prove=True, quiet=True, preload=True, timeout_s=TIMEOUT_S, **options):
        """Runs a program to its end.

        expect: the exit status that it must have, None for any. prove: the program must have left statistics that show that strata
        served it (False for programs that do not end by exit). quiet: strata must have said nothing on stderr.
        """
        stats_dir = Path(tempfile.mkdtemp(prefix="stats-", dir=self.tmp_path))
        stats_dir.chmod(0o777)
        process = self.popen(argv, conf, env, stats_dir, preload, stdin=subprocess.PIPE if input is not None else subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=cwd, **options)
        out, err = finish(process, input, timeout_s)
        result = Result([str(a) for a in argv], process.returncode, out, err)
        if expect is not None:
            assert result.returncode == expect, result.describe()
        if self.reference is None:
            if quiet:
                assert b"strata:" not in err, result.describe()
            result.all_stats = [json.loads(path.read_text()) for path in sorted(stats_dir.iterdir())]
            result.stats = next((stats for stats in result.all_stats if stats["pid"] == process.pid), None)
            if prove:
                self.prove(result)
        return result

    def prove(self, result):
        """The program ran under strata, in the mode that this object stands for, and strata served its allocations."""
        assert result.stats is not None, f"no statistics of the program itself: strata was not loaded\n{result.describe()}"
        mode = result.stats["mode"]
        assert mode.startswith("rseq-") if self.per_cpu else mode == "thread", f"mode {mode} in a test of {self.mode}"
        assert result.stats["heap"]["populated_bytes_total"] > 0, result.stats

    def prove_running(self, pid):
        """The running process has strata mapped (for servers, while they serve)."""
        if self.reference is None:
            assert str(self.library) in Path(f"/proc/{pid}/maps").read_text(), f"strata is not in process {pid}"


@pytest.fixture(scope="session")
def strata_lib():
    return required_path("STRATA_LIB")


@pytest.fixture(scope="session")
def strata_no_rseq_lib():
    return required_path("STRATA_NO_RSEQ_LIB")


@pytest.fixture(scope="session")
def strata_build():
    return required_path("STRATA_BUILD")


@pytest.fixture(scope="session")
def helper(strata_build):
    """The path of a helper program: helper("stress/fork_storm")."""

    def find(name):
        path = strata_build / "tests" / name
        if not path.exists():
            pytest.fail(f"{path} is not built", pytrace=False)
        return path

    return find


@pytest.fixture
def strata(request, tmp_path):
    """Programs under strata. Parametrize indirectly with "rseq" (the default), "no-rseq" (the build without) or "refused" (the
    ordinary build in a process whose C library does not register rseq, as under valgrind)."""
    mode = getattr(request, "param", "rseq")
    reference = request.config.getoption("--reference")
    if reference is not None:
        return Strata(mode, None, {}, tmp_path, reference)
    library = required_path("STRATA_NO_RSEQ_LIB" if mode == "no-rseq" else "STRATA_LIB")
    return Strata(mode, library, {"GLIBC_TUNABLES": "glibc.pthread.rseq=0"} if mode == "refused" else {}, tmp_path)


@pytest.fixture
def plain(tmp_path):
    """The same, without strata: programs under the system's own malloc, to compare with."""
    return Strata("glibc", None, {}, tmp_path, "glibc")


@pytest.fixture(scope="session")
def once():
    """once(name, function): what the function gives, called once in a session for all the tests that compare with it."""
    results = {}

    def get(name, function):
        if name not in results:
            results[name] = function()
        return results[name]

    return get


@pytest.fixture
def compile_c(tmp_path):
    """Compiles a few lines of C: compile_c("name.so", source, "-shared", "-fPIC")."""

    def build(name, source, *flags):
        target = tmp_path / name
        subprocess.run(["cc", "-O1", "-Wall", "-Werror", "-fno-builtin", "-x", "c", "-", "-o", str(target), *map(str, flags)],
                       input=source.encode(), check=True, timeout=TIMEOUT_S)
        return target

    return build


@pytest.fixture
def memory_cgroup():
    """Makes memory cgroups of so many bytes, removed when the test ends. Fails where none can be made."""
    made = []

    def make(limit_bytes):
        try:
            made.append(MemoryCgroup(limit_bytes))
        except (OSError, StopIteration) as error:
            pytest.fail(f"this machine has no memory cgroup that we may create: {error}", pytrace=False)
        return made[-1]

    yield make
    for cgroup in made:
        cgroup.remove()
