"""Which allocators are measured, and how they are named on the command line."""

import pytest
from harness.allocators import FALLBACK, FALLBACK_CONF, Allocator, collect, prove
from harness.launching import RunFailed


@pytest.fixture
def library(tmp_path):
    path = tmp_path / "lib,v=2.so"
    path.write_text("")
    return path


def test_a_peer_may_have_variables_of_its_own(library):
    found, _ = collect(None, [f"plain={library}", f"told={library},GLIBC_TUNABLES=glibc.pthread.rseq=0,A_B=x,y"], [])
    plain, told = found[-2:]
    assert plain.name == "plain" and plain.preload == told.preload == str(library) and plain.env == {}
    assert told.env == {"GLIBC_TUNABLES": "glibc.pthread.rseq=0", "A_B": "x,y"}
    assert plain.in_bar and told.in_bar


@pytest.mark.parametrize(
    "peer, message",
    [("x", "allowed: NAME=VALUE"), ("x=/nonexistent.so", "no such file"), ("x={},LD_PRELOAD=y", "LD_PRELOAD is what"), ("glibc={}", "two allocators of this name")],
)
def test_peers_that_make_no_sense_are_refused(library, peer, message):
    with pytest.raises(RunFailed, match=message):
        collect(None, [peer.format(library)], [])


def test_a_peer_is_a_rival_but_not_another_build_of_strata(launcher, programs, strata_lib, tmp_path):
    """A rival that is faster makes strata's bar higher; strata as it was yesterday does not."""
    older = tmp_path / "older.so"
    older.symlink_to(strata_lib)
    found, _ = collect(None, [f"older={older}", f"libc={find_libc()}"], [])
    proven = [prove(one, launcher, programs / "probe") for one in found[-2:]]
    assert [one.in_bar for one in proven] == [False, True]
    assert proven[0].version == strata_lib.resolve().name and proven[1].version


def test_who_does_not_serve_the_program_is_refused(launcher, programs, strata_lib, compile_c):
    other = compile_c("other.so", "int nothing;\n", "-shared", "-fPIC")
    with pytest.raises(RunFailed, match="other: malloc comes from .*/libc.*, not from .*/other.so"):
        prove(Allocator("other", str(other)), launcher, programs / "probe")
    with pytest.raises(RunFailed, match="glibc: malloc comes from .*strata.*, not from the C library"):
        prove(Allocator("glibc", env={"LD_PRELOAD": str(strata_lib)}), launcher, programs / "probe")


def find_libc():
    return next(line.split()[-1] for line in open("/proc/self/maps") if "/libc.so.6" in line)


def test_the_path_without_rseq_is_strata_again_and_no_rival(launcher, programs, strata_lib):
    found, _ = collect(strata_lib, [], [f"{FALLBACK}={FALLBACK_CONF}"])
    fallback = next(one for one in found if one.name == FALLBACK)
    assert not fallback.in_bar and not fallback.is_strata and fallback.preload == found[0].preload
    prove(fallback, launcher, programs / "probe")
    told = launcher.run(["/bin/sh", "-c", "echo $STRATA_CONF"], env={**fallback.env}).output
    assert told == "rseq:off\n"
