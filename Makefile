# make demo   set up .venv and train a spiking network on the bundled digits
# make test   set up .venv with the development extras and run every check
# make test-ray   the tests that start Ray, which the others leave out
# make check   the same without the slow tests
# make docs   build the pages into site/; broken links fail
# make coverage   every test, with the lines and branches of src that they reach
# make release-check   build sdist and wheel, look inside, train with the wheel alone
# make fuzz   an hour of damaged files and odd command lines; findings go to runs/fuzz/
# make bench-step   time a step against the published package, on an otherwise idle machine
# make bench-maxsat   MAX-SAT against its baselines; files from the folder HARDSTEP_DATA names
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
OUT    ?=
ARGS   ?=
# The tests of a module share what it computes, so a module stays on one worker.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadscope

.PHONY: demo test test-ray check docs coverage lint release-check fuzz bench-step bench-maxsat clean

demo: $(VENV)/.installed
	$(BIN)/hardstep train snn $(if $(OUT),--out $(OUT))

test: lint
	$(PYTEST) -m "not ray"

test-ray: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(BIN)/pytest -m ray tests/distributed

check: lint
	$(PYTEST) -m "not slow and not ray"

# Not --quiet: what it does not print, --strict does not count.
docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "the pages are in site/; to read them with search: $(BIN)/python -m http.server -d site"

coverage: $(VENV)/.installed-dev
	$(PYTEST) -m "not ray" --cov --cov-report=term-missing:skip-covered

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

release-check:
	$(PYTHON) tools/release_check.py

fuzz: $(VENV)/.installed-dev
	$(BIN)/python -m tests.fuzz $(ARGS)

bench-step: $(VENV)/.installed
	$(BIN)/python -m benchmarks.step $(ARGS)

bench-maxsat: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks.maxsat $(ARGS)

$(VENV)/.installed: pyproject.toml constraints.txt
	@$(call create)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[plot]'
	@touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt
	@$(call create)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-docs: pyproject.toml constraints.txt
	@$(call create)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@touch $@

# Debian ships Python without ensurepip, and venv then fails with a page of text.
define create
command -v $(PYTHON) >/dev/null || { echo "hardstep needs Python 3.11 or newer: no $(PYTHON) found; install it, or name one with make PYTHON=/path/to/python3" >&2; exit 2; }; \
$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "hardstep needs Python 3.11 or newer, and $(PYTHON) is older; name another with make PYTHON=/path/to/python3" >&2; exit 2; }; \
$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "$(PYTHON) lacks venv and ensurepip; on Debian and Ubuntu run: sudo apt install python3-venv" >&2; exit 2; }; \
test -x $(BIN)/python || { echo "creating $(VENV) and installing"; $(PYTHON) -m venv $(VENV); }
endef

clean:
	rm -rf $(VENV) .venv-bench
