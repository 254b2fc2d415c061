# CommInsight: every target works on a bare machine that has Python >= 3.11 with venv, g++ and make.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1
NATIVE_SOURCES := CMakeLists.txt $(wildcard native/*.h native/src/* native/nccl/* native/pairs/* native/tests/* native/tests/fake_nccl/*)
NATIVE_STAMP := build/native/.stamp

.DEFAULT_GOAL := help
.PHONY: help precheck setup check test test-native score demo native fuzz bench gpu wire docs clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-12s %s\n", $$1, $$2}'

precheck:
	@$(PYTHON) tools/precheck.py

$(VENV)/.stamp: pyproject.toml tools/precheck.py tools/setup_venv.sh
	@$(PYTHON) tools/precheck.py
	@bash tools/setup_venv.sh $(PYTHON) $(VENV)
	@touch $@

setup: $(VENV)/.stamp $(NATIVE_STAMP) ## create .venv, install everything, build the native libraries

$(NATIVE_STAMP): $(NATIVE_SOURCES) $(VENV)/.stamp
	@$(BIN)/cmake -S . -B build/native -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja -DCMAKE_BUILD_TYPE=Release -DCOMMINSIGHT_TESTS=ON >/dev/null
	@$(BIN)/cmake --build build/native
	@mkdir -p src/comminsight/_native && cp --remove-destination build/native/*.so build/native/native/tests/fake_nccl/fake_nccl src/comminsight/_native/
	@touch $@

native: $(NATIVE_STAMP) ## build the native libraries into the package

wire: $(VENV)/.stamp ## regenerate native/wire.h from the Python layouts
	@PYTHONPATH=src $(BIN)/python tools/gen_wire.py

check: setup ## formatting, lint, types, floors, sizes, spelling, generated files
	$(BIN)/ruff format --check src tests tools benchmarks docs
	$(BIN)/ruff check src tests tools benchmarks docs
	$(BIN)/mypy
	PYTHONPATH=src $(BIN)/lint-imports --no-cache
	$(BIN)/python tools/check_size.py
	$(BIN)/python tools/gen_wire.py --check
	$(BIN)/codespell README.md CONTRIBUTING.md docs src tests tools native

test-native: setup ## native unit tests, under ASan+UBSan and TSan too
	@bash tools/test_native.sh $(BIN)

test: setup test-native ## the whole test suite (the same that CI runs)
	$(BIN)/python -m pytest tests

score: setup ## the full statistics of right and silent: 20 real seeds, 300 healthy simulated runs, the lab's faults
	@status=0; \
	COMMINSIGHT_FULL=1 $(BIN)/python -m pytest -s tests/laws tests/samples tests/integration/test_right_and_silent.py || status=1; \
	$(BIN)/python tools/score_cases.py || status=1; \
	$(BIN)/python tools/score_lab.py || status=1; \
	exit $$status

demo: setup ## a real 8-rank job with a planted slow rank, then one that hangs
	@$(BIN)/comminsight demo

FUZZ_SECONDS ?= 600
fuzz: setup ## wrong inputs to every reader of foreign files, for FUZZ_SECONDS (600)
	PYTHONPATH=src $(BIN)/python -m tests.fuzz.fuzz $(FUZZ_SECONDS)

bench: setup ## every benchmark, printed as tables
	@$(BIN)/python benchmarks/run_all.py

gpu: setup ## a real NCCL job under the plugin, where a GPU is (GPU_PYTHON=the Python whose torch has NCCL)
	@PYTHONPATH=src $(BIN)/python tools/gpu_check.py $(GPU_PYTHON)

docs: setup ## build the documentation
	$(BIN)/sphinx-build -W -q -b html docs docs/_build

clean: ## remove what was built
	rm -rf build $(VENV) src/comminsight/_native docs/_build
