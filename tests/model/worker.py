"""Runs one model in a process of its own, so that a crash or a hang of the C side is a result like any other.

Started by conftest.py as `worker.py LIBRARY MODEL`. Reads requests from standard input, writes answers to standard output:
  request   1 byte 'r' (records) or 's' (seed), 4 bytes length, then the records, or seed and operations as two 64-bit numbers
  answer    1 byte result, 4 bytes length, the text
"""

import ctypes
import struct
import sys

TEXT_BYTES = 32768


def main():
    library = ctypes.CDLL(sys.argv[1])
    by_records = getattr(library, f"model_{sys.argv[2]}")
    by_records.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
    by_seed = getattr(library, f"model_{sys.argv[2]}_random")
    by_seed.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_char_p, ctypes.c_size_t]
    text = ctypes.create_string_buffer(TEXT_BYTES)
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    while header := requests.read(5):
        kind, length = struct.unpack("<cI", header)
        data = requests.read(length)
        text.value = b""
        if kind == b"r":
            result = by_records(data, len(data), text, TEXT_BYTES)
        else:
            result = by_seed(*struct.unpack("<QQ", data), text, TEXT_BYTES)
        answers.write(struct.pack("<BI", result, len(text.value)) + text.value)
        answers.flush()


if __name__ == "__main__":
    main()
