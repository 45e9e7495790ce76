"""The workload "numpy": expressions over arrays from 1 KiB to 16 MiB, whose temporaries come and go. Integers, so that the sum is exact."""

import numpy

ROUNDS = 2


def main() -> None:
    rng = numpy.random.default_rng(20060101)
    total = 0
    for round_number in range(ROUNDS):
        for shift in range(7, 22):
            length = 1 << shift
            a = rng.integers(0, 1 << 20, length, dtype=numpy.int64)
            b = numpy.arange(length, dtype=numpy.int64)
            for _ in range(max(1, (1 << 19) // length)):
                c = (a * 3 + b) ^ (a - b * 2)
                d = numpy.where(c > 0, c, -c) % 10007
                e = numpy.concatenate([d[: length // 2], d[length // 3 :]])
                total = (total + int(e.sum()) + int(numpy.cumsum(d)[-1])) & 0xFFFFFFFFFFFF
            total ^= int(numpy.sort(d)[length // 2]) + int(numpy.unique(d % 101).size) + round_number
        m = rng.integers(0, 100, (300, 300), dtype=numpy.int64)
        total = (total + int((m @ m.T).trace())) & 0xFFFFFFFFFFFF
        rows = [m[i % 300] * i for i in range(2000)]
        total ^= int(numpy.vstack(rows).sum()) & 0xFFFFFFFF
    print(total)


if __name__ == "__main__":
    main()
