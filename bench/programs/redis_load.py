"""The workload "redis": a redis-server is filled, changed, put under redis-benchmark, saved and reloaded, and stopped.

Only the server runs under the allocator that this script finds in LD_PRELOAD; the clients run without. What is reported to
`strata compare` is of the server alone: its own CPU time, faults and peak RSS, and as wall time what passes from the first
command to the last reply. Client and server talk over a socket in the scratch folder.

The input is fixed (redis_prepare.py). redis-benchmark takes no seed, so its keys differ from run to run, but the number of its
requests and the range of its keys are fixed. It has a database of its own, so that the contents of the first one are known.
"""

import json
import os
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

SOCKET = "redis.sock"
START_TIMEOUT_S = 20
BENCHMARK = ["-n", "60000", "-r", "50000", "-d", "120", "-P", "16", "-c", "50", "--dbnum", "1", "-q"]
BENCHMARK_TESTS = "set,get,incr,lpush,rpop,sadd,hset,zadd"


class WorkloadError(Exception):
    """The server did something else than it must."""


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


def start_server(preload: str) -> subprocess.Popen:
    env = {**os.environ, "LD_PRELOAD": preload} if preload else dict(os.environ)
    options = {
        "--port": "0", "--unixsocket": SOCKET, "--save": "", "--appendonly": "no", "--enable-debug-command": "local",
        "--logfile": "redis.log",
    }  # fmt: skip
    return subprocess.Popen(["redis-server", *(word for pair in options.items() for word in pair)], env=env)


def connect(server: subprocess.Popen) -> Connection:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise WorkloadError(f"redis-server ended with status {server.returncode} while starting")
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


def benchmark() -> None:
    done = subprocess.run(["redis-benchmark", "-s", SOCKET, *BENCHMARK, "-t", BENCHMARK_TESTS], capture_output=True, text=True)
    # It ends with 0 also when the server has gone; its lines tell.
    if done.returncode != 0 or done.stdout.count("requests per second") != len(BENCHMARK_TESTS.split(",")):
        raise WorkloadError(f"redis-benchmark: {done.stdout[-500:]}{done.stderr[-500:]}")


def peak_rss_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise WorkloadError("no VmHWM in the server's status")


def load(server: subprocess.Popen) -> dict[str, float]:
    """All the work, from a server that just started to one that was told to stop; returns what only here can be read."""
    connection = connect(server)
    begin = time.perf_counter()
    pipe("load.resp")
    pipe("change.resp")
    benchmark()
    connection.ask("DEBUG", "RELOAD")
    wall_s = time.perf_counter() - begin
    check_contents(connection)
    measured = {"wall_s": wall_s, "peak_rss_bytes": peak_rss_bytes(server.pid)}
    with suppress(ConnectionError):  # there is no reply to this one
        connection.ask("SHUTDOWN", "NOSAVE")
    return measured


def main() -> int:
    Path(SOCKET).unlink(missing_ok=True)
    server = start_server(os.environ.pop("LD_PRELOAD", ""))
    try:
        measured = load(server)
        _, status, usage = os.wait4(server.pid, 0)
        server.returncode = os.waitstatus_to_exitcode(status)
        if server.returncode != 0:
            raise WorkloadError(f"redis-server ended with status {server.returncode}")
    except WorkloadError as error:
        print(f"redis: {error}", file=sys.stderr)
        return 1
    finally:
        if server.returncode is None:
            server.kill()
            server.wait()
    measured |= {
        "user_s": usage.ru_utime,
        "system_s": usage.ru_stime,
        "minor_faults": usage.ru_minflt,
        "major_faults": usage.ru_majflt,
    }
    report = "".join(f"STRATA_METRIC {name}={value}\n" for name, value in measured.items())
    # By hand, without `strata compare`, the figures go to the terminal.
    os.write(int(os.environ.get("STRATA_METRICS_FD", "1")), report.encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
