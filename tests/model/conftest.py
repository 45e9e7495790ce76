"""What the model tests share: the C runners behind pipes, records from Hypothesis, shrinking by records, and a budget of time.

Hypothesis makes the records up. A failure is shrunk here, by whole records first, which takes a model from hundreds of operations
to a few in a second; what fails in the end is shown as operations, and in hexadecimal for a replay, which shows each operation
as it comes, so that a crash can be told from the last one:
    STRATA_MODEL_LIB=... python tests/model/conftest.py arena 0102030405060708 ...
Where the records are many, a file has them: $(cat FILE) then.

Environment: STRATA_MODEL_LIB, the shared object with the runners (tests/model/model.h says what they are); STRATA_MODEL_SECONDS, how
long each test goes on (default 3.5); STRATA_MODEL_SEED, where it begins (default: from the clock; a failure tells it);
STRATA_MODEL_LONG, when set, the number of operations of the random runs (default: what fits into the budget, in runs of 100,000);
`make models LONG=10000000` runs all of these, which are the tests whose names end in _for_long.
"""

import os
import select
import struct
import subprocess
import sys
import time
from pathlib import Path

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent.parent))
from logs import last_lines  # noqa: E402

RECORD_BYTES = 8
DEFAULT_SECONDS = 3.5
HANG_SECONDS = 120
SLOWEST_OPERATIONS_PER_SECOND = 1000  # of a long run on a busy machine
SHRINK_SECONDS = 60
EXAMPLES_AT_ONCE = 200
RANDOM_RUN_OPERATIONS = 100_000

MASK = (1 << 64) - 1


def budget_seconds():
    return float(os.environ.get("STRATA_MODEL_SECONDS", DEFAULT_SECONDS))


def first_seed():
    return int(os.environ.get("STRATA_MODEL_SEED", time.time_ns() // 1000)) & MASK


def random_record(seed, i):
    """Record i of a random run: model_random_record of model.h."""
    x = (seed + (i + 1) * 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return struct.pack("<Q", x ^ (x >> 31))


def long_operations():
    """How many operations a random run has that STRATA_MODEL_LONG asks for; None: it asks for none."""
    value = os.environ.get("STRATA_MODEL_LONG")
    if not value:
        return None
    if not value.isascii() or not value.isdigit() or not 0 < int(value) <= MASK:
        pytest.fail(f"STRATA_MODEL_LONG={value}: allowed is a number of operations from 1 to {MASK}", pytrace=False)
    return int(value)


class ModelFailure(AssertionError):
    """The layer and its reference disagree, or the layer crashed or hung."""


class ModelHang(ModelFailure):
    """It did not answer: shown as it is, as each try to make it shorter would take as long."""


class Model:
    """One runner of the library, in a process that is started again after each crash."""

    def __init__(self, library, name):
        self.library = library
        self.name = name
        self.process = None

    def start(self):
        self.process = subprocess.Popen([sys.executable, str(Path(__file__).parent / "worker.py"), str(self.library), self.name],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def stop(self):
        if self.process is not None:
            self.process.stdin.close()
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()
            self.process = None

    def read(self, count, operations=0):
        data, hang = b"", max(HANG_SECONDS, operations / SLOWEST_OPERATIONS_PER_SECOND)
        while len(data) < count:
            if not select.select([self.process.stdout], [], [], hang)[0]:
                self.stop()
                raise ModelHang(f"model {self.name} did not answer within {hang:.0f} s")
            part = os.read(self.process.stdout.fileno(), count - len(data))
            if not part:
                status = self.process.wait()
                self.stop()
                raise ModelFailure(f"model {self.name} ended the process with status {status}")
            data += part
        return data

    def ask(self, kind, data, operations=0):
        if self.process is None:
            self.start()
        try:
            self.process.stdin.write(struct.pack("<cI", kind, len(data)) + data)
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # reading says what became of it
        result, length = struct.unpack("<BI", self.read(5, operations))
        text = self.read(length).decode(errors="replace")
        if result != 0:
            raise ModelFailure(text)

    def run(self, data):
        """Runs records; raises ModelFailure."""
        self.ask(b"r", data)

    def run_random(self, seed, operations):
        """Runs `operations` random records; raises ModelFailure."""
        self.ask(b"s", struct.pack("<QQ", seed, operations), operations)


def without_what_is_not_needed(data, check):
    """The fewest records, and the fewest bytes in them that are not 0, that still make check fail; and the failure."""
    end = time.monotonic() + SHRINK_SECONDS
    best, failure = data, None

    def fails(candidate):
        nonlocal best, failure
        try:
            check(candidate)
        except ModelFailure as caught:
            best, failure = candidate, caught
            return True
        return False

    if not fails(data):
        return data, None
    progress = not isinstance(failure, ModelHang)
    while progress and time.monotonic() < end:
        before, size = best, max(1, len(best) // RECORD_BYTES // 2)
        while size >= 1 and time.monotonic() < end:
            at = 1
            while at * RECORD_BYTES < len(best) and time.monotonic() < end:
                if not fails(best[:at * RECORD_BYTES] + best[(at + size) * RECORD_BYTES:]):
                    at += size
            size //= 2
        for i in range(len(best)):
            for value in (0, best[i] // 2):
                if value < best[i] and time.monotonic() < end and fails(best[:i] + bytes([value]) + best[i + 1:]):
                    break
        progress = best != before
    return best, failure


def report(name, data, check, how, hang=None):
    """Raises ModelFailure for records that were seen to fail, as few as will do; for those of a hang, all of them."""
    shrunk, failure = (data, hang) if hang is not None else without_what_is_not_needed(data, check)
    if failure is None:
        raise ModelFailure(f"model {name}: {how}: failed once, and does not fail again")
    lines = "\n".join(shrunk[at:at + RECORD_BYTES].hex() for at in range(0, len(shrunk), RECORD_BYTES))
    raise ModelFailure(f"model {name}: {how}: {failure}\nrecords:\n{last_lines(lines, f'model-{name}')}") from None


def records(longest):
    """Sequences of records: short ones that are easy to read, and long ones that fill a layer."""
    record = st.binary(min_size=RECORD_BYTES, max_size=RECORD_BYTES)
    return st.one_of(st.lists(record, max_size=40), st.lists(record, min_size=min(100, longest), max_size=longest)).map(b"".join)


@pytest.fixture(scope="session")
def model_library():
    value = os.environ.get("STRATA_MODEL_LIB")
    if not value or not Path(value).exists():
        pytest.fail(f"STRATA_MODEL_LIB={value} is no file: see the docstring of tests/model/conftest.py", pytrace=False)
    return Path(value).resolve()


@pytest.fixture
def model(model_library):
    """model("arena") is the runner model_arena."""
    models = []

    def get(name):
        models.append(Model(model_library, name))
        return models[-1]

    yield get
    for one in models:
        one.stop()


@pytest.fixture
def explore():
    """explore(model, longest=400): runs records that Hypothesis makes up, until the budget is spent, and shrinks a failure."""

    def run(one, longest=400):
        seed, end, examples, failing = first_seed(), time.monotonic() + budget_seconds(), 0, None
        while examples == 0 or time.monotonic() < end:

            @hypothesis.seed(seed)
            @hypothesis.settings(max_examples=EXAMPLES_AT_ONCE, deadline=None, database=None, phases=[Phase.generate],
                                 suppress_health_check=list(HealthCheck))
            @given(records(longest))
            def one_round(data):
                nonlocal examples, failing
                if failing is not None or (examples != 0 and time.monotonic() >= end):
                    return
                examples += 1
                try:
                    one.run(data)
                except ModelFailure:
                    failing = data

            one_round()
            if failing is not None:
                report(one.name, failing, one.run, f"with STRATA_MODEL_SEED={seed}")
            seed = (seed + 1) & MASK
        return examples

    return run


@pytest.fixture
def random_runs():
    """random_runs(model): random runs until the budget is spent, or one of STRATA_MODEL_LONG operations. Shrinks a failure."""

    def run_one(one, seed, operations):
        try:
            one.run_random(seed, operations)
        except ModelFailure as failure:
            how = f"random run with seed {seed} of {operations} operations: {failure}"
            # Some failures are seen later in a long run, where checks are rare, than in a replay; none are seen earlier.
            first = str(failure).split(":")[0].split()
            count = int(first[1]) + 1 if first[:1] == ["operation"] else operations
            hang = failure if isinstance(failure, ModelHang) else None
            report(one.name, b"".join(random_record(seed, i) for i in range(min(count, operations))), one.run, how, hang)

    def run(one):
        seed, end = first_seed(), time.monotonic() + budget_seconds()
        if operations := long_operations():
            run_one(one, seed, operations)
            return 1
        runs = 0
        while runs == 0 or time.monotonic() < end:
            run_one(one, (seed + runs) & MASK, RANDOM_RUN_OPERATIONS)
            runs += 1
        return runs

    return run


if __name__ == "__main__":
    os.environ["STRATA_MODEL_TRACE"] = "1"
    Model(Path(os.environ["STRATA_MODEL_LIB"]).resolve(), sys.argv[1]).run(bytes.fromhex("".join(sys.argv[2:])))
    print("agrees")
