# make demo   sets up, compares four methods on the built-in data, shows the result
# make test   sets up, runs every test
# make docs   sets up, builds the documentation into docs/_build/html
# make check  style and types       make format  rewrites the style
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test docs check format clean

demo: $(STAMP)
	$(BIN)/tcm demo

# One process per core, each with one thread: several threads per process would only wait for each other.
test: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --maxprocesses 8 --no-loadscope-reorder $(TESTS)

docs: $(STAMP)
	$(BIN)/python -m sphinx -E -W --keep-going --quiet docs docs/_build/html
	@echo "The documentation: docs/_build/html/index.html"

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "tcm needs Python 3.11 or newer; name one with make PYTHON=python3.11" >&2; exit 2; }
	@test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	@echo "Installing tcm and what it needs into $(VENV) (PyTorch is several GB; this takes a few minutes once)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) runs docs/_build docs/reference/commands .pytest_cache .ruff_cache
