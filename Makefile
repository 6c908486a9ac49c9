# One command each; `make` alone lists them. `.ci/run` calls the same targets.
SHELL := /bin/bash
PYTHON ?= python3
PYTEST_ARGS ?=
UP_ARGS ?=
BENCH ?= overhead
BENCH_ARGS ?=

BIN := .venv/bin
STAMP := .venv/.setup-done
COMPILE := CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/pip-compile --quiet --strip-extras --allow-unsafe \
	--no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-emit-options --generate-hashes

.PHONY: help setup run test test-cluster check screenshots bench wasm messages audit lock
.DEFAULT_GOAL := help

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */make \1|/' | column -t -s '|'

setup: $(STAMP)  ## make .venv with all that server, workers and tests need (first time: about 5 minutes)

$(STAMP): requirements.txt requirements-dev.txt tools/setup.sh tools/setup_check.py
	PYTHON="$(PYTHON)" tools/setup.sh .venv
	@touch $@

run: setup  ## start everything on this machine: server, backbone, three workers (UP_ARGS="--port 9000")
	$(BIN)/python manage.py up $(UP_ARGS)

test: setup  ## all tests (PYTEST_ARGS="tests/relay -x")
	$(BIN)/python -m pytest --ignore tests/cluster $(PYTEST_ARGS)

test-cluster: setup  ## PostgreSQL, Redis, nginx, two relays, two backbones, six workers; restarts under load, chaos
	$(BIN)/python -m pytest tests/cluster

check: setup  ## format, lint, strict types, migrations, system checks
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy .
	$(BIN)/python manage.py makemigrations --check --dry-run
	$(BIN)/python manage.py check --fail-level WARNING

bench: setup  ## measure against plain llama.cpp (BENCH=overhead BENCH_ARGS="--quick")
	$(BIN)/python manage.py bench $(BENCH) $(BENCH_ARGS)

wasm: setup  ## build the browser worker's kernel (frontend/static/worker/kernel*.wasm) from its C sources
	$(BIN)/python -m frontend.browser_worker.build

screenshots: setup  ## pictures of every page from a seeded demo database (docs/screenshots/)
	$(BIN)/python -m frontend.screenshots

messages: setup  ## collect the pages' texts for translation and compile them (needs gettext)
	cd frontend && ../$(BIN)/python ../manage.py makemessages --locale zh_Hans --no-location --no-wrap --no-obsolete
	cd frontend && ../$(BIN)/python ../manage.py compilemessages --locale zh_Hans

# Apart from .venv: what audits must not change what is audited. --strict: a package nobody knows about is no success.
audit:  ## ask the advisory databases about every package of the lock files (needs pypi.org, not a mirror)
	test -x .venv-audit/bin/pip-audit || { "$(PYTHON)" -m venv .venv-audit && \
		.venv-audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit==2.10.1; }
	.venv-audit/bin/pip-audit --strict --disable-pip --require-hashes -r requirements.txt -r requirements-dev.txt

lock: setup  ## compile requirements*.in into fully pinned requirements*.txt
	$(COMPILE) requirements.in -o requirements.txt
	$(COMPILE) requirements-dev.in -o requirements-dev.txt
