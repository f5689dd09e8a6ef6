# Two commands set everything up on a fresh machine that has Python 3.11+ and a C++ compiler:
#   make demo   runs the main job
#   make test   runs every check that CI runs
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
CORE   := $(filter-out core/tests/%,$(shell find core -name '*.[ch]pp')) CMakeLists.txt
RING   := $(wildcard core/ring/*.cpp core/tests/*.cpp)
FAULTS := .build/ring/faults
CXX_TEST := c++ -std=c++20 -Icore -g -Wall -Wextra -Werror -DPENSTOCK_KILL_POINTS -pthread

.DEFAULT_GOAL := help
.PHONY: help demo test check lint types unit reference bench peers peers-engine sanitise soak torture clean

help: ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(VENV)/.stamp: pyproject.toml lab/pyproject.toml constraints.txt $(CORE)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "penstock needs Python 3.11 or newer but '$(PYTHON)' is $$($(PYTHON) -V); run: make PYTHON=/path/to/python3.11 ..."; exit 2; }
	@command -v c++ >/dev/null || { echo "penstock needs a C++20 compiler but 'c++' is not on PATH; install g++ or clang"; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@# PySpark comes as source and builds with tools of its own choice, so it is installed before ours builds without isolation.
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt pip scikit-build-core nanobind cmake ninja pyspark
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt --no-build-isolation -e '.[dev]' -e ./lab
	@touch $@

demo: $(VENV)/.stamp ## the main job gets a better plan while it runs on an embedded Spark cluster; then every scheduler compared for it
	@mkdir -p out
	$(BIN)/penstock demo --plot out/move.png
	$(BIN)/penstock compare routes 2x16,2x8 --plot out/routes.png

test: $(VENV)/.stamp lint types unit ## everything CI runs

lint: $(VENV)/.stamp ## ruff
	$(BIN)/ruff check src lab tests
	$(BIN)/ruff format --check src lab tests

types: $(VENV)/.stamp ## mypy, strict
	$(BIN)/mypy

unit: $(VENV)/.stamp ## pytest
	$(BIN)/pytest -n 2 --dist loadgroup -q

reference: $(VENV)/.stamp ## write docs/reference/ anew from docstrings, registries and the command line
	$(BIN)/python -m penstock_lab.reference docs/reference

bench: $(VENV)/.stamp peers ## the published table of placement figures
	$(BIN)/penstock bench place

peers: $(VENV)/.stamp ## install the partitioners that the benchmark compares with
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e './lab[peers]' --no-build-isolation

peers-engine: $(VENV)/.stamp ## install the engines that `penstock bench engine` compares with, and run it
	$(BIN)/penstock bench engine --install-peers

sanitise: $(VENV)/.stamp ## the core's tests with address and undefined-behaviour checks compiled in
	$(BIN)/cmake -S . -B .build/sanitise -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo \
	  -DPython_EXECUTABLE=$(CURDIR)/$(BIN)/python -DPENSTOCK_SANITISE=address,undefined
	$(BIN)/cmake --build .build/sanitise
	rm -rf .build/sanitise/package && mkdir -p .build/sanitise/package && cp -r src/penstock .build/sanitise/package/
	cp .build/sanitise/_core*.so .build/sanitise/package/penstock/
	LD_PRELOAD="$$(c++ -print-file-name=libasan.so) $$(c++ -print-file-name=libubsan.so)" ASAN_OPTIONS=detect_leaks=0 \
	  UBSAN_OPTIONS=halt_on_error=1 $(BIN)/python -P tests/sanitised.py .build/sanitise/package \
	  tests/unit/test_core_network.py tests/unit/test_image.py tests/unit/test_routed_images.py tests/unit/test_socket_channel.py \
	  tests/unit/test_ring.py tests/unit/test_ring_growth.py tests/unit/test_ring_growth_engine.py tests/unit/test_links.py \
	  tests/unit/test_meters.py tests/contract/test_channels.py tests/fault/test_switch_faults.py \
	  tests/unit/test_operators_process.py tests/unit/test_process_time.py tests/unit/test_kernels_keyed.py tests/unit/test_kernels_rows.py \
	  tests/unit/test_row_types.py tests/unit/test_prepared.py tests/unit/test_top_per_key.py tests/unit/test_large_rows.py
	$(MAKE) -s $(FAULTS)-address $(FAULTS)-thread
	$(FAULTS)-address fuzz 20000 1
	$(FAULTS)-address threads 3 1
	for point in $$($(FAULTS)-address points); do $(FAULTS)-address kill $$point 10 1 || exit 1; done
	TSAN_OPTIONS=halt_on_error=1 $(FAULTS)-thread threads 10 1

torture: $(VENV)/.stamp ## break real jobs on purpose for up to 90 minutes and write RELIABILITY.md; goes on where it was interrupted
	$(BIN)/penstock torture --page RELIABILITY.md

soak: $(FAULTS) $(VENV)/.stamp ## 100,000 killed producers and consumers, a million mutated segments, 1,000 killed jobs
	$(FAULTS) random 100000 1
	$(FAULTS) fuzz 1000000 1
	$(BIN)/python tests/fault/killed_jobs.py 1000 1

$(FAULTS): $(RING) $(CORE) $(wildcard core/tests/*.hpp)
	@mkdir -p $(@D)
	$(CXX_TEST) -O2 $(RING) -o $@.$$$$ && mv $@.$$$$ $@  # whole or not there: test processes build it side by side

$(FAULTS)-address: $(RING) $(CORE) $(wildcard core/tests/*.hpp)
	@mkdir -p $(@D)
	$(CXX_TEST) -O1 -fsanitize=address,undefined -fno-sanitize-recover=all $(RING) -o $@

$(FAULTS)-thread: $(RING) $(CORE) $(wildcard core/tests/*.hpp)
	@mkdir -p $(@D)
	$(CXX_TEST) -O1 -fsanitize=thread $(RING) -o $@

clean: ## remove everything that was built
	rm -rf $(VENV) .build out
