# Every target sets up what it needs: a virtual environment with pinned packages.
#   make demo                  the main job, on real input
#   make test                  the tests; TORCH=2.14.1 for another torch, in a venv of its own
# `make` alone lists the rest. Needed on the machine: python3 (3.10 or newer) with venv, and g++.

TORCH_DEFAULT := 2.13.0
TORCH ?= $(TORCH_DEFAULT)
PYTHON ?= python3
CXX ?= g++
ARGS ?=

# Triton compiles for a GPU that need not be there; torch's builds for CUDA bring their own
TRITON_2.13.0 := 3.7.1
TRITON := $(if $(filter Linux-x86_64,$(shell uname -s)-$(shell uname -m)),$(TRITON_$(TORCH)))

VENV := $(if $(filter $(TORCH_DEFAULT),$(TORCH)),.venv,.venv-$(TORCH))
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# an empty file for each set of packages that is installed
RUN := $(VENV)/.have-run
TEST := $(VENV)/.have-test
CHECK := $(VENV)/.have-check

.PHONY: help setup demo test test-all check bench bench-choices bench-gpu bench-models clean

help:
	@echo "make demo          set up, then a simulation and two blocks through three backends"
	@echo "make test          set up, then the tests (minutes); TORCH=2.14.1 chooses another torch"
	@echo "make test-all      all tests: every model, torch's operators, many more random nests"
	@echo "make check         lint, format, types, layout"
	@echo "make bench         the seams against eager mode and Inductor -> bench/results/"
	@echo "make bench-choices likewise, and cutting always and never: how often the default is right"
	@echo "make bench-gpu     the seams on an NVIDIA GPU, in bfloat16 and float32"
	@echo "make bench-models  the models, likewise; ARGS=\"--only vit\" goes on to the command"

setup: $(RUN)

demo: $(RUN)
	$(BIN)/torch-piecewise demo $(ARGS)

# two workers: a test waits for the C++ compiler most of the time
test: $(TEST)
	$(BIN)/python -m pytest -n 2 $(ARGS)

test-all: $(TEST)
	PIECEWISE_TEST_ALL=1 $(BIN)/python -m pytest $(ARGS)

check: $(CHECK)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python scripts/check_layout.py

bench: $(RUN)
	$(BIN)/torch-piecewise bench seams --scale cpu --dtype float32 --threads 1 \
	    --output bench/results/seams-cpu-float32.json $(ARGS)

bench-choices: $(RUN)
	$(BIN)/torch-piecewise bench seams --scale cpu --dtype float32 --threads 1 --choices \
	    --output bench/results/seams-cpu-float32-choices.json $(ARGS)

bench-gpu: $(RUN)
	for dtype in bfloat16 float32; do $(BIN)/torch-piecewise bench seams --device cuda --scale gpu \
	    --dtype $$dtype --in-process --output bench/results/seams-gpu-$$dtype.json $(ARGS) || exit 1; done

bench-models: $(TEST)
	$(BIN)/torch-piecewise bench models --dtype float32 \
	    --output bench/results/models-float32.json $(ARGS)

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "python 3.10 or newer is needed; PYTHON=... names another than " + sys.executable)'
	@command -v $(CXX) > /dev/null || { echo "a C++ compiler is needed: install g++, or name one with CXX=..."; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(RUN): $(BIN)/python requirements/run.txt requirements/constraints.txt pyproject.toml
	$(PIP) "torch==$(TORCH)" -r requirements/run.txt
	$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(TEST): $(RUN) requirements/test.txt
	$(PIP) "torch==$(TORCH)" -r requirements/test.txt $(addprefix triton==,$(TRITON))
	@touch $@

$(CHECK): $(TEST) requirements/check.txt
	$(PIP) "torch==$(TORCH)" -r requirements/check.txt
	@touch $@
