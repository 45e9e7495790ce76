"""The workload "pybench": pieces like those that languages' benchmark suites have, each with its share of a checksum.

Objects with methods, a tree, dictionaries, JSON, pickles, regular expressions, templates, sorting, compression, big numbers. CPython
serves objects up to 512 bytes itself; what is left to malloc is larger, and lives longer.
"""

import json
import pickle
import random
import re
import string
import zlib
from collections import Counter, deque
from heapq import heappop, heappush


def richards(rng: random.Random) -> int:
    """Tasks in a queue that wake each other."""
    queue = deque({"id": i, "left": rng.randrange(20, 60), "inbox": []} for i in range(300))
    done = 0
    while queue:
        task = queue.popleft()
        task["inbox"] = [*task["inbox"][-20:], (task["id"], task["left"])]
        task["left"] -= 1
        if task["left"]:
            queue.append(task)
        else:
            done = (done * 31 + len(task["inbox"]) + task["id"]) & 0xFFFFFFFF
    return done


def graph(rng: random.Random) -> int:
    """Shortest ways through a random graph."""
    edges = {i: [(rng.randrange(6000), rng.randrange(1, 100)) for _ in range(6)] for i in range(6000)}
    best, heap = {0: 0}, [(0, 0)]
    while heap:
        distance, node = heappop(heap)
        if distance > best[node]:
            continue
        for other, length in edges[node]:
            if distance + length < best.get(other, 1 << 30):
                best[other] = distance + length
                heappush(heap, (distance + length, other))
    return sum(best.values())


def documents(rng: random.Random) -> int:
    """Records through JSON, pickle and compression."""
    rows = [{"id": i, "name": f"name-{rng.getrandbits(60):x}", "tags": [str(rng.random())] * (i % 7), "text": "z" * (i % 900)} for i in range(4000)]
    text = json.dumps(rows)
    packed = zlib.compress(text.encode(), 3)
    assert json.loads(zlib.decompress(packed)) == rows == pickle.loads(pickle.dumps(rows))
    return len(text)


def texts(rng: random.Random) -> int:
    words = ["".join(rng.choices(string.ascii_lowercase, k=rng.randrange(2, 12))) for _ in range(3000)]
    text = " ".join(rng.choices(words, k=40000))
    counted = Counter(re.findall(r"\b[a-m]\w+", text))
    filled = string.Template("$a: ${b}\n").substitute
    page = "".join(filled(a=word, b=count) for word, count in sorted(counted.items()))
    return len(page) + len(re.sub(r"(\w)(\w+)", r"\2\1ay", text)) + zlib.crc32(page.encode())


def numbers(_rng: random.Random) -> int:
    a, b = 0, 1
    for _ in range(12000):
        a, b = b, a + b
    return a % 1_000_003 + pow(7, 1 << 900, (1 << 2203) - 1) % 997


def main() -> None:
    rng = random.Random(20080101)
    checksum = 0
    for _ in range(2):
        for part in (richards, graph, documents, texts, numbers):
            checksum = (checksum * 1_000_003 + part(rng)) & 0xFFFFFFFFFFFF
    print(checksum)


if __name__ == "__main__":
    main()
