# What a person types. The build itself is CMakeLists.txt with the presets of CMakePresets.json; results are under build/.
#
#   make           libstrata.so and libstrata.a in build/release
#   make run       the same, then real programs under strata and under the other allocators, compared
#   make test      every check: two compilers, sanitizers, layers, format, installation, model, fault, stress and real programs
#   make bench     the benchmarks of docs/benchmarks.md, in an hour; QUICK=1 for minutes; BENCH_ARGS goes to bench/bench.py (--write-docs)
#   make models    the long mode of the models: each layer against its reference, LONG (10000000) random operations each, one after another: hours;
#                  ONLY="quantum debug" for some of them, by the names of tests/model/test_NAME.py
#   make tidy      clang-tidy over the library, beside the checks of make test: some five minutes
#   make papers    the papers' experiments, and docs/papers.md; ONLY=contiguity|kmem|magazines|vh|umpa for one paper (the page stays as it is), QUICK=1 for
#                  seconds each, PAPERS_ARGS goes to bench/papers/papers.py
#   make install   to PREFIX (default /usr/local); DESTDIR is honoured
#   make format    rewrites the sources with clang-format
#   make clean     removes build/
PREFIX ?= /usr/local
LONG ?= 10000000

.DEFAULT_GOAL := all
.PHONY: all run test models tidy bench papers install format clean
.NOTPARALLEL:

all:
	@tools/setup.sh build
	@tools/build.sh release

run:
	@tools/setup.sh build run
	@tools/build.sh release
	@bench/run_demo.sh

test:
	@tools/setup.sh build run test
	@build/venv/bin/python tools/run_checks.py

models:
	@tools/setup.sh build test
	@tools/build.sh sim
	@STRATA_MODEL_LIB=build/sim/libstrata_model.so STRATA_MODEL_LONG='$(LONG)' build/venv/bin/python -m pytest -p no:cacheprovider -v --durations=0 \
		-k for_long $(if $(ONLY),$(ONLY:%=tests/model/test_%.py),tests/model)

tidy:
	@tools/setup.sh build test
	@tools/build.sh clang-debug clang-sim
	@tools/check_tidy.sh build/clang-debug 2
	@tools/check_tidy.sh build/clang-sim 2

bench:
	@tools/setup.sh build run bench
	@tools/build.sh bench
	@$(if $(QUICK),QUICK=$(QUICK)) build/venv/bin/python bench/bench.py $(BENCH_ARGS)

papers:
	@tools/setup.sh build papers
	@tools/build.sh experiments
	@build/venv/bin/python bench/papers/papers.py $(if $(ONLY),--only '$(ONLY)',--write-docs) $(PAPERS_ARGS)

install: all
	@cmake --install build/release --prefix "$(PREFIX)"
	@[ -n "$(DESTDIR)" ] || [ "$$(id -u)" != 0 ] || ldconfig

format:
	@tools/check_format.sh --fix

clean:
	rm -rf build
