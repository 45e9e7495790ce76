"""The workload "rocksdb": db_bench fills, overwrites, reads and seeks in a database in the scratch folder; served.py says what is measured.

The seed and the number of operations are fixed; every key that is read has been written, and db_bench says how many it found.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from served import TIMEOUT_S, Served, WorkloadError, main

NUMBER = 70_000
BENCHMARKS = "fillseq,overwrite,readrandom,seekrandom"
QUANTILES = {"p50": r"P50: ([\d.]+)", "p99": r"P99: ([\d.]+)", "p99_9": r"P99\.9: ([\d.]+)"}


def load() -> None:
    shutil.rmtree("db", ignore_errors=True)
    with Path("said").open("w+") as said:
        command = ["db_bench", f"--benchmarks={BENCHMARKS}", "--db=db", f"--num={NUMBER}", "--reads=40000", "--seed=3", "--histogram", "--threads=1"]
        command += ["--compression_type=none", "--write_buffer_size=4194304", "--cache_size=8388608", "--disable_wal", "--value_size=200"]
        with Served(command, stdout=said, stderr=subprocess.STDOUT) as server:
            server.start()
            server.wait(TIMEOUT_S)
            server.end()
            said.seek(0)
            text = said.read()
            found = re.search(r"readrandom.*\((\d+) of (\d+) found\)", text)
            if not found or found[1] != found[2]:
                raise WorkloadError(f"db_bench: {text[-500:]}")
            after = text[text.index("overwrite") :]
            server.measured |= {f"request_{name}_ns": float(re.search(pattern, after)[1]) * 1e3 for name, pattern in QUANTILES.items()}
            server.report()


if __name__ == "__main__":
    sys.exit(main("rocksdb", load))
