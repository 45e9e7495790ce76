#!/bin/sh
# Checks a run of the workload "gxx": the object file that g++ left in the scratch folder links, and the program says what it
# must. Not measured.
set -eu

expected="5622369969420703756 550"
g++ gxx_source.o -o gxx_program
said=$(./gxx_program)
rm -f gxx_source.o gxx_program
if [ "$said" != "$expected" ]; then
    echo "gxx: the compiled program says '$said' instead of '$expected'" >&2
    exit 1
fi
