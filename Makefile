# make run   set up what is missing and run the main job
# make test  set up what is missing and run all tests
# make check lint, types and import layers: what CI runs before the tests
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
unexport PYTHONDONTWRITEBYTECODE  # what is imported is compiled once, not in every process

.PHONY: run test check docs bench clean

run: $(VENV)/.run
	$(BIN)/sojourn run examples/orders.py --max-sojourn 200ms --conf change.quiet=15s

test: $(VENV)/.dev
	$(BIN)/python tests/unit/prometheus.py || test -z "$$CI"
	browser=tests/browser; $(BIN)/python tests/unit/chromium.py || test -n "$$CI" || browser=; \
	$(BIN)/python -m pytest -n auto tests/unit tests/cli $$browser
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder tests/spark tests/kafka

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

docs: $(VENV)/.dev
	$(BIN)/python -c 'from sojourn.configuration import reference; print(reference(), end="")' > docs/settings.md

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/optimizer.py

$(BIN)/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else f"Sojourn needs Python 3.11 or newer; $(PYTHON) is {v[0]}.{v[1]}. Name another: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)

# The stamps hold what was installed: a second make installs nothing, a changed pyproject only what is new.
$(VENV)/.run: pyproject.toml | $(BIN)/python
	@echo "setting up $(VENV) (once; pyspark takes a minute or two)"
	@$(PIP) --editable .
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	@echo "setting up $(VENV) for tests (once)"
	@$(PIP) --editable '.[dev]'
	@touch $@ $(VENV)/.run

clean:
	rm -rf $(VENV)
