"""sort, xz, a shell that forks, and stress-ng's own verification."""

import lzma
import random

import pytest

BOTH = pytest.mark.parametrize("strata", ["rseq", "no-rseq"], indirect=True)
MIB = 1 << 20


@BOTH
def test_sort(strata, tmp_path):
    random.seed(3)
    lines = [b"%x %s\n" % (random.getrandbits(64), b"x" * random.randrange(40)) for _ in range(300000)]
    source = tmp_path / "lines"
    source.write_bytes(b"".join(lines))
    expected = b"".join(sorted(lines))
    for buffer in ("100M", "2M"):  # in memory, and by merging files
        result = strata.run(["sort", "--parallel=2", "-S", buffer, "-T", tmp_path, source], env={"LC_ALL": "C"})
        assert result.out == expected
    result = strata.run(["sort", "--parallel=2", "-u", "-k2,2", "-k1,1r", source], env={"LC_ALL": "C.UTF-8"})
    assert len(result.out) == len(expected)


@BOTH
def test_xz(strata):
    random.seed(4)
    words = [random.randbytes(random.randrange(3, 30)) for _ in range(3000)]
    data = b"".join(random.choice(words) for _ in range(250000))
    packed = strata.run(["xz", "-T2", "-3", "--block-size=1MiB", "-c"], input=data).out
    assert len(packed) < len(data) and lzma.decompress(packed) == data
    assert strata.run(["xz", "-T2", "-d", "-c"], input=packed).out == data


@BOTH
def test_shell(strata, tmp_path):
    """Pipes, subshells, background jobs: many short processes, each with strata from start to end."""
    script = """
        total=0
        for i in $(seq 1 60); do
            words=$(printf '%s ' $(seq 1 $((i * 10))) | tr ' ' '\\n' | awk '{ n += $1 } END { print n }')
            ( : $(( total + words )) ) & total=$((total + words))
        done
        wait
        echo $total $(declare -p | wc -l | awk '{ print ($1 > 10) }')
    """
    result = strata.run(["bash", "-c", script])
    expected = sum(sum(range(1, i * 10 + 1)) for i in range(1, 61))
    assert result.text == f"{expected} 1\n" and result.errors == ""
    if strata.reference is None:
        assert len(result.all_stats) > 200


@pytest.mark.parametrize("stressor", [["--malloc", "2", "--malloc-bytes", "128M", "--malloc-pthreads", "2", "--malloc-zerofree"],
                                      ["--malloc", "2", "--malloc-bytes", "256M", "--malloc-touch", "--malloc-max", "16384"],
                                      ["--vm", "2", "--vm-bytes", "128M"],
                                      ["--memcpy", "1", "--tree", "1", "--hsearch", "1"]], ids=["malloc-threads", "malloc-touch", "vm", "others"])
@pytest.mark.parametrize("strata", ["rseq", "no-rseq"], indirect=True)
def test_stress_ng(strata, tmp_path, stressor):
    result = strata.run(["stress-ng", *stressor, "--verify", "--timeout", "2s", "--oomable", "--temp-path", tmp_path])
    assert "successful run completed" in result.text + result.errors, result.describe()
