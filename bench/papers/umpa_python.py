"""Two loads for table 2 of the paper on user mode page allocation: umpa_python.py binary-trees DEPTH | k-nucleotide LENGTH.

Trees of pairs are built and counted; frequencies of all words of up to 8 letters are counted in a made-up sequence. Prints a number that says that the
work was done.
"""

import sys


def tree(depth):
    return (tree(depth - 1), tree(depth - 1)) if depth else ()


def count(node):
    return 1 + sum(map(count, node))


def binary_trees(depth):
    kept = tree(depth)
    return sum(count(tree(some)) for some in range(4, depth)) + count(kept)


def k_nucleotide(length):
    state, letters = 42, []
    for _ in range(length):
        state = (state * 3877 + 29573) % 139968
        letters.append("ACGT"[state * 4 // 139968])
    text = "".join(letters)
    words = {}
    for size in (1, 2, 4, 8):
        for at in range(length - size + 1):
            word = text[at : at + size]
            words[word] = words.get(word, 0) + 1
    return len(words) + words["ACGT"]


if __name__ == "__main__":
    print({"binary-trees": binary_trees, "k-nucleotide": k_nucleotide}[sys.argv[1]](int(sys.argv[2])))
