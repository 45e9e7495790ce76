"""The workload "python": builds a large graph of objects, works on it, and takes it apart.

The suite runs it with PYTHONMALLOC=malloc. By default CPython serves objects up to 512 bytes from arenas that it maps itself, and
malloc would hardly be called. The seed and the amount of work are fixed; the checksum at the end is the same for every version
of Python that random.Random gives the same sequence in, which is all of Python 3.
"""

import gc
import json
import random
import sys

NODES = 80_000
EDGES_A_NODE = 4
ROUNDS = 2
CHECKSUM = 1_052_875_090


class Node:
    """One vertex: attributes in a dictionary of its own, edges in a list, so that graph and dictionaries form cycles."""

    def __init__(self, number: int, label: str):
        self.number = number
        self.label = label
        self.edges: list[Node] = []
        self.attributes: dict[str, object] = {}


def build(rng: random.Random) -> list[Node]:
    """A random graph in which every node has attributes of mixed types and sizes."""
    nodes = [Node(number, f"node-{rng.getrandbits(40):x}") for number in range(NODES)]
    for node in nodes:
        node.edges = [nodes[rng.randrange(NODES)] for _ in range(EDGES_A_NODE)]
        node.attributes = {
            "weight": rng.random(),
            "path": tuple(rng.randrange(1000) for _ in range(rng.randrange(1, 8))),
            "text": "x" * rng.randrange(1, 200),
            "parent": node.edges[0],
        }
    return nodes


def walk(nodes: list[Node]) -> int:
    """Breadth first from node 0; returns the number of nodes reached and the sum of what they hold, mixed."""
    seen = {0}
    level = [nodes[0]]
    total = 0
    while level:
        following = []
        for node in level:
            total += len(node.attributes["text"]) + sum(node.attributes["path"])
            for neighbour in node.edges:
                if neighbour.number not in seen:
                    seen.add(neighbour.number)
                    following.append(neighbour)
        level = following
    return (len(seen) * 1_000_003 + total) & 0xFFFFFFFF


def through_text(nodes: list[Node]) -> int:
    """A part of the graph to JSON and back."""
    rows = [
        {"number": node.number, "label": node.label, "edges": [edge.number for edge in node.edges]}
        for node in nodes[: NODES // 4]
    ]
    back = json.loads(json.dumps(rows))
    assert back == rows
    return sum(len(row["label"]) for row in back)


def main() -> int:
    rng = random.Random(20240229)
    checksum = 0
    nodes = build(rng)
    for _ in range(ROUNDS):
        checksum = (checksum * 31 + walk(nodes) + through_text(nodes)) & 0xFFFFFFFF
        # Every third node is replaced, as a long-lived process does it: old and new objects lie mixed in the heap.
        for number in range(0, NODES, 3):
            fresh = Node(number, f"node-{rng.getrandbits(40):x}")
            fresh.edges = nodes[number].edges
            fresh.attributes = {**nodes[number].attributes, "text": "y" * rng.randrange(1, 300)}
            nodes[number] = fresh
        gc.collect()
    del nodes
    gc.collect()
    if checksum != CHECKSUM:
        print(f"python: checksum {checksum} instead of {CHECKSUM}", file=sys.stderr)
        return 1
    print(checksum)
    return 0


if __name__ == "__main__":
    sys.exit(main())
