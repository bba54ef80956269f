# The ways into the project; `make help` lists them.

PROFILE ?= quick
JOBS ?= 2
SEEDS ?=
CASES ?=
PYTHON ?= python3

BIN := .venv/bin
READY := .venv/ready
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# One thread for each process: notebooks run side by side, and two threads on two busy
# cores are many times slower than one.
export RETLIB_THREADS ?= 1

# Where this is set, every process compiles the sources of torch and of all else anew: eight seconds each.
export PYTHONDONTWRITEBYTECODE :=

# A test that passes with the matrix products of one processor is no test of another: those of search,
# ranking and training run with other products, too.
KERNEL_TESTS := tests/retrieval $(addprefix tests/training/test_,chosen_negatives.py dynamics.py) \
	tests/systems/test_system.py
OTHER_KERNEL := $(BIN)/python -c 'import numpy, threadpoolctl; \
	own = {pool.get("architecture") for pool in threadpoolctl.threadpool_info()}; \
	print("Prescott" if own & {"Haswell", "Zen"} else "Haswell")'

.DEFAULT_GOAL := help
.PHONY: help book test coverage lab bench clean

help:
	@echo "make book [PROFILE=quick] [JOBS=2] [SEEDS=\"0 1 2\"]   run the notebooks, build the book"
	@echo "make test                                          run the tests"
	@echo "make coverage                                      how much of the code the tests reach, slow ones left out"
	@echo "make lab                                           JupyterLab with the notebooks"
	@echo "make bench [CASES=\"05-bm25 ...\"]                   ours beside peers' on an idle machine; see -m benchmarks --help"
	@echo "make .venv/ready                                   install into .venv, and no more"
	@echo "make clean                                         remove all that was made or fetched, but .venv"
	@echo
	@echo "Profiles: $(basename $(notdir $(sort $(wildcard notebooks/profiles/*.yaml))))"

book: $(READY) $(if $(filter checkpoint,$(PROFILE)),.venv/starts)
	@$(BIN)/python -m retlib build --profile "$(PROFILE)" --jobs "$(JOBS)" --seeds "$(SEEDS)"

test: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache > /dev/null || $(BIN)/lint-imports --no-cache
	$(BIN)/python -m pytest -n "$(JOBS)" --dist loadfile --no-loadscope-reorder --durations 15
	OPENBLAS_CORETYPE=`$(OTHER_KERNEL)` $(BIN)/python -m pytest -n "$(JOBS)" --dist loadfile -m "not slow" $(KERNEL_TESTS)

coverage: $(READY)
	$(BIN)/python -m pytest -n "$(JOBS)" --dist loadfile --no-loadscope-reorder -m "not slow" \
		--cov=retlib --cov=benchmarks --cov-report=term:skip-covered

lab: $(READY)
	$(BIN)/jupyter lab --notebook-dir . --preferred-dir notebooks $(if $(filter 0,$(shell id -u)),--allow-root)

bench: $(READY) .venv/benchmarks
	@$(BIN)/python -m benchmarks $(CASES)

clean:
	rm -rf _build .snakemake .pytest_cache .ruff_cache .hypothesis .coverage*

# Installed anew only when the versions change.
$(READY): constraints.txt pyproject.toml
	@$(PYTHON) -c 'import sys; assert (3, 11) <= sys.version_info < (3, 14)' 2> /dev/null || \
		{ echo "Python 3.11, 3.12 or 3.13 is needed, as in: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@echo "Installing into .venv; this takes a few minutes the first time."
	@$(PYTHON) -m venv .venv
	@$(PIP) pip setuptools wheel flit-core
	@$(PIP) --no-build-isolation --no-compile -e ".[test]"
	@touch $@

# The weights that the profile of the same name begins with.
.venv/starts: $(READY)
	@$(PIP) --no-build-isolation --no-compile -e ".[starts]"
	@touch $@

# What the book's own code is measured beside.
.venv/benchmarks: $(READY)
	@$(PIP) --no-build-isolation --no-compile -e ".[benchmarks]"
	@touch $@
