# The two commands of the README, and what they are made of. Everything lives in .venv; `make clean` removes it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Compile at install time even where the environment says not to: an uncompiled install starts several times slower.
PIP := env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pip --disable-pip-version-check --quiet
# Of the libraries pip compiles one file after the other; this takes all processors. Some hold files that are no Python,
# which pip passes over as well.
COMPILE_LIBRARIES := env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || :
PREFIX ?= /usr/local
DESTDIR ?=

.PHONY: help demo demo-bump demo-diff demo-learning demo-serve demo-leandojo demo-agents demo-certificates demo-lists docs test test-fast test-changed test-all nightly mutants acceptance style lint lock audit clean install uninstall install-user uninstall-user dist deb image

help:
	@echo "make demo       from a commit to a proof that Lean accepts, on one screen"
	@echo "make demo-bump  what a newer library breaks, and the patches that mend it, on one screen"
	@echo "make demo-diff  what the check on a pull request says, on one screen"
	@echo "make demo-learning demo-serve demo-leandojo    what it learns, what editors ask it, LeanDojo's formats"
	@echo "make demo-agents demo-certificates demo-lists    everlean mcp; a certificate, forged and recalled; impact and SorryDB"
	@echo "make test       lint, types and every test"
	@echo "make test-fast  two minutes of tests: what neither torch nor a daemon is needed for"
	@echo "make test-changed    the tests that what differs from a commit can affect (BASE=origin/main)"
	@echo "make docs       write the generated parts of docs/cli.md and docs/configuration.md"
	@echo "make nightly    the long variants of tests, and the table of what the harness did to daemons and logs"
	@echo "make mutants    which small faults in gate, log, matching, splice, promotion and planning the tests notice"
	@echo "make acceptance the whole loop with Lean's own toolchains, by elan (ACCEPTANCE=\"--newest 1 --mathlib\")"
	@echo "make lint       ruff, the layers of imports, the wording of the pages, and mypy"
	@echo "make lock       choose the dependencies' versions anew and write their hashes to locks/ (needs the network)"
	@echo "make audit      look the locked versions up among the known vulnerabilities (needs the network)"
	@echo "make install    unit file, sysusers, tmpfiles, configuration and the application (PREFIX, DESTDIR)"
	@echo "make uninstall  remove what install put there; the state directory stays"
	@echo "make dist deb image    a wheel and an sdist, a Debian package, a container image"
	@echo "make install-user    the same for one user, without root: ~/.local and ~/.config (uninstall-user)"
	@echo "make clean      remove .venv, caches, and the folders of the demo and of acceptance"

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "everlean needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version). Try: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@echo "making $(VENV) and installing everlean in it, without torch: about half a minute"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.core: pyproject.toml constraints.txt | $(VENV)/bin/python
	@$(PIP) install -c constraints.txt -e .
	@env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m compileall -q daemon store pipeline
	@touch $@

# What training and the server need. torch is large, and on Linux larger still with CUDA: see docs/install.md for the CPU build.
$(VENV)/.train: pyproject.toml constraints.txt $(VENV)/.core
	@echo "installing torch and what else trains models: about a minute, and minutes with CUDA"
	@$(PIP) install --no-compile -c constraints.txt -e ".[train,serve]"
	@$(COMPILE_LIBRARIES)
	@touch $@

# What tests and linters need beside torch.
$(VENV)/.test: pyproject.toml constraints.txt $(VENV)/.core
	@echo "installing what the tests use"
	@$(PIP) install --no-compile -c constraints.txt -e ".[mcp,notify,dev]"
	@$(COMPILE_LIBRARIES)
	@touch $@

$(VENV)/.dev: $(VENV)/.train $(VENV)/.test
	@touch $@

# Lean itself, for the tests of that name and the demos: only for Linux on x86-64.
$(VENV)/.lean435: locks/lean435.txt | $(VENV)/bin/python
	@echo "installing Lean 4.35.0's shared library: 58 MB"
	@if $(PIP) install --require-hashes -r locks/lean435.txt; then touch $@; \
	else echo "Lean 4.35.0 could not be installed; what needs it says so"; fi

# LeanDojo-v2 itself, for the tests that compare with it: in a folder of its own, for it comes without what it depends on.
$(VENV)/.leandojo: locks/leandojo.txt | $(VENV)/bin/python
	@if $(PIP) install --require-hashes --no-deps --upgrade --target $(VENV)/leandojo -r locks/leandojo.txt; then touch $@; \
	else echo "LeanDojo-v2 could not be installed; the tests that compare with it are skipped"; fi

docs: $(VENV)/.dev
	@$(BIN)/python -m tests.support.reference

demo: $(VENV)/.core $(VENV)/.lean435
	@$(BIN)/python -m examples.demo

demo-diff demo-certificates: demo-%: $(VENV)/.core
	@$(BIN)/python -m examples.demo_$*

demo-bump demo-lists demo-leandojo: demo-%: $(VENV)/.core $(VENV)/.lean435
	@$(BIN)/python -m examples.demo_$*

demo-learning demo-serve: demo-%: $(VENV)/.train $(VENV)/.lean435
	@$(BIN)/python -m examples.demo_$*

$(VENV)/.mcp: pyproject.toml constraints.txt $(VENV)/.core
	@$(PIP) install -c constraints.txt -e ".[mcp]"
	@touch $@

demo-agents: $(VENV)/.mcp $(VENV)/.lean435
	@$(BIN)/python -m examples.demo_agents

# One thread in each test process: torch's threads would only wait for each other. What changed since the
# installation is compiled first, or each of the thousands of processes that the tests start would compile it anew.
COMPILE := @env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m compileall -q -j 0 daemon store pipeline experiments tests
# Four processes on two cores: many tests wait for a process or a clock.
PYTEST := env -u PYTHONDONTWRITEBYTECODE OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 4
# The fast part: what needs neither torch nor a daemon, on any machine with Python, git and make.
FAST := $(addprefix tests/,scanner store unit) $(addprefix --ignore=tests/unit/,models serve)
# What loads torch is run by itself: the other processes then do without it.
MODELS := $(addprefix tests/,agents experiments golden models prove serve unit/models unit/serve)
BASE ?= origin/main

test: style test-all

test-fast: $(VENV)/.test
	$(COMPILE)
	$(PYTEST) --exitfirst $(FAST)

test-changed: $(VENV)/.dev $(VENV)/.lean435 $(VENV)/.leandojo
	$(COMPILE)
	@files=$$($(BIN)/python -m tests.support.changed "$(BASE)") || exit 1; [ -z "$$files" ] || $(PYTEST) --exitfirst $$files

# In the first part more of the processes wait, so that it has five. mypy is one of its tests.
# Assertions run as they are written: to make them explain themselves would cost ten seconds in each part. The
# first failure is the end, and its file runs again with explanations. Each part says how many tests of the sandbox it
# skipped, and the last line is their sum.
FAILED := .pytest_cache/v/cache/lastfailed
test-all: $(VENV)/.dev $(VENV)/.lean435 $(VENV)/.leandojo
	$(COMPILE)
	@rm -f $(FAILED) $(VENV)/skipped
	@export EVERLEAN_TESTS_SKIPPED=$(VENV)/skipped; \
	$(PYTEST) -n 5 --exitfirst --assert=plain tests $(addprefix --ignore=,$(MODELS)) && $(PYTEST) --exitfirst --assert=plain $(MODELS) || { \
	  files=$$($(BIN)/python -c "import json; print(*sorted({name.partition('::')[0] for name in json.load(open('$(FAILED)'))}))"); \
	  [ -z "$$files" ] || $(PYTEST) -n 0 --last-failed $$files; exit 1; }
	@[ ! -f $(VENV)/skipped ] || { sum=0; while read -r count why; do sum=$$((sum + count)); reason=$$why; done <$(VENV)/skipped; \
	  echo "$$sum tests of the sandbox were skipped: $$reason"; }

# The long variants of tests: many more cases of the same; the table of what the harness did and found; and whether a locked version has become a dangerous one.
nightly: $(VENV)/.dev $(VENV)/.audit
	$(COMPILE)
	$(PYTEST) -m "slow or harness"

# Nightly too: about a quarter of an hour. mutants/ has the mutated copy of the code, and what was found: `mutmut show NAME`, as long as it is there.
$(VENV)/.mutants: locks/mutants.txt $(VENV)/.dev
	@$(PIP) install --require-hashes -r locks/mutants.txt
	@touch $@

mutants: $(VENV)/.mutants $(VENV)/.lean435
	@OMP_NUM_THREADS=1 $(BIN)/python -m tests.support.mutants $(MUTANTS)

# What runs Lean's own toolchains needs elan and the network, and of the tests' packages only those that the marked tests need.
ACCEPTANCE ?= --row --newest 1
$(VENV)/.acceptance: pyproject.toml constraints.txt $(VENV)/.core
	$(PIP) install -c constraints.txt pytest pytest-timeout
	@touch $@

acceptance: $(VENV)/.acceptance
	$(COMPILE)
	@$(BIN)/python -m tests.acceptance.real_lean $(ACCEPTANCE)

style: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m tests.support.wording

lint: style
	$(BIN)/mypy

# One lock for all supported Pythons (markers say which line is whose). core is what `make install` installs; train and dev
# name the index's own torch, so a machine with another build of it installs by constraints.txt instead.
LOCK := $(VENV)/lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--custom-compile-command "make lock" -c constraints.txt
lock: | $(VENV)/bin/python
	$(BIN)/python -m venv $(VENV)/lock
	$(VENV)/lock/bin/python -m pip --disable-pip-version-check --quiet install uv
	echo "hatchling>=1.27" | $(LOCK) - -o locks/build.txt
	sed -n 's/^lean435 = \["\(.*\)"\]$$/\1/p' pyproject.toml | $(LOCK) - -o locks/lean435.txt
	echo "lean-dojo-v2==1.0.9" | $(LOCK) --no-deps - -o locks/leandojo.txt
	echo "mutmut==3.8.1" | $(LOCK) - -o locks/mutants.txt
	$(LOCK) pyproject.toml -o locks/core.txt
	$(LOCK) pyproject.toml --extra train -o locks/train.txt
	$(LOCK) pyproject.toml --extra serve -o locks/serve.txt
	$(LOCK) pyproject.toml --extra mcp -o locks/mcp.txt
	$(LOCK) pyproject.toml --extra notify -o locks/notify.txt
	$(LOCK) pyproject.toml --extra ray -o locks/ray.txt
	$(LOCK) pyproject.toml --extra train --extra serve --extra mcp --extra notify --extra dev -o locks/dev.txt

# In an environment of its own: the tool's dependencies are not ours. Without a network there is none, and its test says so.
$(VENV)/.audit: | $(VENV)/bin/python
	$(BIN)/python -m venv $(VENV)/audit
	@if $(VENV)/audit/bin/python -m pip --disable-pip-version-check --quiet install pip-audit; then touch $@; \
	  else echo "pip-audit cannot be installed here; known vulnerabilities are not looked up" >&2; fi

audit: $(VENV)/.audit
	$(BIN)/python -m pytest -n 0 -m slow tests/security/test_dependencies.py

install:
	PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" PYTHON="$(PYTHON)" sh systemd/install.sh install

uninstall:
	PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" sh systemd/install.sh uninstall

# What a release consists of; the version is EVERLEAN_VERSION's (release/version.py).
dist: | $(VENV)/bin/python
	$(BIN)/python -m venv $(VENV)/build
	$(VENV)/build/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes -r locks/build.txt
	$(VENV)/build/bin/python -m hatchling build -d dist

deb:
	PYTHON="$(PYTHON)" sh release/deb.sh dist

ENGINE ?= podman
TAG ?= everlean
image:
	$(ENGINE) build --file release/Containerfile --build-arg EVERLEAN_VERSION --tag "$(TAG)" .

install-user:
	PREFIX="$(HOME)/.local" DESTDIR= PYTHON="$(PYTHON)" sh systemd/install.sh install --user

uninstall-user:
	PREFIX="$(HOME)/.local" DESTDIR= sh systemd/install.sh uninstall --user

clean:
	rm -rf $(VENV) mutants demo-run acceptance-run .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
