# Two commands do everything on a fresh machine with Python 3.11 or newer: `make demo` and `make test`.

PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-long lint clean

demo: .venv/ready  ## set up, then train plain and somnet on the embedded toy web
	$(BIN)/somnet demo --out demo

test: .venv/ready lint  ## set up, then lint, types and all tests but the long ones
	$(BIN)/python -m pytest -m "not long"

test-long: .venv/ready  ## the tests that take minutes
	$(BIN)/python -m pytest -m long

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
	rm -rf .venv build *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
