# The entry point for developers: `make help`. Everything is written to .venv/, build*/ and dist/.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
JOBS ?= $(shell nproc)
# 1: compiler warnings are errors.
WERROR ?= 0
# 1: kernels are only checked, and tests are compiled quickly and run slowly, on machines without a GPU.
ONLY_CHECK_KERNELS ?= 0
# 1: test-native omits the tests that test-sanitize runs as they are.
ALSO_SANITIZED ?= 0
# Processes that run the Python tests. Those that need GPUs cannot share them, so more than 1 is for other machines.
PYTEST_JOBS ?= 1
# Seconds per target of `make fuzz`.
FUZZ_SECONDS ?= 60
# Faults that `make mutants` judges, and which of them.
SAMPLE ?= 20
SEED ?= 1

VENV := .venv
BIN := $(CURDIR)/$(VENV)/bin
# One at a time, also if make runs several rules at once.
PIP := flock $(VENV) $(BIN)/python -m pip --disable-pip-version-check
RELEASE_ARCHITECTURES := 80-real;86-real;89-real;90-real;100-real;120
PACKAGE_FILES = $(shell find python include -type f -not -name '*.pyc' 2>/dev/null)
export PATH := $(BIN):$(PATH)

.PHONY: help run setup build package test test-native test-sanitize test-python test-toolkit test-integrations \
  lint lint-dependencies lint-tree lint-abi lint-python lint-format lint-tidy abi bench docs docs-site docs-programs \
  format fuzz mutants golden wheel clean FORCE

help:
	@echo 'make run     set up, build, install into .venv, and run the demo'
	@echo 'make test    run every test that this machine supports'
	@echo 'make test-integrations  run those of integrations with the real frameworks (12 GB; half an hour the first time)'
	@echo 'make lint    check formatting, types, dependencies between folders, the tree and the ABI'
	@echo 'make bench   time the codecs and some collectives on this CPU (one minute)'
	@echo 'make docs    build the documentation in build-docs/site, and run the programs that it shows'
	@echo 'make format  format the sources'
	@echo 'make fuzz    search for inputs that break a decoder (needs clang++)'
	@echo 'make mutants FILES="src/comm/split.cc"  plant faults in sources and list those that their tests do not notice'
	@echo 'make golden  regenerate the golden vectors and fuzz seeds, after a change of the format'
	@echo 'make abi     update the ABI description, after a change of the public headers'
	@echo 'make wheel   build a release wheel for all architectures in dist/'
	@echo 'make clean   remove everything that make built'

run: package
	$(BIN)/narrowcast demo

# --- set-up ---------------------------------------------------------------------------------------------------------

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo 'Narrowcast needs Python 3.10 or newer (set PYTHON)' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/build.stamp: requirements/build.txt requirements/runtime.txt | $(VENV)/bin/python
	$(PIP) install --quiet -r requirements/build.txt -r requirements/runtime.txt
	@touch $@

$(VENV)/test.stamp: requirements/test.txt requirements/runtime.txt | $(VENV)/bin/python
	$(PIP) install --quiet -r requirements/test.txt
	@touch $@

$(VENV)/docs.stamp: requirements/docs.txt requirements/runtime.txt | $(VENV)/bin/python
	$(PIP) install --quiet -r requirements/docs.txt
	@touch $@

$(VENV)/lint.stamp: requirements/lint.txt requirements/runtime.txt | $(VENV)/bin/python
	$(PIP) install --quiet -r requirements/lint.txt
	@touch $@

# Contains the path of nvcc. Updated when that nvcc no longer exists.
NVCC_IS_GONE := $(shell [ ! -s $(VENV)/nvcc ] || [ -x "$$(cat $(VENV)/nvcc)" ] || echo FORCE)
$(VENV)/nvcc: requirements/cuda.txt tools/cuda_toolchain.sh $(NVCC_IS_GONE) | $(VENV)/bin/python
	@flock $(VENV) tools/cuda_toolchain.sh >$@.new && mv $@.new $@
	@echo "nvcc: $$(cat $@)"

# A new file for each value of the options, so that a change reconfigures the builds.
OPTIONS := $(VENV)/options.$(WERROR)$(ONLY_CHECK_KERNELS)$(ALSO_SANITIZED)
$(OPTIONS): | $(VENV)/bin/python
	@rm -f $(VENV)/options.* && touch $@

setup: $(VENV)/build.stamp $(VENV)/nvcc

# --- build ----------------------------------------------------------------------------------------------------------

# Ninja reconfigures by itself when a CMake file or the list of sources changes. Another compiler needs a fresh cache.
build/build.ninja: $(VENV)/build.stamp $(VENV)/nvcc $(OPTIONS)
	cmake --preset release $(shell grep -sq "=$$(cat $(VENV)/nvcc)$$" build/CMakeCache.txt || echo --fresh) \
	  -DCMAKE_CUDA_COMPILER="$$(cat $(VENV)/nvcc)" -DNARROWCAST_WERROR=$(WERROR) \
	  -DNARROWCAST_ONLY_CHECK_KERNELS=$(ONLY_CHECK_KERNELS) -DNARROWCAST_ALSO_SANITIZED=$(ALSO_SANITIZED)
	@touch $@

build/libnarrowcast.so: build/build.ninja FORCE
	cmake --build build -j $(JOBS) --target narrowcast narrowcast_nccl

build: build/libnarrowcast.so

# The wheel is built from build/, which is up to date at this point.
$(VENV)/package.stamp: build/libnarrowcast.so pyproject.toml CMakeLists.txt $(wildcard cmake/*) $(PACKAGE_FILES)
	$(PIP) install --quiet --no-build-isolation --no-deps --force-reinstall .
	@touch $@

package: $(VENV)/package.stamp

# The host code and its tests under sanitizers.
build-sanitize/build.ninja: $(VENV)/build.stamp $(OPTIONS)
	cmake --preset sanitize -DNARROWCAST_WERROR=$(WERROR)
	@touch $@

# --- test -----------------------------------------------------------------------------------------------------------

CTEST = ctest --output-on-failure --no-tests=error -j $(JOBS)

test: test-native test-sanitize test-python

test-native: build/build.ninja $(VENV)/test.stamp
	cmake --build build -j $(JOBS)
	$(CTEST) --test-dir build
	@grep -h '^skipped: ' build/Testing/Temporary/LastTest.log | sort | uniq -c || true

test-sanitize: build-sanitize/build.ninja $(VENV)/test.stamp
	cmake --build build-sanitize -j $(JOBS)
	$(CTEST) --test-dir build-sanitize

test-python: $(VENV)/package.stamp $(VENV)/test.stamp
	cmake --build build -j $(JOBS) --target narrowcast_nccl_test
	$(BIN)/python -m pytest $(if $(filter-out 1,$(PYTEST_JOBS)),-n $(PYTEST_JOBS) --dist worksteal)

# Builds a sample with a toolkit that exists only in /usr/local/cuda: not on PATH, no headers in /usr/local/include.
test-toolkit: $(VENV)/build.stamp
	tools/bare.sh --toolkit tools/build_sample.sh build-toolkit || [ $$? = 77 ]

# The tests with the real frameworks, in two environments that share nothing with .venv, because GraphBolt needs an old
# torch. Not a part of `make test`: 12 GB, and half an hour the first time.
FRAMEWORKS := .venv-integrations
FRAMEWORKS_PIP = $(basename $@)/bin/python -m pip --disable-pip-version-check install --quiet
define frameworks-venv
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' || \
  { echo 'The packages pinned for test-integrations need Python 3.11 or 3.12 (set PYTHON)' >&2; exit 1; }
$(PYTHON) -m venv --clear $(basename $@)
endef

$(FRAMEWORKS)/integrations.stamp: requirements/integrations.txt requirements/integrations-no-deps.txt \
  requirements/test.txt requirements/runtime.txt
	$(frameworks-venv)
	$(FRAMEWORKS_PIP) -r $<
	$(FRAMEWORKS_PIP) --no-deps -r requirements/integrations-no-deps.txt
	mkdir $(basename $@)/suites
	$(basename $@)/bin/unearth --no-binary --download $(CURDIR)/$(basename $@)/suites \
	  $$(grep ^safetensors== requirements/test.txt) >/dev/null
	tar -xzf $(basename $@)/suites/safetensors-*.tar.gz -C $(basename $@)/suites
	@touch $@

$(FRAMEWORKS)/graphbolt.stamp: requirements/graphbolt.txt
	$(frameworks-venv)
	$(FRAMEWORKS_PIP) -r $<
	@touch $@

test-integrations: build/libnarrowcast.so $(FRAMEWORKS)/integrations.stamp $(FRAMEWORKS)/graphbolt.stamp
	export PYTHONPATH=$(CURDIR)/python NARROWCAST_LIBRARY=$(CURDIR)/build/libnarrowcast.so; \
	$(FRAMEWORKS)/integrations/bin/python -m pytest -rs tests/python/integrations tests/python/torch_backend \
	  tests/python/kv tests/python/test_guide.py; \
	$(FRAMEWORKS)/graphbolt/bin/python -m pytest -rs -k graphbolt tests/python/integrations/test_graphbolt.py \
	  tests/python/integrations/test_integration_examples.py tests/python/test_guide.py; \
	$(FRAMEWORKS)/integrations/bin/python -m pytest -rfEXx -n 2 --disable-warnings \
	  tests/python/integrations/suites/torch_distributed.py tests/python/integrations/suites/safetensors_own.py

# --- lint -----------------------------------------------------------------------------------------------------------

CXX_FILES = $(shell git ls-files --cached --others --exclude-standard 'include/*.h' 'include/*.cuh' 'examples/*' 'src/*' 'tests/*' | grep -E '\.(h|cc|cu|cuh|inc)$$')

lint: lint-dependencies lint-tree lint-abi lint-python lint-format lint-tidy

lint-dependencies: | $(VENV)/bin/python
	python tools/check_dependencies.py
	python tools/check_includes.py

lint-tree: | $(VENV)/bin/python
	python tools/tidy.py

lint-abi: $(VENV)/lint.stamp
	python tools/abi.py check

lint-python: $(VENV)/lint.stamp
	ruff check .
	ruff format --check .
	mypy

lint-format: $(VENV)/lint.stamp
	@echo clang-format --dry-run --Werror
	@clang-format --dry-run --Werror $(CXX_FILES)

# The sources of src/, most of them several at a time (cmake/unity.cmake): parsing headers takes most of the time.
lint-tidy: $(VENV)/lint.stamp $(VENV)/build.stamp
	cmake --preset lint --log-level=WARNING
	@echo clang-tidy -p build-lint
	@sed -En 's,^ *"file": "(.*/(src/.*\.cc|Unity/.*\.cxx))".*,\1,p' build-lint/compile_commands.json | sort -u | \
	  xargs -d '\n' -n 1 -P $(JOBS) clang-tidy --quiet -p build-lint --extra-arg=-Wno-unknown-warning-option

format: $(VENV)/lint.stamp
	ruff check --fix .
	ruff format .
	@echo clang-format -i
	@clang-format -i $(CXX_FILES)

# --- bench and docs -------------------------------------------------------------------------------------------------

# A quick check on this machine. Published measurements are in bench/results/.
bench: package
	$(BIN)/narrowcast bench codec python/narrowcast/data/llama_slices.safetensors --tile 16M -n 3
	for operation in all_gather all_reduce; do \
	  $(BIN)/narrowcast bench $$operation --backend host -e 4M --codec raw,window; \
	done

docs: docs-site docs-programs

# Broken links and public functions without documentation are warnings, which fail the build (strict in mkdocs.yml).
docs-site: $(VENV)/docs.stamp
	NO_MKDOCS_2_WARNING=1 mkdocs build

docs-programs: $(VENV)/package.stamp $(VENV)/test.stamp
	$(BIN)/python -m pytest -rs tests/python/test_guide.py tests/python/integrations/test_integration_examples.py

# --- the rest -------------------------------------------------------------------------------------------------------

fuzz: $(VENV)/build.stamp
	CXX=clang++ cmake -S . -B build-fuzz -G Ninja -DNARROWCAST_SANITIZE=ON -DNARROWCAST_FUZZ=ON
	cmake --build build-fuzz -j $(JOBS)
	for target in build-fuzz/tests/fuzz_*; do \
	  name=$${target##*/fuzz_}; \
	  mkdir -p build-fuzz/found/$$name; \
	  seeds=$$(ls -d tests/fuzz/corpus/$$name 2>/dev/null || true); \
	  $$target -max_total_time=$(FUZZ_SECONDS) -artifact_prefix=build-fuzz/ build-fuzz/found/$$name $$seeds; \
	done

# Its dependencies are for other ways of using it.
$(VENV)/mutants.stamp: requirements/mutants.txt | $(VENV)/bin/python
	$(PIP) install --quiet --no-deps -r requirements/mutants.txt
	@touch $@

mutants: $(VENV)/mutants.stamp $(VENV)/test.stamp $(VENV)/build.stamp $(VENV)/nvcc
	CUDACXX="$$(cat $(VENV)/nvcc)" python tools/mutants.py --sample $(SAMPLE) --seed $(SEED) \
	  $(addprefix --tests ,$(TESTS)) $(if $(PATCHES),--patches $(PATCHES)) $(FILES)

abi: $(VENV)/lint.stamp
	python tools/abi.py update

golden: build/libnarrowcast.so
	python tools/make_golden.py build/libnarrowcast.so
	python tools/make_golden_rows.py
	PYTHONPATH=python NARROWCAST_LIBRARY=$(CURDIR)/build/libnarrowcast.so python tools/make_golden_tables.py

wheel: $(VENV)/build.stamp $(VENV)/nvcc
	CUDACXX="$$(cat $(VENV)/nvcc)" $(PIP) wheel --no-build-isolation --no-deps --wheel-dir dist . \
	  --config-settings build-dir=build-wheel --config-settings cmake.define.CMAKE_CUDA_ARCHITECTURES="$(RELEASE_ARCHITECTURES)"

clean:
	rm -rf build build-* dist $(VENV) $(FRAMEWORKS)

FORCE:
