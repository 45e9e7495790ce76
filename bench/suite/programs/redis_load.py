"""The workloads "redis" and "redis-evict": a redis-server under pipelined requests.

"redis" is filled, changed, put under redis-benchmark, saved and reloaded, and stopped. "redis-evict" (argument: evict) has less
memory than its keys want and throws out the least recently used ones, so that blocks of all sizes die in no order. served.py
says what is measured. Client and server talk over a socket in the scratch folder.

The input is fixed (redis_prepare.py). redis-benchmark takes no seed, so its keys differ from run to run, but the number of its
requests and the range of its keys are fixed. It has a database of its own, so that the contents of the first one are known.
"""

import json
import re
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from served import Served, WorkloadError, main, run

SOCKET = "redis.sock"
START_TIMEOUT_S = 20
BENCHMARK = ["-n", "60000", "-r", "50000", "-d", "120", "-P", "16", "-c", "50", "--dbnum", "1"]
BENCHMARK_TESTS = "set,get,incr,lpush,rpop,sadd,hset,zadd"
EVICT_LIMIT_BYTES = 48 << 20
EVICT_ROUNDS = ((100, 150_000), (700, 60_000), (40, 250_000))  # bytes of a value, requests


class Connection:
    """A client with the few parts of Redis' protocol that the checks need."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(SOCKET)
        self._stream = self._socket.makefile("rb")

    def ask(self, *words: str) -> str | None:
        self._socket.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w.encode()) for w in words))
        line = self._stream.readline().decode().rstrip("\r\n")
        if line.startswith("-"):
            raise WorkloadError(f"{words[0]}: {line}")
        if not line.startswith("$"):
            return line[1:]
        length = int(line[1:])
        return None if length < 0 else self._stream.read(length + 2)[:-2].decode()


def served(*more: str) -> Served:
    options = ["--port", "0", "--unixsocket", SOCKET, "--save", "", "--appendonly", "no", "--enable-debug-command", "local"]
    # A dump of the run before would be loaded.
    for left in (SOCKET, "dump.rdb"):
        Path(left).unlink(missing_ok=True)
    return Served(["redis-server", *options, "--logfile", "redis.log", *more])


def connect(server: Served) -> Connection:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if server.has_ended:
            raise WorkloadError(f"redis-server ended with status {server.process.returncode} while starting")
        with suppress(OSError, WorkloadError):
            connection = Connection()
            if connection.ask("PING") == "PONG":
                return connection
        time.sleep(0.01)
    raise WorkloadError(f"redis-server does not answer after {START_TIMEOUT_S} s")


def pipe(file: str) -> None:
    with Path(file).open("rb") as stream:
        done = subprocess.run(["redis-cli", "-s", SOCKET, "--pipe"], stdin=stream, capture_output=True, text=True)
    if done.returncode != 0 or "errors: 0" not in done.stdout:
        raise WorkloadError(f"redis-cli --pipe < {file}: {done.stdout}{done.stderr}")


def check_contents(connection: Connection) -> None:
    wanted = json.loads(Path("samples.json").read_text(encoding="ascii"))
    if (keys := connection.ask("DBSIZE")) != str(wanted["keys"]):
        raise WorkloadError(f"{keys} keys instead of {wanted['keys']}")
    for key, value in wanted["samples"].items():
        if connection.ask("GET", key) != value:
            raise WorkloadError(f"{key}: not the value that was set last")


def benchmark(options: list[str], tests: str) -> str:
    said = run(["redis-benchmark", "-s", SOCKET, *options, "-t", tests])
    # It ends with 0 also when the server has gone; its lines tell.
    if said.count("requests per second") + said.count("throughput summary") < len(tests.split(",")):
        raise WorkloadError(f"redis-benchmark: {said[-500:]}")
    return said


def latencies(said: str) -> dict[str, float]:
    """Of the first request that the benchmark tells of, in ns: the least time within which this share of the answers came."""
    steps = [(float(share), float(ms)) for share, ms in re.findall(r"^([\d.]+)% <= ([\d.]+) milliseconds", said, re.MULTILINE)]
    found = {}
    for name, wanted in (("p50", 50), ("p99", 99), ("p99_9", 99.9)):
        found[f"request_{name}_ns"] = next((ms for share, ms in steps if share >= wanted), steps[-1][1]) * 1e6
    return found


def finish(server: Served, connection: Connection) -> None:
    with suppress(ConnectionError):  # there is no reply to this one
        connection.ask("SHUTDOWN", "NOSAVE")
    server.end()
    server.report()


def load() -> None:
    """All the work, from a server that just started to one that was told to stop."""
    with served() as server:
        connection = connect(server)
        server.start()
        pipe("load.resp")
        pipe("change.resp")
        said = benchmark(BENCHMARK, BENCHMARK_TESTS)
        connection.ask("DEBUG", "RELOAD")
        server.stop()
        server.measured |= latencies(said)
        check_contents(connection)
        finish(server, connection)


def evict() -> None:
    """Keys for some 100 MiB go through a server that may have 48."""
    with served("--maxmemory", str(EVICT_LIMIT_BYTES), "--maxmemory-policy", "allkeys-lru") as server:
        connection = connect(server)
        server.start()
        for value_bytes, requests in EVICT_ROUNDS:
            said = benchmark(["-n", str(requests), "-r", "400000", "-d", str(value_bytes), "-P", "32", "-c", "20"], "set,get")
        server.stop()
        server.measured |= latencies(said)
        info = connection.ask("INFO") or ""
        figures = dict(re.findall(r"^(evicted_keys|used_memory|maxmemory):(\d+)", info, re.MULTILINE))
        if int(figures["evicted_keys"]) < 10_000 or int(figures["used_memory"]) > EVICT_LIMIT_BYTES * 1.1:
            raise WorkloadError(f"it did not evict as it must: {figures}")
        finish(server, connection)


if __name__ == "__main__":
    sys.exit(main("redis", evict if sys.argv[1:] == ["evict"] else load))
