"""Makes the input of the workload "redis" in the scratch folder: commands in Redis' protocol for `redis-cli --pipe`.

load.resp fills the server with strings, hashes, lists and sorted sets of many sizes, change.resp replaces a half of the strings
with others of other sizes and deletes some. samples.json has values that must be there afterwards. All from one fixed seed.
"""

import json
import random
from pathlib import Path

STRINGS = 120_000
HASHES = 6_000
LISTS = 6_000
SORTED_SETS = 3_000
SAMPLE_EVERY = 1_009


def command(*words: str) -> bytes:
    """One command as a client sends it."""
    parts = [f"*{len(words)}\r\n".encode()]
    for word in words:
        data = word.encode()
        parts.append(b"$%d\r\n%s\r\n" % (len(data), data))
    return b"".join(parts)


def text_of(rng: random.Random) -> str:
    """A value: mostly short, now and then some KiB, as caches hold them."""
    length = rng.randrange(8, 200) if rng.random() < 0.95 else rng.randrange(1_000, 8_000)
    return f"{rng.getrandbits(64):016x}" * (length // 16 + 1)


def main() -> None:
    rng = random.Random(20090226)
    values: dict[str, str] = {}
    with Path("load.resp").open("wb") as stream:
        for number in range(STRINGS):
            values[f"load:{number}"] = text = text_of(rng)
            stream.write(command("SET", f"load:{number}", text))
        for number in range(HASHES):
            fields = [word for i in range(rng.randrange(2, 12)) for word in (f"field{i}", text_of(rng)[:64])]
            stream.write(command("HSET", f"hash:{number}", *fields))
        for number in range(LISTS):
            stream.write(command("RPUSH", f"list:{number}", *(text_of(rng)[:80] for _ in range(rng.randrange(2, 40)))))
        for number in range(SORTED_SETS):
            members = [w for i in range(rng.randrange(2, 200)) for w in (str(rng.randrange(10_000)), f"member{i}")]
            stream.write(command("ZADD", f"zset:{number}", *members))
    with Path("change.resp").open("wb") as stream:
        for number in range(0, STRINGS, 2):
            if number % 6 == 0:
                del values[f"load:{number}"]
                stream.write(command("DEL", f"load:{number}"))
            else:
                values[f"load:{number}"] = text = text_of(rng)
                stream.write(command("SET", f"load:{number}", text))
    samples = {key: values.get(key) for key in (f"load:{number}" for number in range(0, STRINGS, SAMPLE_EVERY))}
    keys = len(values) + HASHES + LISTS + SORTED_SETS
    Path("samples.json").write_text(json.dumps({"keys": keys, "samples": samples}), encoding="ascii")


if __name__ == "__main__":
    main()
