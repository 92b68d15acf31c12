# Every goal does its own set-up, can be repeated and is quick the second time. `make help` lists them.

DEFAULT_TORCH := 2.13.0
TORCH ?= $(DEFAULT_TORCH)
ARGS ?=
BENCHMARKS := bytes codec dgc packing hashing imbalance
BENCH ?= $(BENCHMARKS)
JOBS ?= $(shell nproc)

# Each version of torch has its environment and its build of the extension: they never mix.
VENV := .venv$(if $(filter-out $(DEFAULT_TORCH),$(TORCH)),-torch-$(TORCH))
PACKAGE := build/torch-$(TORCH)/package
RESULTS := build/results
PYTHON_IN_VENV := PYTHONPATH=$(PACKAGE) $(VENV)/bin/python

CXX_FILES = $(shell find csrc cuda simulation tests benchmarks -name '*.cpp' -o -name '*.h' -o -name '*.cu' \
  -o -name '*.cuh')
PYTHON_FILES = setup.py $(shell find python tests benchmarks examples scripts -name '*.py' -o -name '*.pyi')
SHELL_FILES := scripts/*.sh .ci/run

# The extension is built for CPU tensors, also against a CUDA build of torch: test-cuda-build is for
# GPUs.
CUDA_TORCH ?= 2.14.1
export ZENSYNC_BUILD_CUDA ?= 0
export MAX_JOBS ?= $(JOBS)

.PHONY: help demo test test-cpp test-sanitized test-races test-python bench bench-network fuzz lint format clean
.PHONY: extension environment system-% test-cuda-build

help:
	@echo "make demo     train a language model with plain DDP and with zensync, and compare them"
	@echo "              ARGS=\"--ranks 4 --iterations 50 --rate 1gbit\"; ARGS=--help lists the rest"
	@echo "make test     all tests: C++, C++ with sanitizers, Python"
	@echo "              (parts of it: test-cpp, test-sanitized, test-python; beside it: test-races)"
	@echo "make bench    micro benchmarks, results in runs/codec.json; BENCH=codec runs one of them"
	@echo "              ($(BENCHMARKS)), with ARGS=\"--dtype bfloat16\""
	@echo "make bench-network  the schemes on shaped networks, beside plain DDP and others: needs root"
	@echo "              ARGS=\"--ranks 4 --rates 200mbit\"; ARGS=--help lists the rest"
	@echo "make fuzz     a million hostile inputs for each decoder"
	@echo "make lint     formatting, types and layering; 'make format' mends the formatting"
	@echo "make clean    remove what was built; the virtual environments stay"
	@echo "TORCH=2.14.1 selects another version of torch, PYTHON=python3.12 another Python"

demo: extension
	$(PYTHON_IN_VENV) examples/word_language_model.py $(ARGS)

test: test-cpp test-sanitized test-python

test-cpp: system-test
	$(call cmake_build,release,-DZENSYNC_BENCHMARKS=OFF)
	$(call cmake_test,release)

test-sanitized: system-test
	$(call cmake_build,sanitized,-DCMAKE_BUILD_TYPE=Debug -DZENSYNC_SANITIZE=address$(,)undefined \
	  -DZENSYNC_BENCHMARKS=OFF)
	$(call cmake_test,sanitized)

# Not part of `make test`: the thread transport and the parallel kernels under ThreadSanitizer.
test-races: system-test
	$(call cmake_build,races,-DCMAKE_BUILD_TYPE=Debug -DZENSYNC_SANITIZE=thread -DZENSYNC_BENCHMARKS=OFF)
	$(call cmake_test,races)

test-python: extension
	@mkdir -p $(RESULTS) && rm -f $(RESULTS)/python.xml
	$(PYTHON_IN_VENV) -m pytest --junitxml=$(RESULTS)/python.xml $(ARGS)

# Needs no GPU, but nvcc and a CUDA build of torch: skipped where there are none.
test-cuda-build: system-demo
	@scripts/test_cuda_build.sh $(CUDA_TORCH) $(ARGS)

bench: system-bench
ifneq ($(ARGS),)
ifneq ($(words $(BENCH)),1)
	$(error each benchmark has options of its own: say which, as in BENCH=codec ARGS="$(ARGS)")
endif
endif
	$(call cmake_build,release,-DZENSYNC_BENCHMARKS=ON)
	@mkdir -p runs
	@rm -f runs/codec.json runs/dgc_pass.json
	for name in $(BENCH); do build/release/$${name}_benchmark $(ARGS) || exit 1; done

bench-network: extension
	$(PYTHON_IN_VENV) -m zensync bench $(ARGS)

fuzz: system-fuzz
	$(call cmake_build,fuzz,-DCMAKE_CXX_COMPILER=clang++ -DZENSYNC_FUZZ=ON -DZENSYNC_TESTS=OFF \
	  -DZENSYNC_BENCHMARKS=OFF -DZENSYNC_SANITIZE=address$(,)undefined)
	for fuzzer in build/fuzz/*_fuzz; do \
	  name=$$(basename $$fuzzer); mkdir -p build/corpus/$$name; \
	  $$fuzzer -runs=1000000 -print_final_stats=1 $(ARGS) build/corpus/$$name \
	    tests/fuzz/corpus/$$name || exit 1; \
	done

lint: system-lint environment
	@$(VENV)/bin/clang-format --dry-run -Werror $(CXX_FILES)
	@$(VENV)/bin/ruff format --check $(PYTHON_FILES)
	@$(VENV)/bin/ruff check $(PYTHON_FILES)
	@$(VENV)/bin/mypy $(PYTHON_FILES)
	! grep -rnE '#include *[<"](torch|ATen|c10|pybind11|Python\.h)' csrc/core csrc/schemes cuda
	if command -v shellcheck >/dev/null; then shellcheck $(SHELL_FILES); fi

format: environment
	@$(VENV)/bin/clang-format -i $(CXX_FILES)
	@$(VENV)/bin/ruff format $(PYTHON_FILES)
	@$(VENV)/bin/ruff check --fix $(PYTHON_FILES)

clean:
	rm -rf build dist runs python/*.egg-info python/zensync/*.so python/zensync/_built_for.py

# The package as it would be installed, in a folder of its own. It is laid anew each time, so that a
# module which is gone from the sources is gone from it too; the objects beside it are kept.
extension: environment
	@rm -rf $(PACKAGE) && mkdir -p build
	@echo "Building the extension for torch $(TORCH) (the first time takes minutes)"
	@CFLAGS=-Werror $(VENV)/bin/python setup.py --quiet build --build-base=build/torch-$(TORCH) \
	  --build-lib=$(PACKAGE) >build/extension.log 2>&1 || { cat build/extension.log; exit 1; }

environment: system-demo
	@scripts/python_environment.sh $(VENV) $(TORCH)

system-%:
	@scripts/system_packages.sh $*

, := ,

# $(call cmake_build,folder,options), $(call cmake_test,folder)
define cmake_build
@mkdir -p build && cmake -S . -B build/$(1) -G Ninja $(2) >build/$(1).configure.log || \
  { cat build/$(1).configure.log; exit 1; }
cmake --build build/$(1) --parallel $(JOBS)
endef

define cmake_test
@mkdir -p $(RESULTS) && rm -f $(RESULTS)/$(1).xml
ctest --test-dir build/$(1) --no-tests=error --output-on-failure --progress --parallel $(JOBS) \
  --output-junit $(CURDIR)/$(RESULTS)/$(1).xml
endef
