"""Little memory: limits of the process, of strata, and of a cgroup."""

import resource
import subprocess

import pytest

BOTH = pytest.mark.parametrize("strata", ["rseq", "no-rseq"], indirect=True)
MIB = 1 << 20


def address_space(mib):
    """For preexec_fn: RLIMIT_AS."""

    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (mib * MIB, mib * MIB))

    return limit


@pytest.mark.parametrize("strata", ["rseq", "no-rseq", "refused"], indirect=True)
def test_exhausted_address_space(strata, helper):
    """64 MiB: at least 24 of them reach the program, then NULL and ENOMEM; all come back."""
    assert strata.run([helper("stress/exhaust"), 24, 64], preexec_fn=address_space(64)).text == "works on\n"


@pytest.mark.strata_only
@BOTH
@pytest.mark.parametrize("background", ["on", "off"])
def test_exhausted_hard_limit(strata, helper, background):
    """hard_limit counts what the heap occupies, so the blocks are a little less."""
    conf = f"hard_limit:64M,background:{background}"
    assert strata.run([helper("stress/exhaust"), 44, 64], conf=conf).text == "works on\n"


@pytest.mark.strata_only
def test_new_handler_makes_room(strata, helper):
    strata.run([helper("stress/operators"), "room"], conf="hard_limit:64M")


@BOTH
def test_programs_in_little_address_space(strata, tmp_path):
    """Ordinary programs in 64 MiB, threads and fork included."""
    lines = b"".join(b"%d %d\n" % (i * 7919 % 100003, i) for i in range(60000))
    expected = b"".join(sorted(lines.splitlines(keepends=True)))
    result = strata.run(["sort", "--parallel=2", "-S", "8M"], env={"LC_ALL": "C"}, input=lines, preexec_fn=address_space(64))
    assert result.out == expected
    result = strata.run(["perl", "-e", 'my %h; $h{$_ % 5000} .= $_ for 1..40000; print scalar(keys %h), " ", `echo child`'],
                        preexec_fn=address_space(64))
    assert result.text == "5000 child\n"


@BOTH
def test_the_smallest_stack_of_a_thread(strata, helper):
    """Slow paths of malloc leave the program half of it."""
    assert strata.run([helper("stress/small_stack")], conf="background:off,decay_ms:100").text == "well\n"


@BOTH
@pytest.mark.parametrize("conf", ["", "background:on", "background:off,decay_ms:3600000"])
def test_phases_in_a_cgroup(strata, helper, memory_cgroup, conf):
    """Blocks of four kinds in turn, 48 MiB each, in 80 MiB: what one kind leaves idle the next one uses."""
    cgroup = memory_cgroup(80 * MIB)
    result = strata.run([helper("stress/pressure"), "phases", 48, 4], conf=conf, preexec_fn=cgroup.join)
    assert result.text == "alive\n"


@pytest.mark.strata_only
def test_hoard_gives_way_to_a_neighbour(strata, helper, memory_cgroup):
    """Idle memory that strata would keep for an hour goes back when another program in the cgroup needs it."""
    cgroup = memory_cgroup(192 * MIB)
    process = strata.popen([helper("stress/pressure"), "hoard", 128], conf="background:on,decay_ms:3600000", preexec_fn=cgroup.join,
                           stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        idle_kib = int(process.stdout.readline().split()[1])
        strata.prove_running(process.pid)
        assert idle_kib > 100 * 1024, "the memory went back before there was pressure: nothing is tested"
        neighbour = subprocess.run([helper("stress/pressure"), "need", "120", "25"], preexec_fn=cgroup.join, capture_output=True, text=True, timeout=60)
        assert neighbour.stdout == "had it\n", f"the neighbour ended with {neighbour.returncode}"
        print("\n", file=process.stdin, flush=True)
        assert int(process.stdout.readline().split()[1]) < 80 * 1024
        process.stdin.close()
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.wait()
