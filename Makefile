# `make run` and `make test` set up everything they need; nothing has to be installed first.
PYTHON ?= $(shell for p in python3.11 python3.12 python3; do \
  $$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
NAME ?= laptop
# Processes that the tests are played in, each a file at a time (tests/conftest.py): a test is mostly one
# thread, and waits often (for a screen to rest, for a kernel). `make test WORKERS=0` plays all in one.
WORKERS ?= 2
# A test that drives a real browser is tried again so often where it fails, and the end of the output
# says so: on a machine shared with others a browser may be starved. `make test RERUNS=0` forgives none.
RERUNS ?= 1
PLAY = -n $(WORKERS) --dist loadfile --no-loadscope-reorder --browser-reruns $(RERUNS)
# Percent of lines and branches that the tests must reach, without the notebooks: what the last run of
# `make coverage` measured.
COVERAGE ?= 0
# What `make coverage` plays; `make coverage ROOM=tests/stitching` measures one room.
ROOM ?= tests
# One thread is safest on a shared machine: two are 1.55x as fast when idle and 10x slower when not.
export OMP_NUM_THREADS ?= 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: lessons site run smoke test engine-run lint coverage path lab doctor notebooks notebooks-check browser-packages clean help
.DEFAULT_GOAL := help

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

run: $(VENV)/.core  ## the main job: a policy learns from pixels; leaves runs/laptop
	$(BIN)/cua-lab run --recipe laptop --name $(NAME)

smoke: $(VENV)/.core  ## a few episodes and updates, under a minute
	$(BIN)/cua-lab smoke

doctor: $(VENV)/.core  ## what works on this machine, and how to fix the rest
	$(BIN)/cua-lab doctor

lab: $(VENV)/.core  ## JupyterLab on the first lesson
	$(BIN)/jupyter lab notebooks/00_start_here.ipynb

lessons: $(VENV)/.lessons  ## what the lessons need, without starting them

test: $(VENV)/.test browser-packages  ## everything: unit, property, notebook and browser tests
	$(BIN)/python -m pytest $(PLAY)

engine-run: $(VENV)/.test  ## the laptop's policy learns against a real vLLM; make its environment with serve first
	$(BIN)/python -m pytest tests/engines/test_run.py -m "engine and nightly"

lint: $(VENV)/.test  ## ruff (notebooks too), mypy, floors, unused code, bandit, pip-audit
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tools/floors.py
	$(BIN)/python tools/unused.py
	$(BIN)/python tools/security.py

coverage: $(VENV)/.test browser-packages  ## which lines the tests reach; fails below COVERAGE percent
	$(BIN)/python -m pytest $(PLAY) $(ROOM) -p no:nbval -o addopts="-q --strict-markers --import-mode=importlib" \
	  --cov --cov-report=term --cov-report=html --cov-fail-under=$(COVERAGE)

site: $(VENV)/.core  ## the lessons, docs and API as pages to read; build/site/index.html
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/python tools/site.py
	@echo "open build/site/index.html"

path: $(VENV)/.test  ## how much of the package one episode and one update pass through
	$(BIN)/python tools/trace_path.py

notebooks: $(VENV)/.test  ## re-execute the notebooks and store their outputs
	$(BIN)/python -m cua_lab.lessons.notebooks store

notebooks-check: $(VENV)/.test  ## fail where a stored output is not what a run gives
	$(BIN)/python -m cua_lab.lessons.notebooks check

# The browser tests want Debian's Chromium and X server. They are installed only in CI as root;
# elsewhere the tests that need them say so and are skipped.
browser-packages:
	@if [ "$$CI" = true ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	  && ! { command -v chromium && command -v Xtigervnc; } >/dev/null; then \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
	    chromium tigervnc-standalone-server fonts-dejavu-core >/dev/null; fi

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "cua-lab needs Python 3.11 or 3.12; none was found on the PATH. Install one, or name it: make PYTHON=/path/to/python3.11 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install -q -c constraints.txt -e .
	@touch $@

$(VENV)/.lessons: $(VENV)/.core
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[test,browser]'
	@touch $@

$(VENV)/.test: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[test,browser,sft]'
	@touch $@ $(VENV)/.core

clean:  ## remove the environment and caches (runs/ stays)
	rm -rf $(VENV) build *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
