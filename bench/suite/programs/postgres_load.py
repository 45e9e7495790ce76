"""The workload "postgres": a database cluster in the scratch folder under pgbench; served.py says what is measured.

`prepare` makes the cluster once, without an allocator under test. A run starts a server on it, does a fixed number of
transactions of two kinds, and checks what TPC-B promises: the balances of accounts, tellers and branches have the same sum.
Each run adds to the history, a few hundred KiB, the same for all. PostgreSQL refuses to run as root: there it runs as nobody.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from served import Served, WorkloadError, main, run

SCALE = 4
START_TIMEOUT_S = 30
SETTINGS = {
    "listen_addresses": "", "unix_socket_directories": ".", "fsync": "off", "synchronous_commit": "off", "shared_buffers": "64MB",
    "autovacuum": "off", "max_wal_size": "2GB", "jit": "off", "logging_collector": "off",
}  # fmt: skip
SELECTS, UPDATES = 3000, 700  # transactions of each of the clients
CLIENTS = ["-c", "4", "-j", "1", "-M", "prepared", "--random-seed=7"]


def programs() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if not found:
        raise WorkloadError("no /usr/lib/postgresql/*/bin/postgres")
    return found[-1].parent


def as_user() -> dict:
    return {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.getuid() == 0 else {}


def client(name: str, *words: str) -> str:
    return run([str(programs() / name), "-h", str(Path.cwd() / "socket"), *words], env={**os.environ, "PGUSER": "bench", "PGDATABASE": "postgres"})


def served() -> Served:
    options = [word for key, value in SETTINGS.items() for word in ("-c", f"{key}={value}")]
    options += ["-c", f"unix_socket_directories={Path.cwd() / 'socket'}"]
    return Served([str(programs() / "postgres"), "-D", str(Path.cwd() / "data"), *options], stderr=subprocess.DEVNULL, **as_user())


def wait_for(server: Served) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if server.has_ended:
            raise WorkloadError(f"postgres ended with status {server.process.returncode} while starting")
        with suppress(WorkloadError):
            client("psql", "-Atc", "SELECT 1")
            return
        time.sleep(0.05)
    raise WorkloadError(f"postgres does not answer after {START_TIMEOUT_S} s")


def finish(server: Served) -> None:
    server.process.send_signal(signal.SIGINT)  # the fast shutdown
    server.end()


def prepare() -> None:
    for name in ("data", "socket"):
        Path(name).mkdir()
        if as_user():
            shutil.chown(name, "nobody", "nogroup")
    run([str(programs() / "initdb"), "-D", str(Path.cwd() / "data"), "-U", "bench", "-A", "trust", "-N", "--no-locale"], **as_user())
    with served() as server:
        wait_for(server)
        client("pgbench", "-i", "-q", "-s", str(SCALE))
        server.process.send_signal(signal.SIGINT)
        server.process.wait()


def latencies(folder: Path) -> dict[str, float]:
    """In ns, of single transactions: the third word of a line of pgbench's log is in microseconds."""
    times = sorted(int(line.split()[2]) for path in folder.glob("log.*") for line in path.read_text().splitlines())
    for path in folder.glob("log.*"):
        path.unlink()
    return {f"request_{name}_ns": times[int(share * (len(times) - 1))] * 1e3 for name, share in (("p50", 0.5), ("p99", 0.99), ("p99_9", 0.999))}


def load() -> None:
    with served() as server:
        wait_for(server)
        before = int(client("psql", "-Atc", "SELECT count(*) FROM pgbench_history"))
        server.start()
        client("pgbench", "-n", "-S", *CLIENTS, "-t", str(SELECTS))
        said = client("pgbench", "-n", *CLIENTS, "-t", str(UPDATES), "-l", "--log-prefix=log")
        client("psql", "-Atc", "SELECT bid, count(*), sum(abalance), string_agg(md5(aid::text), '' ORDER BY aid) FROM pgbench_accounts "
               "WHERE aid % 17 = 0 GROUP BY bid ORDER BY bid")  # fmt: skip
        server.stop()
        server.measured |= latencies(Path.cwd())
        if not re.search(rf"processed: {4 * UPDATES}/{4 * UPDATES}", said):
            raise WorkloadError(f"pgbench: {said[-500:]}")
        sums = [client("psql", "-Atc", f"SELECT sum({column}) FROM {table}").strip() for table, column in
                (("pgbench_accounts", "abalance"), ("pgbench_tellers", "tbalance"), ("pgbench_branches", "bbalance"), ("pgbench_history", "delta"))]  # fmt: skip
        after = int(client("psql", "-Atc", "SELECT count(*) FROM pgbench_history"))
        if len(set(sums)) != 1 or after - before != 4 * UPDATES:
            raise WorkloadError(f"sums of balances {sums}, {after - before} new rows of history")
        finish(server)
        server.report()


if __name__ == "__main__":
    sys.exit(main("postgres", prepare if sys.argv[1:] == ["prepare"] else load))
