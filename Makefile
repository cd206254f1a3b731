# Each target creates the environment that it needs. `make help` lists the targets.
#
#   PYTHON=python3.13     use another interpreter (3.11 or newer); creates the environment again
#   INSTALLER=pip|uv      default: uv if it is installed
#   WORKERS=3             number of test processes
#   ARGS='-k history'     arguments for pytest (test), the report (conformance), the benchmarks (bench) and the demo

PYTHON ?= python3
WORKERS ?= 3
ARGS ?=
export PYTHON

# Images for containers often set the first of these. Then each test worker, and each command that a test starts, compiles
# every module again: half of the start of `interlock`. With the second, nothing is written next to the sources.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX := $(CURDIR)/.venv-bytecode

VENV := .venv
PY := $(VENV)/bin/python
XSTATE := xstate@5.33.3
SCION := @scion-scxml/core@2.6.24
RESTATE := @restatedev/restate-server@1.7.12
# Scripts run with the repository root on the path, so they import modules as tests and mypy do: tests.conformance.w3c.
RUN := PYTHONPATH=. $(PY)
NPM_INSTALL := npm install --no-audit --no-fund --no-package-lock --loglevel=error

# One stamp file per environment and interpreter; it is rebuilt when the pinned versions or the interpreter change.
PYTHON_ID := $(shell $(PYTHON) -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null)
READY := $(VENV)/.ready-$(PYTHON_ID)
READY_BENCH := $(VENV)-bench/.ready-$(PYTHON_ID)
READY_DEMO := $(VENV)-demo/.ready-$(PYTHON_ID)
READY_DOCS := $(VENV)-docs/.ready-$(PYTHON_ID)
READY_NODE := tests/conformance/node/node_modules/.ready
READY_BENCH_NODE := bench/node_modules/.ready-$(subst /,-,$(XSTATE)-$(SCION)-$(RESTATE))
PINNED := pyproject.toml constraints.txt .ci/venv setup.py $(wildcard src/interlock/shm/native/*)

.DEFAULT_GOAL := help
.PHONY: help setup demo quick test check bench conformance evolve retention holding fmt docs lint types imports tidy fuzz torture audit-bytes torture-fork torture-join torture-projection torture-shm chaos nightly coverage screenshots pins clean node bench-node

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

setup: $(READY) ## create the development environment in .venv
	@:

$(READY): $(PINNED)
	@.ci/venv $(VENV) dev
	@touch $@

# The other libraries that the benchmarks compare with are not in .venv: their plugins and dependencies must not affect the tests.
$(READY_BENCH): $(PINNED)
	@.ci/venv $(VENV)-bench bench
	@touch $@

# A few packages and no compiler: the demo starts without the dependencies of the tests.
$(READY_DEMO): $(PINNED)
	@echo "demo: creating its environment in $(VENV)-demo (about a minute, the first time only)"
	@.ci/venv $(VENV)-demo demo
	@touch $@

$(READY_DOCS): $(PINNED)
	@.ci/venv $(VENV)-docs docs
	@touch $@

# Node.js is optional. Without it, or without a network, the cross-checks are skipped with a message.
node:
	@if ! command -v npm >/dev/null 2>&1; then \
	  echo "NOTE: npm is not installed: the cross-checks with XState are SKIPPED" >&2; \
	elif [ ! -e $(READY_NODE) ] || [ tests/conformance/node/package.json -nt $(READY_NODE) ]; then \
	  if (cd tests/conformance/node && $(NPM_INSTALL) >/dev/null); then touch $(READY_NODE); \
	  else echo "NOTE: npm could not install XState: the cross-checks are SKIPPED" >&2; fi; \
	fi

bench-node:
	@if ! command -v npm >/dev/null 2>&1; then \
	  echo "NOTE: npm is not installed: the Node.js libraries are LEFT OUT" >&2; \
	elif [ ! -e $(READY_BENCH_NODE) ]; then \
	  if $(NPM_INSTALL) --no-save --prefix bench $(XSTATE) $(SCION) $(RESTATE) >/dev/null; then touch $(READY_BENCH_NODE); \
	  else echo "NOTE: npm could not install the Node.js libraries: they are LEFT OUT" >&2; fi; \
	fi

demo: $(READY_DEMO) ## run orders and virtual machines with failing services, in the web console; ARGS='--rate 20 --no-browser'
	@$(VENV)-demo/bin/interlock demo $(ARGS)

check: lint types imports tidy test ## run everything that must pass; the same as CI

# For every save: no server, browser or other process, and no test above half a second of CPU. mypy and lint-imports use
# their caches.
QUICK := tests/conformance/semantics tests/scenarios tests/unit

quick: $(READY) ## run lint, types, imports and the quick unit tests (under a minute on two cores)
	@$(MAKE) --no-print-directory lint types
	@$(VENV)/bin/lint-imports >$(VENV)/imports.txt || { cat $(VENV)/imports.txt; exit 1; }
	@.ci/scratch $(PY) -m pytest -q --quick -n $(WORKERS) --dist worksteal $(QUICK) $(ARGS)

# Coverage is measured for the pure packages, with their own quick tests. Slow tests, and tests that kill processes or
# explore states, run without it, because tracing makes them several times slower. `tests/tidy` is in `make tidy`. If
# ARGS selects tests, one of the two runs may have none (pytest exits with 5).
TRACED := tests/conformance/semantics $(addprefix tests/unit/,assemble buses cli compiler definition evolve expression kernel \
  model observe operate render testing trust runtime/test_messages.py runtime/test_mistakes.py runtime/test_read.py \
  runtime/reading/test_readers.py runtime/test_refusals.py runtime/test_runtime.py effects/test_handler_calls.py \
  web/test_audited.py) tests/conformance/runtime/test_authorization.py tests/conformance/runtime/test_shadow_run.py \
  tests/conformance/stores/test_audit_proof.py tests/conformance/stores/test_former_audit.py tests/properties/test_covers.py

test: $(READY) node ## run the tests, without those of `make tidy`; every branch of the pure packages must be covered
	@$(PY) -m coverage erase
	@.ci/scratch $(PY) -m coverage run -m pytest -q -n $(WORKERS) -m 'not slow' $(TRACED) $(ARGS) || [ $$? -eq 5 ]
	@.ci/scratch $(PY) -m pytest -q -n $(WORKERS) $(addprefix --only-slow=,$(TRACED)) --ignore=tests/tidy $(ARGS) || [ $$? -eq 5 ]
	@$(PY) -m coverage combine -q
	@$(PY) -m coverage report

coverage: $(READY) ## write htmlcov/ for all packages, from the last `make test`
	@$(PY) -m coverage html -q --include='src/interlock/*' --fail-under=0
	@$(PY) -m coverage report --include='src/interlock/*' --fail-under=0

lint: $(READY) ## check rules and format with ruff
	@$(VENV)/bin/ruff check --quiet
	@$(VENV)/bin/ruff format --quiet --check || { echo "lint: not formatted; run make fmt" >&2; exit 1; }

fmt: $(READY) ## format the code
	@$(VENV)/bin/ruff check --quiet --fix-only
	@$(VENV)/bin/ruff format --quiet

types: $(READY) ## check types with mypy (strict)
	@$(VENV)/bin/mypy --no-error-summary src tests $(wildcard bench examples)

imports: $(READY) ## check the import contracts
	@$(VENV)/bin/lint-imports --no-cache >$(VENV)/imports.txt || { cat $(VENV)/imports.txt; exit 1; }

tidy: $(READY) ## check the style guide
	@$(PY) -m pytest -q tests/tidy
	@$(PY) -m tests.tidy.sizes

conformance: $(READY) node ## run the published suites; writes docs/conformance.md
	@$(RUN) tests/conformance/report.py $(ARGS)

fuzz: $(READY) ## fuzz seven parsers with a million inputs each; ARGS='--count 20000 --only yaml' for less
	@$(RUN) -m tests.fuzz --count 1000000 $(ARGS)

torture: $(READY) ## run all crash tests on every store, with a table of results; QUICK=1 or KILLS=5000 for less or more
	@$(RUN) -m tests.crash

audit-bytes: $(READY) ## change a byte of an audit of 100,000 entries at 200 places, and verify; ENTRIES=2000 POSITIONS=20 for less
	@$(RUN) -m tests.crash.audit_bytes --entries $(or $(ENTRIES),100000) --positions $(or $(POSITIONS),200)

torture-fork: $(READY) ## fork with an open store, under kill -9; FORKS=20 for less
	@$(RUN) -m tests.crash.kills.fork_storm $(or $(FORKS),100)

torture-join: $(READY) ## kill programs between their own write, their joined send and their COMMIT; JOINS=50 for less
	@$(RUN) -m tests.crash.kills.join_storm $(or $(JOINS),500)

evolve: $(READY) ## migrate a million entities and deploy revisions under kill -9; ENTITIES=20000 POSTGRES=5000 KILLS=10 for less
	@$(RUN) -m tests.crash.evolve --entities $(or $(ENTITIES),1000000) --postgres $(or $(POSTGRES),200000) \
	  --kills $(or $(KILLS),20) --deployment-kills $(or $(DEPLOYMENT_KILLS),50)

retention: $(READY) ## prune and compact a million entities under clients and kill -9; ENTITIES=20000 POSTGRES=5000 KILLS=10 for less
	@$(RUN) -m tests.crash.retention.retention --entities $(or $(ENTITIES),1000000) --postgres $(or $(POSTGRES),100000) \
	  --kills $(or $(KILLS),20)

holding: $(READY) ## hold and resume twenty thousand entities under clients and kill -9; ENTITIES=2000 POSTGRES=500 KILLS=10 for less
	@$(RUN) -m tests.crash.holding.holding --entities $(or $(ENTITIES),20000) --postgres $(or $(POSTGRES),5000) \
	  --kills $(or $(KILLS),20)

torture-projection: $(READY) ## kill the runners of a projection while 32 clients send; KILLS=20 for less
	@$(RUN) -m tests.crash.kills.projection_storm $(or $(KILLS),100)

torture-shm: $(READY) ## run kill -9 storms, all interleavings and the TLA+ model of shared memory; KILLS=1000 for less
	@$(RUN) -m tests.model.report --long
	@$(RUN) -m tests.crash.shm.report $(or $(KILLS),10000)

chaos: $(READY) ## run the examples under kill -9, with slow services and repeated events; KILLS=50 for less, SEED=7 for another run
	@$(RUN) -m tests.crash.chaos

ROUNDS ?= 10

nightly: $(READY) node ## run the property tests longer: 100,000 sequences, and new examples for every property; ROUNDS=3 for less
	@INTERLOCK_SEQUENCES=100000 $(PY) -m pytest -q --timeout 0 -n $(WORKERS) tests/properties $(ARGS)
	@INTERLOCK_TEMPORAL_KILLS=20 $(PY) -m pytest -q --timeout 0 tests/servers/temporal/test_kills.py $(ARGS)
	@for round in $$(seq $(ROUNDS)); do \
	  $(PY) -m pytest -q --timeout 0 -n $(WORKERS) -m hypothesis --hypothesis-profile=explore tests $(ARGS) || exit 1; done

bench: $(READY_BENCH) bench-node ## run every benchmark, with other libraries; writes bench/results/
	@PYTHONPATH=. $(VENV)-bench/bin/python bench/run.py $(ARGS)

screenshots: $(READY) ## write screenshots of every console page, light and dark, wide and narrow, to build/screenshots/
	@$(RUN) -m tests.servers.console.screenshots build/screenshots

docs: $(READY_DOCS) ## build the documentation in site/
	@$(VENV)-docs/bin/zensical build --clean --strict -f mkdocs.yml

pins: ## write constraints.txt again, from an empty environment with every group
	@rm -rf $(VENV)-pins
	@UNPINNED=1 INSTALLER=pip .ci/venv $(VENV)-pins dev bench docs
	@$(VENV)-pins/bin/python -m pip install --quiet --upgrade pip 'setuptools>=80'
	@{ echo '# Exact versions for every install of the Makefile; no hosts. Written by `make pins`.'; \
	   $(VENV)-pins/bin/python -m pip freeze --all --exclude interlock --exclude-editable; } >$(VENV)-pins/constraints.txt
	@mv $(VENV)-pins/constraints.txt constraints.txt
	@rm -rf $(VENV)-pins
	@echo "pins: constraints.txt, $$(grep -c == constraints.txt) versions"

clean: ## remove everything that make has created
	@rm -rf $(VENV) $(VENV)-* build dist site htmlcov .coverage .coverage.* src/*.egg-info
	@rm -rf interlock-demo .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .cache
	@rm -rf tests/conformance/node/node_modules bench/node_modules src/interlock/shm/*.so
	@find src tests bench examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
