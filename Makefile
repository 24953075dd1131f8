# Every target does its own set-up and is quick the second time. `make` alone says what there is.
.DEFAULT_GOAL := help
.PHONY: help setup browser types run test test-all test-core test-local check crash mutants bench bench-log bench-turn bench-memory bench-chats bench-page bench-context bench-models \
	lock format clean

# Say PYTHON=python3.13 to choose one. An old one is fine to start with: set-up looks for a newer one itself.
ifndef PYTHON
PYTHON := $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	command -v $$p >/dev/null 2>&1 && echo $$p && exit; done; echo python3)
endif
NO_PYTHON := setup: Python 3.11 or newer is needed: install it from https://www.python.org/downloads/
SETUP := command -v "$(PYTHON)" >/dev/null 2>&1 || { echo "$(NO_PYTHON)" >&2; exit 1; }; "$(PYTHON)" tools/setup.py
PY := .venv/bin/python
PAGE := $(PY) -I tools/page.py

help: ## Say what there is to make
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

setup: ## Make .venv with everything that checks and most tests need
	@$(SETUP) dev
	@$(PAGE)

browser: # What `make test` drives, a browser and tmux, first of all: a clone without them fetches nothing
	@$(SETUP) test

run: ## Start Holdfast, needing only what users need (ARGS="--port 9000" adds options)
	@$(SETUP) run
	@$(PAGE)
	@exec .venv/bin/holdfast serve $(ARGS)

test: browser check ## Check, then run every test, some of them in a browser
	@$(PAGE) test
	@# In the order of their names: files with few tests that take long come before the many quick ones.
	@$(PY) -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

test-all: test crash mutants test-local ## Run every test, with 200 kills, all mutations, the local model and many HTTP requests
	@HOLDFAST_EXAMPLES=100 $(PY) -m pytest tests/acceptance/test_schemathesis.py

types: setup ## Write the page's types anew from the server's declarations
	@$(PY) tools/protocol_types.py

test-core: setup ## Run the quick tests: unit, conformance, simulation, style
	@$(PY) -m pytest $(wildcard tests/unit tests/conformance tests/simulation tests/style) $(ARGS)

test-local: setup ## Run the tests that ask a real llama.cpp; fetches the local model once, 127 MB
	@.venv/bin/holdfast local install --data .cache/local-model
	@$(PY) -m pytest tests/local $(ARGS)

check: setup ## Lint, check the format, check the types
	@echo "Checking style and types"
	@$(PY) -m ruff check --quiet
	@$(PY) -m ruff format --check --quiet || { echo "make format mends this"; exit 1; }
	@$(PY) -m mypy --no-error-summary
	@$(PAGE) check

crash: setup ## Kill writers and servers 200 times and compare what they promised with what is there
	@HOLDFAST_KILLS=200 $(PY) -m pytest tests/crash -s $(ARGS)

mutants: setup ## Break the product in named ways and print what no test notices (ARGS="--file contracts" for some)
	@$(PY) -m tools.mutants $(ARGS)

bench: bench-log bench-turn bench-memory bench-chats bench-page bench-context bench-models ## Run every benchmark

bench-log: setup ## Measure the log beside its peers; prints one table
	@$(PY) -m bench.log $(ARGS)

bench-turn: setup ## Measure a turn end to end beside a prototype; prints one table
	@$(PY) -m bench.turn $(ARGS)

bench-memory: setup ## Measure turns with a memory, slow or not, beside turns without; prints one table
	@$(PY) -m bench.memory $(ARGS)

bench-chats: setup ## Measure a thousand chats of a bot on one server, beside a noisy one; prints one table
	@$(PY) -m bench.chats $(ARGS)

bench-context: setup ## Measure a turn late in a long conversation beside an early one; prints one table
	@$(PY) -m bench.context $(ARGS)

bench-models: setup ## Measure what a token costs to read by our adapters, beside the openai and anthropic SDKs
	@$(PY) -m bench.models $(ARGS)

bench-page: browser setup ## Measure the page in a browser: a long conversation, streaming, tabs; prints one table
	@$(PY) -m bench.page $(ARGS)

format: setup ## Put the code into its form
	@$(PY) -m ruff check --fix --quiet
	@$(PY) -m ruff format --quiet

lock: setup ## Resolve the locked requirements anew and check that all platforms have wheels
	@tools/lock.sh

clean: ## Remove what set-up and checks made, never what users stored
	rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis web/node_modules src/holdfast/http/built
