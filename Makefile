# The thin front: every target is one call that can be made by hand. CMake presets do the work.
SHELL := /bin/bash
.DELETE_ON_ERROR:
.DEFAULT_GOAL := build
.PHONY: build demo test test-long bench wheel lint format sanitize clean help FORCE
# One target after the other, in the order they are named: set-up comes before what it is for, and every recipe takes
# all cores itself.
.NOTPARALLEL:

BUILD := build/release
COMMAND := $(BUILD)/bin/evenkeel
# CMake's own test runner and Ninja take all cores; a smaller machine says JOBS=1.
JOBS ?= $(shell nproc)
# Sources with precompiled headers are cached only if told that this is meant. What the compiler writes down of headers
# spares a first build a pass of the preprocessor over every source.
export CCACHE_SLOPPINESS := pch_defines,time_macros
export CCACHE_DEPEND := 1

help:
	@echo "make build     the command, at $(COMMAND)"
	@echo "make demo      what balancing buys, on a real routing trace"
	@echo "make test      builds everything and runs the tests"
	@echo "make test-long the storms of random routings and faults, 20 times as many: about an hour"
	@echo "make bench     the benchmarks, each beside its rival or its limit"
	@echo "make wheel     wheels of the Python package that need nothing but pip, in build/wheels"
	@echo "make lint      formatting, include directions, clang-tidy, ruff"
	@echo "make format    rewrites the sources as .clang-format and ruff say"
	@echo "make sanitize  the concurrent tests under ThreadSanitizer, the parsing ones under ASan and UBSan"
	@echo "make clean     removes build/"

# Set-up runs once, and again when the script changes.
build/.setup-%: tools/setup.sh
	@mkdir -p build
	@tools/setup.sh $*
	@touch $@

# Says where HiGHS is, and is new only when that has changed. Building it takes minutes, so that is left to the targets
# that need it, and to whoever wants exact placement: tools/setup.sh highs.
build/.highs: FORCE
	@ls $${EVENKEEL_HIGHS_ROOT:-build/highs}/lib*/cmake/highs/highs-config-version.cmake >$@.now 2>/dev/null || true
	@if cmp -s $@.now $@; then rm $@.now; else mv $@.now $@; fi
FORCE:

$(BUILD)/build.ninja: build/.setup-build build/.highs
	@cmake --preset release
	@touch $@

build: $(BUILD)/build.ninja
	@cmake --build --preset release --parallel $(JOBS) --target bin/evenkeel

demo: build
	@tools/demo.sh $(COMMAND)

# Without nanobind the Python package is not tested, and everything else is. Configured again, since it is found only
# once it is there.
test: build/.setup-highs $(BUILD)/build.ninja
	@$(MAKE) --no-print-directory build/.setup-python || echo "make: going on without the tests of the Python package"
	@cmake --preset release >/dev/null
	@cmake --build --preset release --parallel $(JOBS)
	@ctest --preset release --parallel $(JOBS)

test-long: $(BUILD)/build.ninja
	@cmake --build --preset release --parallel $(JOBS)
	@for program in layer_storm_test layer_budget_test; do EVENKEEL_STORM=20 $(BUILD)/bin/$$program || exit; done
	@EVENKEEL_STORM=20 ctest --preset release --tests-regex '^(comm_mpi|torch)_fault_storm_test$$'

# Configured again, since OpenBLAS is found only once it is there. Rows without it still have their other rival.
bench: build/.setup-bench $(BUILD)/build.ninja
	@cmake --preset release >/dev/null
	@cmake --build --preset release --parallel $(JOBS)
	@for program in $(BUILD)/bin/*_benchmark; do echo "== $$program"; "$$program" || exit; done
	@$(COMMAND) bench

wheel: build/.setup-highs build/.setup-wheel
	@tools/wheel.sh

lint: build/.setup-highs build/.setup-lint $(BUILD)/build.ninja
	@tools/lint.sh

format: build/.setup-lint
	@tools/lint.sh --fix

sanitize: build/.setup-build build/.setup-fuzz
	@tools/sanitize.sh

clean:
	rm -rf build
