# The two commands of the README, and what they are made of. Everything lives in .venv; `make clean` removes it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Compile at install time even where the environment says not to: an uncompiled install starts several times slower.
PIP := env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pip --disable-pip-version-check --quiet
PREFIX ?= /usr/local
DESTDIR ?=

.PHONY: help demo test nightly unit lint clean install uninstall

help:
	@echo "make demo       the whole loop, from a commit to a checked proof, on a small Lean project"
	@echo "make test       lint, types and every test"
	@echo "make unit       the fast tests only"
	@echo "make nightly    the long variants of tests"
	@echo "make lint       ruff and mypy"
	@echo "make install    unit file, sysusers, tmpfiles, configuration and the application (PREFIX, DESTDIR)"
	@echo "make uninstall  remove what install put there; the state directory stays"
	@echo "make clean      remove .venv, caches and the demo's folder"

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "unsorry needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version). Try: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) install -c constraints.txt -e .
	@env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m compileall -q daemon store pipeline
	@touch $@

# What training needs. torch is large, and on Linux larger still with CUDA: see docs/install.md for the CPU build.
$(VENV)/.train: pyproject.toml constraints.txt $(VENV)/.core
	$(PIP) install -c constraints.txt -e ".[train]"
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt $(VENV)/.train
	$(PIP) install -c constraints.txt -e ".[train,dev]"
	@touch $@

demo: $(VENV)/.train
	@$(BIN)/python examples/demo.py

# Two test processes and one thread in each: torch's threads would only wait for each other.
test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

# The long variants of tests: many more cases of the same.
nightly: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -m slow

unit: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal tests/unit

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

install:
	PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" PYTHON="$(PYTHON)" sh systemd/install.sh install

uninstall:
	PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" sh systemd/install.sh uninstall

clean:
	rm -rf $(VENV) demo-run .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
