# Two commands do everything on a fresh machine with Python 3.11 or newer: `make demo` and `make test`.

PYTHON ?= python3
BIN := .venv/bin

PYTEST := $(BIN)/python -m pytest
ON_ALL_CORES := --numprocesses logical --maxprocesses 8 --dist loadfile --no-loadscope-reorder

.PHONY: demo test test-fast test-long coverage docs lint chromium clean

demo: .venv/ready  ## set up, then train plain, somnet and somnet+ on the embedded toy web
	$(BIN)/somnet demo --out demo

test: .venv/ready lint  ## set up, then lint, types and all tests but the long ones; without a browser, not those either
	$(PYTEST) $(ON_ALL_CORES) -m "not long"

test-fast: .venv/ready lint  ## the same without the slow tests (what is slow: pyproject.toml)
	$(PYTEST) $(ON_ALL_CORES) -m "not long and not slow"

test-long: .venv/ready  ## the tests that take minutes, one after the other
	$(PYTEST) -m long

coverage: .venv/ready  ## which lines of the package `make test` runs
	$(PYTEST) $(ON_ALL_CORES) -m "not long" --cov --cov-report term:skip-covered

docs: .venv/ready  ## the tables of docs/configuration.md, from the settings in the code
	$(BIN)/python docs/write_settings.py

chromium:  ## the browser that opens the report in the tests, for Debian
	@command -v chromium >/dev/null || \
	if [ "$$(id -u)" = 0 ]; then apt-get update -qq && apt-get install -y -qq chromium; \
	elif sudo -n true 2>/dev/null; then sudo apt-get update -qq && sudo apt-get install -y -qq chromium; \
	else echo "the tests need a browser: sudo apt-get install -y chromium"; exit 1; fi

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade "pip>=24"
	$(BIN)/python -m pip install --quiet --editable ".[dev]" --constraint constraints.txt
	touch $@

clean:
	rm -rf .venv build *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage*
