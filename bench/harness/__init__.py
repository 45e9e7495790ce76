"""The benchmark harness behind bench/bench.py: what is run, how it is measured, and what is made of the figures."""
