"""SQLite and Redis: the same results as under the system's malloc, and data that survives a save and a reload."""

import contextlib
import hashlib
import re
import socket
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

BOTH = pytest.mark.parametrize("strata", ["rseq", "no-rseq"], indirect=True)

# SQL of our own: inserts with and without index, selects by range and text, joins, updates, deletes, vacuum.
SQL = """
PRAGMA page_size=4096; PRAGMA cache_size=4000; PRAGMA journal_mode=WAL; PRAGMA threads=2;
CREATE TABLE numbers(a INTEGER, b INTEGER, c TEXT);
CREATE TABLE keyed(a INTEGER PRIMARY KEY, b INTEGER UNIQUE, c TEXT COLLATE NOCASE);
WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i+1 FROM n WHERE i < 40000)
  INSERT INTO numbers SELECT i, (i * 7919) % 100003, printf('%09d-%s', (i * 104729) % 1000003, substr('abcdefghijklmnopqrstuvwxyz', i % 20, 7)) FROM n;
INSERT INTO keyed SELECT a, b * 100000 + a, c FROM numbers ORDER BY b;
CREATE INDEX numbers_b ON numbers(b);
CREATE INDEX numbers_c ON numbers(c, a);
SELECT count(*), avg(b), sum(length(c)) FROM numbers WHERE b BETWEEN 1000 AND 60000;
SELECT count(*) FROM numbers WHERE c LIKE '%def%';
SELECT a % 10, count(*), min(c), max(c), group_concat(DISTINCT length(c)) FROM numbers GROUP BY 1 ORDER BY 1;
SELECT count(*) FROM numbers n JOIN keyed k ON n.a = k.a AND k.c = n.c COLLATE NOCASE JOIN numbers m ON m.b = n.b + 1;
SELECT a, b, row_number() OVER (PARTITION BY a % 7 ORDER BY c) AS r FROM numbers ORDER BY r DESC, a LIMIT 20;
BEGIN; UPDATE numbers SET b = b * 2, c = c || c WHERE a % 3 = 0; COMMIT;
BEGIN; DELETE FROM numbers WHERE a % 5 = 0; INSERT INTO numbers SELECT a, b % 1000, upper(c) FROM keyed WHERE a % 5 = 0; COMMIT;
CREATE TABLE large(id INTEGER PRIMARY KEY, data BLOB);
INSERT INTO large SELECT a, zeroblob(a % 50000) FROM keyed WHERE a % 200 = 0;
UPDATE large SET data = CAST(data AS TEXT) || hex(zeroblob(id % 3000)) WHERE id % 400 = 0;
SELECT count(*), sum(length(data)) FROM large;
SELECT count(*), sum(json_extract(json_object('a', a, 'list', json_array(a, b, c)), '$.list[1]')) FROM numbers;
VACUUM;
ANALYZE;
PRAGMA integrity_check;
SELECT * FROM numbers ORDER BY a, b LIMIT 1000;
"""


@BOTH
def test_sqlite(strata, plain, once, tmp_path):
    def run(runner, name):
        result = runner.run(["sqlite3", "-batch", tmp_path / f"{name}.db"], input=SQL.encode())
        assert "\nok\n" in result.text, result.describe()
        dump = runner.run(["sqlite3", tmp_path / f"{name}.db", ".dump"])
        return result.out, hashlib.sha256(dump.out).hexdigest()

    assert run(strata, "strata") == once("sqlite", lambda: run(plain, "plain"))


@pytest.fixture(scope="session")
def speedtest1(tmp_path_factory):
    """SQLite's own speed test, which comes with its source alone (tools/setup.sh), on the system's library."""
    source = ROOT / "build/speedtest1/speedtest1.c"
    if not source.exists():
        pytest.fail(f"{source} is not there: tools/setup.sh test fetches it, which needs Debian's source packages", pytrace=False)
    program = tmp_path_factory.mktemp("speedtest1") / "speedtest1"
    subprocess.run(["cc", "-O1", "-w", "-DSQLITE_ENABLE_RTREE", source, "-o", program, "-lsqlite3"], check=True, timeout=120)
    return program


@BOTH
def test_speedtest1(strata, plain, once, speedtest1, tmp_path):
    def run(runner, name):
        out = tmp_path / f"{name}.txt"
        result = runner.run([speedtest1, "--verify", "--nosync", "--size", 5, "--threads", 2, "--testset", "main,cte,rtree,orm,fp",
                             "--output", out, tmp_path / f"{name}.db"])
        (verified,) = re.findall(r"^Verification Hash: (\d+ \w+)$", result.text, re.M)
        return verified, hashlib.sha256(out.read_bytes()).hexdigest()

    assert run(strata, "strata") == once("speedtest1", lambda: run(plain, "plain"))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def redis_server(runner, folder, stats_dir):
    """A redis-server on the loopback; gives a function that sends it a command. Ends with SHUTDOWN, and it must end well."""
    port = free_port()
    process = runner.popen(["redis-server", "--port", port, "--bind", "127.0.0.1", "--dir", folder, "--save", "", "--enable-debug-command", "local",
                            "--io-threads", "2"],
                           stats_dir=stats_dir, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def send(*words):
        out = subprocess.run(["redis-cli", "-p", str(port), *map(str, words)], capture_output=True, text=True, timeout=60)
        return out.stdout.strip()

    send.port = port
    send.process = process
    try:
        deadline = time.monotonic() + 30
        while send("PING") != "PONG":
            assert process.poll() is None and time.monotonic() < deadline, process.stdout.read().decode()
            time.sleep(0.05)
        yield send
        send("SHUTDOWN", "NOSAVE")
        out, _ = process.communicate(timeout=30)
        assert process.returncode == 0 and b"strata:" not in out, out.decode()
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(("strata", "requests"), [("rseq", 8000), ("no-rseq", 3000)], indirect=["strata"])
def test_redis(strata, plain, tmp_path, requests):
    """redis-benchmark, a save in the foreground and one by fork, reloads, and the same data in a server on the system's malloc."""
    data, stats_dir = tmp_path / "data", tmp_path / "stats"
    data.mkdir()
    stats_dir.mkdir()
    with redis_server(strata, data, stats_dir) as send:
        strata.prove_running(send.process.pid)
        benchmark = strata.run(["redis-benchmark", "-p", send.port, "-q", "-n", requests, "-c", 20, "-P", 8, "-r", 20000, "-d", 100, "-t",
                                "set,get,incr,lpush,rpush,lpop,sadd,hset,spop,zadd,zpopmin,lrange_100,mset"], timeout_s=120)
        assert len(re.findall(r"requests per second", benchmark.text)) >= 13, benchmark.describe()
        send("EVAL", "for i = 1, 3000 do redis.call('SET', 'key' .. i, string.rep('x', (i * 37) % 9000)) end", 0)
        send("EVAL", "for i = 1, 3000, 2 do redis.call('APPEND', 'key' .. i, string.rep('y', i)) redis.call('DEL', 'key' .. i + 1) end", 0)
        digest = send("DEBUG", "DIGEST")
        assert re.fullmatch("[0-9a-f]{40}", digest) and digest != "0" * 40
        assert "Background saving started" in send("BGSAVE")
        while "rdb_bgsave_in_progress:1" in send("INFO", "persistence"):
            time.sleep(0.05)
        assert "rdb_last_bgsave_status:ok" in send("INFO", "persistence")
        assert send("DEBUG", "RELOAD") == "OK" and send("DEBUG", "DIGEST") == digest
        assert send("SAVE") == "OK"
    if not strata.reference:
        assert list(stats_dir.iterdir()), "the server left no statistics: strata did not serve it"
    with redis_server(strata, data, stats_dir) as send:
        assert send("DEBUG", "DIGEST") == digest
        assert send("FLUSHALL") == "OK" and send("DBSIZE") == "0"
    with redis_server(plain, data, None) as send:
        assert send("DEBUG", "DIGEST") == digest
    checked = strata.run(["redis-check-rdb", data / "dump.rdb"])
    assert "Checksum OK" in checked.text
