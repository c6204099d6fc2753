# Everything a developer does has a target here. `make setup` needs Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SEEDS ?= 2000
# So many tests at once; those of one file after each other, as they share clusters, and in the order
# of the directories: the long ones are not last.
JOBS ?= 2
PYTEST := $(BIN)/python -m pytest -q
PARALLEL := -n $(JOBS) --dist loadfile --no-loadscope-reorder
# What `make test-slow` gives the machine to itself: it kills and freezes processes and limits how
# soon they are back, or times what a browser draws. Spark is killed beside other tests.
BESIDE := tests/chaos/spark/
ALONE := $(filter-out $(BESIDE),$(wildcard tests/chaos/[a-z]*/)) tests/browser/test_many_partitions.py
SLOWEST := --durations 30 --durations-min 0.5
SEED ?= 0
# For so long `make chaos` has all kinds of faults at once (nothing: it tries them one by one).
MINUTES ?=
# Tests start hundreds of processes; they take compiled modules from where the first one left them.
unexport PYTHONDONTWRITEBYTECODE
# What `make fuzz` fuzzes (nothing: everything, one after the other), for how long each, and the
# directory that keeps what it finds (nothing: a temporary one).
TARGET ?=
SECONDS ?= 60
WORK ?=

.PHONY: help setup demo test test-unit test-wheel test-slow dist lint type check sim fuzz chaos bench docs format lock clean

help:  ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(STAMP)  ## Make a virtual environment with the locked versions of everything

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Runnel needs Python 3.11 or newer; $$($(PYTHON) --version) is too old. Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
	  { echo "cannot make a virtual environment; on Debian: apt-get install python3-venv"; exit 1; }
	@echo "installing the locked packages into $(VENV) (a few minutes the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation \
	  --config-settings editable_mode=compat -e .
	@touch $@

demo: setup  ## The main job in about a minute: a cluster, real data, Spark
	@$(BIN)/python examples/01-flights/demo.py

test: setup  ## Tests that must stay under ten minutes on two cores
	@$(PYTEST) $(PARALLEL) $(SLOWEST)

test-unit: setup  ## Unit tests and the rules of the layout; under a minute on two cores
	@$(BIN)/python -m tests.in_parts --hypothesis-profile brief $(SLOWEST)

# The wheel is installed beside nothing of the sources, and runs what the tests start.
test-wheel: setup  ## Long end-to-end tests, and commands, of an installed wheel of this tree
	@rm -rf build/installed
	@python=$$($(BIN)/python -m tests.e2e.installed_wheel build/installed) && \
	  RUNNEL_TEST_PYTHON="$$python" \
	  $(PYTEST) -m "(long or wheel) and not slow and not chaos" $(PARALLEL) $(SLOWEST) tests/e2e

# What would be published, and what it consists of; nothing is uploaded.
dist: setup  ## The sdist, the wheel and the bill of materials, checked, in dist/
	@rm -rf dist && mkdir -p build
	@$(BIN)/python -c 'import build_backend as b; b.build_sdist("dist"); b.build_wheel("dist")' \
	  >build/dist.log 2>&1 || { cat build/dist.log; exit 1; }
	@$(BIN)/python -m twine check --strict dist/*.whl dist/*.tar.gz
	@$(BIN)/python -m build_backend.bill_of_materials dist/runnel.cdx.json
	@ls dist

test-slow: setup  ## Real faults, etcd's members killed, containers, long runs; under an hour
	@$(PYTEST) $(PARALLEL) -m slow --timeout 900 $(SLOWEST) $(addprefix --ignore ,$(ALONE))
	@$(PYTEST) -m slow --timeout 900 $(SLOWEST) $(ALONE)
	@$(PYTEST) $(PARALLEL) -m "(hypothesis or sampled) and not slow and not chaos" \
	  --hypothesis-profile thorough --timeout 900 $(SLOWEST) tests/unit tests/contract tests/fuzz

lint: setup  ## Format, lint, import contracts
	@$(BIN)/ruff format --check --quiet . || { echo "run: make format"; exit 1; }
	@$(BIN)/ruff check .
	@$(BIN)/lint-imports

type: setup  ## mypy --strict
	@$(BIN)/mypy

check: lint type docs-check  ## Everything that is checked without running it

.PHONY: docs-check docs-site
docs-check: setup
	@$(BIN)/python docs/generate.py --check
	@$(MAKE) --no-print-directory docs-site

# Any warning is an error: a broken link, a page that no list names.
docs-site: setup
	@rm -rf build/docs
	@$(BIN)/python -m sphinx -q -W -E -j auto -d build/doctrees docs build/docs
	@$(BIN)/python docs/self_contained.py build/docs

format: setup  ## Format the code
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: setup  ## Measure produce, consume, the KVs, the SC and Spark scans beside the machine's floor
	@$(BIN)/python -m benchmarks.records
	@$(BIN)/python -m benchmarks.kv
	@$(BIN)/python -m benchmarks.reconcile --sizes 1000,10000
	@$(BIN)/python -m benchmarks.spark_kafka

sim: setup  ## The control loop, replicas, clusters and leases over SEEDS random worlds each, from SEED on
	@RUNNEL_SIM_WORLDS=$(SEEDS) $(BIN)/python -m pytest -q tests/unit/sc/controllers/test_laws.py \
	  --hypothesis-seed=$(SEED) --timeout 7200
	@RUNNEL_SIM_WALKS=$(SEEDS) RUNNEL_SIM_SEED=$(SEED) $(BIN)/python -m pytest -q \
	  tests/sim/test_replication.py tests/sim/test_moves.py -k test_walks --timeout 7200
	@$(BIN)/python -m tests.sim.cluster --seeds $(SEEDS) --seed $(SEED)
	@$(BIN)/python -m tests.sim.leases --seeds $(SEEDS) --seed $(SEED)

# Atheris has no dependencies, and nothing else needs it: it lies beside the locked packages.
fuzz: setup  ## Coverage-guided fuzzing of TARGET, or of all, for SECONDS each; fetches atheris once
	@test -d $(VENV)/atheris || \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --target $(VENV)/atheris atheris==3.0.0
	@for target in $(or $(TARGET),$$($(BIN)/python -m tests.fuzz.run)); do \
	  PYTHONPATH=$(VENV)/atheris $(BIN)/python -m tests.fuzz.run $$target --seconds $(SECONDS) \
	    $(if $(WORK),--work $(WORK)/$$target) || exit 1; \
	done

chaos: setup  ## All faults at once for MINUTES, drawn from SEED; without MINUTES, all tests with faults
	@$(if $(MINUTES),$(BIN)/python -m tests.chaos.whole --minutes $(MINUTES) --seed $(SEED),\
	  $(PYTEST) -m chaos --timeout 900)

docs: setup  ## Write the reference pages that follow from code; build the site, build/docs/index.html
	@$(BIN)/python docs/generate.py
	@$(MAKE) --no-print-directory docs-site

lock: setup  ## Resolve requirements.lock anew
	@$(BIN)/uv pip compile -q --universal --generate-hashes --no-annotate --no-header \
	  --extra spark --extra dev --extra etcd pyproject.toml -o requirements.lock

clean:  ## Remove the virtual environment and caches
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist *.egg-info
