# Thin rules; the work is in packaging/setup_env.py. Paths are relative, so that a folder name with spaces does no harm.
.DEFAULT_GOAL := help
.PHONY: help run tune test check bench bench-quick format docs lock package test-package clean
MAKEFLAGS += --no-print-directory

PYTHON ?= $(if $(shell command -v python3.11 2>/dev/null),python3.11,python3)
SETUP = @command -v "$(PYTHON)" >/dev/null || { echo "There is no $(PYTHON). Python 3.11 is needed: sudo apt-get install python3.11" >&2; exit 1; }; \
	"$(PYTHON)" -E -s packaging/setup_env.py
VENV_PYTHON = .venv/bin/python
CODE = appliance ui app.py packaging bench

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1	\2/p' Makefile
	@echo '  ARGS="..." goes to the program (make run), to pytest (make test) or to the bench: make run ARGS="--port 8080"'

run: ## set up what is missing, then start the chat
	$(SETUP) run
	@exec $(VENV_PYTHON) app.py $(ARGS)

tune: ## set up what is missing, then find the model's fastest form on this PC
	$(SETUP) run
	@exec $(VENV_PYTHON) app.py tune $(ARGS)

test: ## set up what is missing, a browser included, then run every test
	$(SETUP) test
	@exec $(VENV_PYTHON) -m pytest $(ARGS)

check: ## format, lint, types and the fast tests
	$(SETUP) check
	$(VENV_PYTHON) -m ruff format --check .
	$(VENV_PYTHON) -m ruff check .
	$(VENV_PYTHON) -m mypy $(CODE)
	$(VENV_PYTHON) -m pytest -m "not model and not browser and not stress" $(ARGS)

bench: ## compare with the peers on this PC, 1.5 h, and write docs/performance.md; one measurement: ARGS="streams" (list: ARGS=--help)
	$(SETUP) check
	@exec $(VENV_PYTHON) -m bench $(if $(ARGS),$(ARGS),compare)

bench-quick: ## three minutes of it: the starter model, nothing to compile
	$(SETUP) check
	@exec $(VENV_PYTHON) -m bench compare --quick $(ARGS)

format: ## let ruff rewrite the code
	$(SETUP) check
	$(VENV_PYTHON) -m ruff format .
	$(VENV_PYTHON) -m ruff check --fix .

docs: ## write docs/settings.md from the settings table, and the packages in docs/architecture.md from the code
	$(SETUP) check
	PYTHONPATH=. $(VENV_PYTHON) packaging/settings_page.py docs/settings.md
	PYTHONPATH=. $(VENV_PYTHON) packaging/import_graph.py docs/architecture.md

lock: ## renew the lock files from pyproject.toml (UPGRADE=1: newest versions)
	$(SETUP) lock $(if $(UPGRADE),--upgrade)

package: ## one self-contained program, tested, in dist/ (the first time 11 min on two cores: llama.cpp for every CPU)
	@command -v "$(PYTHON)" >/dev/null || { echo "There is no $(PYTHON). Python 3.11 is needed: sudo apt-get install python3.11" >&2; exit 1; }
	@"$(PYTHON)" -E -s packaging/package.py $(ARGS)

test-package: ## after make package: what it made in a browser, in a network without a way out, and on other CPUs, emulated
	$(SETUP) test-package
	@exec $(VENV_PYTHON) -m pytest $(if $(ARGS),$(ARGS),tests/browser/test_packaged_program.py tests/system/test_old_cpus.py tests/model/test_amx_kernels.py)

clean: ## remove everything that was made here, but not the wheels and no data
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
